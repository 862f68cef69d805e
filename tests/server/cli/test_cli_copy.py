"""`corral copy`: in process and by URL, resumed after an interruption, and its errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from corral.api.chunks import Chunk

from .filling import store

Corral = Callable[..., Result]

RUN_YAML = """
providers:
  vector_io:
    - {provider_id: sqlite, provider_type: "inline::sqlite"}
    - {provider_id: chroma, provider_type: "inline::chroma"}
  embedding:
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 64}}
"""
MANY = 4_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder with two persistent providers."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
    return folder


def fill(home: Path, number: int) -> None:
    """Make the vector DB `farm` with so many chunks."""
    store(home, [Chunk(content=f"hay bale{n} in barn{n % 7}") for n in range(number)])


def figures(done: Result) -> list[str]:
    """Return the cells of the table that a copy ends with."""
    assert done.exit_code == 0, done.output
    header, _, row = done.stdout.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        "chunks", "copied", "seconds", "compared", "vector hits", "keyword hits"
    ]  # fmt: skip
    return row.split()


def test_a_vector_db_is_copied_and_verified(corral: Corral, home: Path) -> None:
    """The table says how many chunks, how long it took, and that both sides answer alike."""
    fill(home, 30)
    chunks, copied, seconds, *checks = figures(corral("copy", "farm", "barn", "--to", "chroma"))
    assert (chunks, copied, checks) == ("30", "30", ["20", "same", "same"])
    assert float(seconds) < 60
    assert "chroma" in corral("dbs", "show", "barn").stdout
    assert figures(corral("copy", "farm", "barn"))[:2] == ["30", "0"]


def test_it_is_the_same_by_url(invoke: Corral, server_url: str, documents: Path) -> None:
    """A running server does the work; without --to the copy lies beside its source."""
    invoke("--url", server_url, "ingest", "source-by-url", documents, "--create")
    done = invoke("--url", server_url, "copy", "source-by-url", "copy-by-url", "--batch", "2")
    assert figures(done)[:2] == ["5", "5"]
    shown = invoke("--url", server_url, "dbs", "show", "copy-by-url")
    assert re.search(r"provider_id +sqlite", shown.stdout)
    for name in ("source-by-url", "copy-by-url"):  # other tests list what the server has
        assert invoke("--url", server_url, "dbs", "delete", name, "--yes").exit_code == 0


def test_an_interrupted_copy_goes_on(corral: Corral, home: Path) -> None:
    """Ctrl-C in the middle, then the same command: what was copied is not written again.

    If this fails: a step is not kept, or the copy begins with an empty target.
    """
    fill(home, MANY)
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home), "copy"]
    process = subprocess.Popen(
        [*command, "farm", "barn", "--batch", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    assert "Copying: " in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    output, said = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    assert "Run the same command again to continue" in said
    assert "Traceback" not in said
    chunks, copied, *_ = figures(corral("copy", "farm", "barn"))
    assert chunks == f"{MANY:,}"
    assert 0 < int(copied.replace(",", "")) < MANY


def test_a_copy_that_differs_fails(corral: Corral, home: Path) -> None:
    """The command's exit code is 1, its message says what differs, and its hint what to do."""
    fill(home, 30)
    figures(corral("copy", "farm", "barn"))
    folder = home / "hay"
    folder.mkdir()
    (folder / "more.md").write_text("More hay.")
    assert corral("ingest", "barn", folder).exit_code == 0
    done = corral("copy", "farm", "barn")
    assert done.exit_code == 1
    assert "Error: 'barn' is not a copy of 'farm': The source has 30 chunks, the target 31." in (
        done.stderr
    )
    assert "copy again" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["farm", "farm"], "Source and target are the same"),
        (["nobody", "barn"], "There is no vector DB 'nobody'"),
        (["farm", "barn", "--to", "crhoma"], "Did you mean 'chroma'"),
        (["farm", "barn", "--batch", "0"], "--batch"),
        (["farm", "barn", "--batch", "10001"], "--batch"),
        (["farm"], "DST_DB"),
    ],
)
def test_a_wrong_command_is_refused(
    corral: Corral, home: Path, words: list[str], said: str
) -> None:
    """Exit code 2, one line that says what is wrong, and nothing is registered."""
    fill(home, 1)
    done = corral("copy", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Run the same command" not in done.stderr, "it would be refused again"
    assert "Traceback" not in done.stderr
    assert corral("dbs", "list").stdout.count("hashing") == 1
