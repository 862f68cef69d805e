"""Kill -9 at random moments: no chunk lost, none twice, no job stuck. See tests/kills.py."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml

from corral.api.principal import Principal, Role
from corral.providers.ingestion.jobs.jobs import JobStatus, Submission
from corral.providers.ingestion.jobs.queue import JobQueue

from ... import kills
from .jobs_stack import HASHING, finished, of_text, opened, stored

ADMIN = Principal("", role=Role.ADMIN)

KILLS = int(os.environ.get("CORRAL_TEST_KILLS", "2"))
LONGEST = {"sqlite": "0.3", "chroma": "0.8"}
"""Seconds that a process lives at most: about what its work takes, or most kills would be late."""


def kill(folder: Path, provider: str, *more: str) -> dict[str, object]:
    """Run the script and return what it saw."""
    config = folder / "run.yaml"
    one = {"provider_id": provider, "provider_type": f"inline::{provider}"}
    providers = {"vector_io": [one], "embedding": [HASHING]}
    config.write_text(
        yaml.safe_dump({"providers": providers, "default_embedding_model": "hashing"})
    )
    words = ["--config", str(config), "--provider", provider, "--kills", str(KILLS), *more]
    with redirect_stdout(io.StringIO()) as printed:
        kills.main(words)
    told: dict[str, object] = json.loads(printed.getvalue().splitlines()[-1])
    return told


@pytest.mark.parametrize("provider", ["sqlite", "chroma"])
def test_no_job_is_lost_stuck_or_done_twice(tmp_path: Path, provider: str) -> None:
    """Documents that a killed process was at have their chunks once, of their last version.

    If this fails: a crash of the server loses documents, or leaves two versions of one.
    """
    told = kill(tmp_path, provider, "--documents", "60", "--longest", LONGEST[provider])
    assert (told["kills"], told["documents"]) == (KILLS, 60)


@pytest.mark.parametrize("provider", ["sqlite", "chroma"])
def test_documents_that_are_replaced_end_as_their_last_version(
    tmp_path: Path, provider: str
) -> None:
    """Each process that is killed was sent a new version, while jobs of the one before waited.

    If this fails: a job of an older version is done after a newer one, or a replacement that a kill
    cut off leaves chunks of two versions.
    """
    words = ["--documents", "30", "--replace", "--seed", "5", "--longest", LONGEST[provider]]
    told = kill(tmp_path, provider, *words)
    assert (told["kills"], told["documents"]) == (KILLS, 30)


def test_a_write_by_hand_is_whole_or_not_there(tmp_path: Path) -> None:
    """On an engine without transactions, a call that a kill cut off is finished by the next start.

    If this fails: a document has chunks of two versions until somebody sends it again.
    """
    assert kill(tmp_path, "chroma", "--by-hand")["kills"] == KILLS


SLOW = """
import asyncio, pathlib, sys
from corral.providers.base.config import load_config
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.stack.stack import Stack

embed = HashingEmbedder.embed_documents

async def slow(self, texts):
    print("embedding", flush=True)
    await asyncio.sleep(1)
    print("embedded", flush=True)
    return await embed(self, texts)

HashingEmbedder.embed_documents = slow

async def main(home):
    stack = Stack(load_config(home=home), home)
    await stack.ingestion.start()
    await asyncio.sleep(3600)

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


async def test_a_frozen_process_loses_its_job_and_writes_nothing(tmp_path: Path) -> None:
    """A job of a frozen process is done by another after the lease, and not again when it wakes up.

    If this fails: a machine that hangs holds its documents up for ever, or stores an old version.
    """
    given = {"providers": {"embedding": [HASHING]}, "default_embedding_model": "hashing"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(given))
    async with opened(tmp_path) as stack:
        new = Submission(of_text("a", "Hay."), await stack.vector_db("db"), "", ADMIN)
        [job] = await JobQueue(stack.state).add([new], None, same_origin=False)
        command = [sys.executable, "-c", SLOW, str(tmp_path)]
        frozen = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220 - this test's own loop
        try:
            assert frozen.stdout is not None
            assert await asyncio.to_thread(frozen.stdout.readline) == b"embedding\n"
            frozen.send_signal(signal.SIGSTOP)
            await stack.ingestion.start()
            (done,) = await finished(stack, [job])
            assert done.status is JobStatus.COMPLETED
            frozen.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(frozen.stdout.readline) == b"embedded\n"
            await asyncio.sleep(3)  # what it would write, it writes now
            assert await stack.ingestion.job(job.job_id) == done
            assert await stored(stack) == {"a": ["Hay."]}
            assert frozen.poll() is None
        finally:
            frozen.kill()
            frozen.communicate()
