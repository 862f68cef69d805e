"""Options of `corral ingest`, `dbs create` and `jobs cancel`; ids in one line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .conftest import Corral, make_home

TEXT = " ".join(f"word{number}" for number in range(400))


def document(corral: Corral, *name: str) -> dict[str, Any]:
    """Return a stored document."""
    shown = corral("documents", "show", "farm", *(name or ("long.txt",)), "--json")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@pytest.mark.parametrize("over_http", [False, True])
def test_a_document_gets_its_metadata_title_and_chunk_sizes(
    corral: Corral, invoke: Corral, server_url: str, tmp_path: Path, over_http: bool
) -> None:
    """The options reach the chunks, in process and through a server; the same again is unchanged.

    If this fails: look at `read_document` in `files.py` and at `Client.submit`.
    """
    to: Corral = partial(invoke, "--url", server_url) if over_http else corral
    (tmp_path / "long.txt").write_text(TEXT)
    ingest = ["ingest", "farm", tmp_path / "long.txt", "--create", "--title", "Words of the farm"]
    ingest += ["--metadata", "year=2026", "--metadata", "team=sheep"]
    sizes = ["--chunk-size", "64", "--overlap", "8"]
    done = to(*ingest, *sizes)
    assert done.exit_code == 0, done.output
    found = document(to)
    about = found["metadata"]
    assert (about["title"], about["year"], about["team"]) == ("Words of the farm", 2026, "sheep")
    tokens = [chunk["chunk_metadata"]["content_token_count"] for chunk in found["chunks"]]
    assert max(tokens) <= 64
    assert len(tokens) > 10
    assert "1 unchanged" in to(*ingest, *sizes).stdout
    assert "1 document " in to(*ingest, "--chunk-size", "200").stdout
    assert document(to)["chunk_count"] < len(tokens)
    to("dbs", "delete", "farm", "--yes")


def test_chunks_end_at_a_text(corral: Corral, tmp_path: Path) -> None:
    """`--split-on` of a registration or of an ingest, which wins; '' is none.

    Another way to split is a change, the same way is not, and an overlap by itself neither.

    If this fails: a document is embedded again by each ingest, or keeps its old chunks.
    """
    (tmp_path / "long.txt").write_text("Hay is dry.\n======\nOats are wet.\n------\nRye is ripe.")
    made = corral("dbs", "create", "farm", "--split-on", "------", "--json")
    assert json.loads(made.stdout)["chunking"]["split_on"] == "------"
    ways = {
        (): ["Hay is dry.\n======\nOats are wet.", "Rye is ripe."],
        ("--split-on", "======"): ["Hay is dry.", "Oats are wet.\n------\nRye is ripe."],
        ("--split-on", ""): ["Hay is dry.\n======\nOats are wet.\n------\nRye is ripe."],
        ("--overlap", "9"): ["Hay is dry.\n======\nOats are wet.", "Rye is ripe."],
        ("--split-on", "2"): ["Hay is dry.\n======\nOats are wet.\n------\nRye is ripe."],
    }
    for options, texts in ways.items():
        ingest = ["ingest", "farm", tmp_path / "long.txt", *options]
        assert "1 document " in corral(*ingest).stdout
        assert [chunk["content"] for chunk in document(corral)["chunks"]] == texts
        assert "1 unchanged" in corral(*ingest).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--title", "One"], "--title is for one file (got 2)."),
        (["--overlap", "200"], "--overlap must be at most half of the chunk size, 256 (got 200)."),
        (["--chunk-size", "64", "--overlap", "33"], "half of the chunk size, 64 (got 33)."),
        (["--metadata", "year"], "--metadata must be NAME=VALUE (got 'year')."),
        (["--chunk-size", "0"], "0 is not in the range"),
        (["--split-on", "=" * 101], "--split-on must have at most 100 characters (got 101)."),
    ],
)
def test_options_that_cannot_be_are_refused_first(
    corral: Corral, tmp_path: Path, options: list[str], said: str
) -> None:
    """The refusal says what to pass, with exit code 2, and nothing is stored."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The ewe eats grass.")
    corral("dbs", "create", "farm")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    refused = corral("ingest", "farm", *files, *options)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert json.loads(corral("documents", "list", "farm", "--json").stdout) == []


def test_a_registration_takes_sizes_re_ranking_and_confidence(corral: Corral) -> None:
    """`dbs create` registers what `ingest` and `query` otherwise have to be told each time."""
    made = corral(
        "dbs", "create", "farm", "--rerank", "mmr", "--min-confidence", "0.4",
        "--chunk-size", "128", "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    settings = json.loads(made.stdout)
    assert settings["rerank"]["type"] == "mmr"
    assert settings["min_confidence"] == 0.4
    assert settings["chunking"] == {"chunk_size_in_tokens": 128, "overlap_in_tokens": 16}
    refused = corral("dbs", "create", "barn", "--chunk-size", "100", "--overlap", "60")
    assert refused.exit_code == 2
    assert "half of chunk_size_in_tokens" in refused.stderr


def test_cancelling_takes_yes(corral: Corral) -> None:
    """`jobs cancel --yes` cancels without asking, as `--yes` does elsewhere.

    If this fails: a script that cancels from a terminal stops at a question.
    """
    corral("dbs", "create", "farm")
    assert corral("jobs", "cancel", "farm", "--yes").stdout == "farm: cancelled 0 jobs\n"


LONG = "the-minutes-of-the-board-of-the-farm-" * 4


DOCUMENTS = ["documents", "list", LONG]


@pytest.mark.parametrize(
    ("columns", "kind", "what"),
    [
        (20, "xterm", DOCUMENTS),
        (80, "dumb", DOCUMENTS),
        (None, "", DOCUMENTS),
        (20, "xterm", ["dbs", "list"]),
    ],
)
def test_an_id_stays_in_one_line(
    corral: Corral, tmp_path: Path, columns: int | None, kind: str, what: list[str]
) -> None:
    """No id is cut or broken, in a terminal of any width (None: in a pipe).

    If this fails: look at `_widen_ids` in `display.py`. An id cannot be copied from the table.
    """
    home = make_home(tmp_path / "home")
    corral("dbs", "create", LONG)
    name = "notes/" * 20 + "gate.txt"
    folder = tmp_path / "documents"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("The gate opens inward.")
    corral("ingest", LONG, folder)
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home), *what]
    wanted = LONG if what[0] == "dbs" else name
    if columns is None:
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        shown = in_terminal(command, columns, kind)
    assert any(line.startswith(wanted) for line in shown.splitlines()), shown


def in_terminal(command: list[str], columns: int, kind: str) -> str:
    """Return what a command prints in a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": kind}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux ends a terminal so
                part = b""
            if not part:
                break
            printed += part
    os.close(ours)
    assert process.returncode == 0, printed
    return printed.decode().replace("\r\n", "\n")
