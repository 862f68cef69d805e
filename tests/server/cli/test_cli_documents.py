"""`corral documents`, counts in `corral dbs`, and `--json` on every command that prints data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from corral.api.chunks import Chunk
from corral.server.cli import cli, display
from corral.server.cli.documents import CHUNKS_LIMIT, NAMED_LIMIT

from ...state_database import copy_home
from .filling import store

Corral = Callable[..., Result]
IDS = ["blåbær.markdown", "fences.md", "notes/deep/water.rst", "notes/gate.txt", "page.html"]


@pytest.fixture
def filled(corral: Corral, home: Path, filled_home: Callable[[str], Path]) -> Corral:
    """The command line with the vector DB `farm/1` that holds the documents."""
    copy_home(filled_home("farm/1"), home)
    return corral


def read(done: Result) -> Any:
    """Return the JSON that a command printed."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_documents_are_listed_shown_and_deleted(filled: Corral) -> None:
    """The life of a document on the command line; ids hold slashes.

    If this fails: what was put in cannot be looked at or taken out again.
    """
    listed = filled("documents", "list", "farm/1").stdout
    assert [line.split()[0] for line in listed.splitlines()[2:]] == IDS
    shown = filled("documents", "show", "farm/1", "notes/gate.txt").stdout
    assert "metadata.title" in shown
    assert "The gate opens inward" in shown
    done = filled("documents", "delete", "farm/1", "notes/gate.txt", "page.html", "--yes")
    assert done.exit_code == 0
    assert "notes/gate.txt is deleted (1 chunk)." in done.stdout
    assert [d["document_id"] for d in read(filled("documents", "list", "farm/1", "--json"))] == [
        i for i in IDS if i not in ("notes/gate.txt", "page.html")
    ]
    again = filled("documents", "delete", "farm/1", "notes/gate.txt", "--yes")
    assert (again.exit_code, "no document" in again.stderr) == (2, True)
    assert filled("documents", "show", "farm/1", "notes/gate.txt").exit_code == 2


def test_a_deletion_is_not_done_where_nobody_can_be_asked(filled: Corral) -> None:
    """Without a terminal and without --yes nothing is deleted."""
    done = filled("documents", "delete", "farm/1", "fences.md")
    assert (done.exit_code, "--yes" in done.stderr) == (2, True)
    assert len(read(filled("documents", "list", "farm/1", "--json"))) == 5


def test_a_list_goes_on_where_it_is_told_to(filled: Corral) -> None:
    """`--after` and `--limit` choose."""
    part = filled("documents", "list", "farm/1", "--after", "fences.md", "--limit", "2", "--json")
    assert [d["document_id"] for d in read(part)] == IDS[2:4]
    three = read(filled("documents", "list", "farm/1", "--limit", "3", "--json"))
    assert [d["document_id"] for d in three] == IDS[:3]


def test_all_pages_are_read(corral: Corral, home: Path) -> None:
    """More documents, or chunks of one, than the server answers at once: all are shown.

    If this fails: a list ends early, and looks complete.
    """
    ids = [f"d{n:03}" for n in range(NAMED_LIMIT + 1)]
    chunks = [Chunk(content=name, metadata={"document_id": name}) for name in ids]
    long = {"document_id": "long"}
    chunks += [Chunk(content=f"{n}", metadata=long) for n in range(CHUNKS_LIMIT + 1)]
    store(home, chunks)
    listed = read(corral("documents", "list", "farm", "--names", "--json"))
    assert [d["document_id"] for d in listed] == [*ids, "long"]
    most = NAMED_LIMIT + 1
    listed = read(corral("documents", "list", "farm", "--names", "--limit", most, "--json"))
    assert [d["document_id"] for d in listed] == ids
    shown = read(corral("documents", "show", "farm", "long", "--json"))
    assert len(shown["chunks"]) == shown["chunk_count"] == CHUNKS_LIMIT + 1


def test_vector_dbs_are_shown_with_counts(filled: Corral) -> None:
    """`dbs list` and `dbs show` say how many chunks and documents there are."""
    row = next(
        line for line in filled("dbs", "list").stdout.splitlines() if line.startswith("farm/1")
    )
    assert row.split()[1:3] == ["5", "5"]
    shown = dict(
        line.split(maxsplit=1) for line in filled("dbs", "show", "farm/1").stdout.splitlines()
    )
    assert (shown["chunk_count"].strip(), shown["document_count"].strip()) == ("5", "5")


def test_a_file_of_one_address_stays_a_text(corral: Corral, tmp_path: Path) -> None:
    """A bookmark is ingested as what it says; nothing is fetched or refused.

    If this fails: the client sends texts as plain strings, which the wire takes for addresses.
    """
    (tmp_path / "link.txt").write_text("https://docs.example.org/fox", encoding="utf-8")
    assert corral("ingest", "links", tmp_path / "link.txt", "--create").exit_code == 0
    (chunk,) = read(corral("documents", "show", "links", "link.txt", "--json"))["chunks"]
    assert chunk["content"] == "https://docs.example.org/fox"


# --- JSON ---------------------------------------------------------------------------------------

NOT_DATA = {
    "serve", "mcp", "demo", "bench", "dbs delete", "dbs prune", "keys revoke", "conformance",
    "state upgrade", "state copy", "config schema",
}  # fmt: skip
"""Commands without a reply, or with JSON only; bench and conformance write files of their own, and
what prune deletes is the data of `dbs list --orphans --json`."""


def names(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every command by its words."""
    if isinstance(command, click.Group) and command.name != "bench":
        for name, each in command.commands.items():
            yield from names(each, (*words, name))
    else:
        yield " ".join(words)


def test_every_command_that_prints_data_has_json() -> None:
    """The rule holds for commands that are added, too."""
    for words in set(names(cli.main)) - NOT_DATA:
        command: click.Command = cli.main
        for word in words.split():
            assert isinstance(command, click.Group)
            command = command.commands[word]
        assert "--json" in {o for p in command.params for o in p.opts}, words


def test_json_is_all_that_is_printed(corral: Corral, documents: Path) -> None:
    """Each command's standard output with --json is one JSON value with what the table shows."""
    report = read(corral("ingest", "farm", documents, "--create", "--json"))
    assert (report["vector_db_id"], report["documents"]) == ("farm", 5)
    assert [Path(name).name for name, why in report["skipped"] if why == "empty"] == ["empty.md"]
    assert read(corral("dbs", "create", "other", "--json"))["identifier"] == "other"
    listed = read(corral("dbs", "list", "--json"))
    assert [(d["identifier"], d["chunk_count"]) for d in listed] == [("farm", 5), ("other", 0)]
    assert read(corral("dbs", "show", "farm", "--json"))["document_count"] == 5
    assert read(corral("query", "farm", "gate", "--json"))["metadata"]["document_ids"]
    assert read(corral("copy", "farm", "copy", "--json"))["copied"] == 5
    assert read(corral("jobs", "retry", "farm", "--json")) == {"retried": 0, "failed": []}
    assert read(corral("jobs", "cancel", "farm", "--json")) == {"cancelled": 0}
    assert read(corral("models", "--json"))[0]["identifier"] == "hashing"
    assert {p["kind"] for p in read(corral("providers", "--json"))["data"]} == {
        "vector_io",
        "embedding",
        "inference",
        "files",
        "rag",
    }
    assert read(corral("config", "show", "--json"))["server"]["port"] == 8321
    gone = read(corral("documents", "delete", "copy", "fences.md", "--yes", "--json"))
    assert [d["document_id"] for d in gone] == ["fences.md"]
    assert read(corral("documents", "list", "other", "--json")) == []


def test_json_moves_no_cursor(corral: Corral, tmp_path: Path) -> None:
    """Characters that a terminal acts upon are escaped, and the value is the same.

    If this fails: a document colors the terminal or turns the direction of its text.
    """
    (tmp_path / "x.md").write_text("the fox \x9b31m \u202e reversed", encoding="utf-8")
    corral("ingest", "farm", tmp_path / "x.md", "--create")
    shown = corral("query", "farm", "fox", "--json")
    assert not {"\x9b", "\u202e"} & set(shown.stdout)
    assert "the fox" in read(shown)["metadata"]["chunks"][0]


# --- what was hidden ----------------------------------------------------------------------------


@pytest.mark.parametrize("note", [None, "There is no room for the frame."])
def test_notes_are_shown_where_nothing_is_found(
    note: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty answer says why, too, and with --explain what each step removed.

    If this fails: "Nothing found." hides that the search was not what was asked for.
    """
    metadata: dict[str, Any] = {
        "notes": ["Not re-ranked: the service is away."],
        "steps": {"farm": [{"name": "threshold", "kept": 0, "removed": 3, "detail": "0.9"}]},
    }
    if note:
        metadata["note"] = note
    reply = {"content": None, "metadata": metadata}
    display.show_reply(reply, with_context=True, explain=True)
    told = capsys.readouterr().out
    assert (note or "Nothing found.") in told
    assert "Note: Not re-ranked: the service is away." in told
    assert "threshold" in told


def test_a_reader_that_stops_reading_is_no_error(filled: Corral, home: Path) -> None:
    """`corral dbs list | true` says nothing.

    If this fails: every pipe into head ends in an error message.
    """
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
    try:
        for words in (["dbs", "list"], ["documents", "list", "farm/1", "--json"]):
            done = subprocess.run(
                [*command, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
            )
            assert (done.stderr, done.returncode) == ("", 1)
    finally:
        os.close(writing)


def test_who_reads_a_document_is_changed(filled: Corral) -> None:
    """Tokens, the default or nobody, one of the three; the document's chunks say so afterwards."""
    gate = ("farm/1", "notes/gate.txt")
    done = filled("documents", "acl", *gate, "user:ann", "group:farm")
    assert "notes/gate.txt is open to group:farm, user:ann (1 chunk)." in done.stdout
    shown = read(filled("documents", "show", *gate, "--json"))
    assert [chunk["acl"] for chunk in shown["chunks"]] == [["group:farm", "user:ann"]]
    assert read(filled("documents", "acl", *gate, "--nobody", "--json"))["acl"] == []
    assert read(filled("documents", "acl", *gate, "--default", "--json"))["acl"] is None
    for wrong in ((), ("--default", "--nobody"), ("user:ann", "--nobody"), ("ann",)):
        assert filled("documents", "acl", *gate, *wrong).exit_code == 2


def test_a_folder_is_ingested_for_a_group(corral: Corral, documents: Path) -> None:
    """Every document gets the tokens; run again with others it is stored again."""
    for tokens in (["group:farm"], ["group:farm", "user:ann"]):
        options = [part for token in tokens for part in ("--acl", token)]
        assert corral("ingest", "farm", documents, "--create", *options).exit_code == 0
        shown = read(corral("documents", "show", "farm", "notes/gate.txt", "--json"))
        assert [chunk["acl"] for chunk in shown["chunks"]] == [tokens]
    refused = corral("ingest", "farm", documents, "--acl", "farm")  # once, and not for each file
    assert refused.exit_code == 2
    assert "Error: --acl: an acl token is user:NAME, group:NAME" in refused.stderr
    assert "Failed" not in refused.stderr
