"""`corral reembed` and `corral dbs change`: done, resumed after a kill, repeated, given up."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import load_config
from corral.providers.embedding.hashing.embedder import embed_text
from corral.providers.ingestion.storing import store
from corral.providers.stack.stack import Stack

Corral = Callable[..., Result]

RUN_YAML = """
providers:
  embedding:
    - {{provider_id: hashing, provider_type: "inline::hashing", config: {{dimension: {}}}}}
"""
NUMBER = 3_000


def configure(home: Path, dimension: int) -> None:
    """Write a run.yaml whose model has so many dimensions."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "run.yaml").write_text(RUN_YAML.format(dimension), encoding="utf-8")


def on_stack(home: Path, work: Callable[[Stack], Any]) -> Any:
    """Run some work on a stack of its own."""

    async def run() -> Any:
        stack = Stack(load_config(None, home), home)
        try:
            return await work(stack)
        finally:
            await stack.close()

    return asyncio.run(run())


def fill(home: Path, number: int) -> None:
    """Make the vector DB `farm` with so many chunks by a model of 32 dimensions."""
    configure(home, 32)

    async def work(stack: Stack) -> None:
        await stack.register(VectorDBRegistration(vector_db_id="farm", embedding_model="hashing"))
        chunks = [
            Chunk(chunk_id=f"c{n:05}", content=f"hay bales of barn{n % 7} number{n}")
            for n in range(number)
        ]
        await store(stack, "farm", chunks)

    on_stack(home, work)


def dimensions(home: Path) -> tuple[int, int]:
    """Return how many chunks there are, and how many have today's embedding of their text."""

    async def work(stack: Stack) -> tuple[int, int]:
        index = await stack.index("farm")
        size = index.vector_db.embedding_dimension
        chunks = await index.get_chunks(await index.chunk_ids("", 10_000), include_embeddings=True)
        made = np.array([embed_text(one.content, size) for one in chunks])
        off = np.abs(made - np.array([one.embedding for one in chunks])).max(axis=1)
        assert await stack.orphans("sqlite") == []
        return len(chunks), int((off < 1e-5).sum())

    counted: tuple[int, int] = on_stack(home, work)
    return counted


def test_a_changed_model_is_embedded_again(corral: Corral, home: Path) -> None:
    """One command, and again, which has nothing to do then."""
    fill(home, 30)
    configure(home, 48)
    assert "corral reembed" in corral("query", "farm", "hay").output
    done = corral("reembed", "farm")
    assert done.exit_code == 0, done.output
    assert "30 chunks in" in done.stdout
    assert "(48 dimensions)" in done.stdout
    assert dimensions(home) == (30, 30)
    assert "Nothing to do." in corral("reembed", "farm", "--model", "hashing").stdout
    assert corral("query", "farm", "hay").exit_code == 0


def test_words_are_indexed_anew_without_embedding(corral: Corral, home: Path) -> None:
    """Language and weights; `--json` says what was done."""
    fill(home, 10)
    done = corral(
        "dbs", "change", "farm", "--language", "nb", "--field-weight", "title=4", "--json"
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["changed"], told["seen"], told["built"]) == (True, 10, 10)
    assert told["vector_db"]["language"] == "norwegian"
    assert told["vector_db"]["field_weights"] == {"content": 1.0, "title": 4.0}
    refused = corral("dbs", "change", "farm")
    assert (refused.exit_code, "--language" in refused.stderr) == (2, True)


def test_a_rebuild_is_given_up(corral: Corral, home: Path) -> None:
    """`--abandon` deletes what was built; without a rebuild it says so."""
    fill(home, 10)
    configure(home, 48)

    async def begin(stack: Stack) -> None:
        vector_db = await stack.vector_db("farm")
        await stack.rebuilds.begin(vector_db, {"embedding_model": "hashing"})

    on_stack(home, begin)
    assert "given up" in corral("reembed", "farm", "--abandon").stdout
    again = corral("reembed", "farm", "--abandon")
    assert (again.exit_code, "is not being rebuilt" in again.stderr) == (2, True)
    assert len(list(home.rglob("sqlite/**/*.db"))) == 1


@pytest.mark.parametrize("after", [1, 6])
def test_a_killed_command_is_taken_up(corral: Corral, home: Path, after: int) -> None:
    """kill -9 after some steps: the old index serves, and the same command does the rest.

    If this fails: what a killed rebuild leaves is lost, wrong, or in the way.
    """
    fill(home, NUMBER)
    configure(home, 48)
    code = (
        "import os, signal, sys\n"
        "from corral.providers.stack import rebuild as rebuilding\n"
        "step, taken = rebuilding.copy_step, []\n"
        "async def killed(*arguments, **options):\n"
        "    taken.append(await step(*arguments, **options))\n"
        f"    if len(taken) == {after}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return taken[-1]\n"
        "rebuilding.copy_step = killed\n"
        "from corral.server.cli.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "--home", str(home), "reembed", "farm", "--batch", "400"]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert corral("query", "farm", "hay", "--mode", "keyword").exit_code == 0
    done = corral("reembed", "farm", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["seen"], told["built"]) == (NUMBER, NUMBER - after * 400)
    assert dimensions(home) == (NUMBER, NUMBER)


def test_documents_are_unchanged_after_a_rebuild(
    corral: Corral, home: Path, documents: Path
) -> None:
    """What a rebuild has embedded again is not embedded once more by the next ingest.

    If this fails: the hash of a stored document depends on the model.
    """
    configure(home, 32)
    first = corral("ingest", "farm", documents, "--create", "--json")
    assert first.exit_code == 0, first.output
    stored = json.loads(first.stdout)["documents"]
    configure(home, 48)
    assert corral("reembed", "farm").exit_code == 0
    again = json.loads(corral("ingest", "farm", documents, "--json").stdout)
    assert (again["documents"], again["unchanged"]) == (0, stored)
