"""`corral ingest`: a folder goes in under stable ids, is kept in step, and shows how far it is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from corral.api.engine_index import EngineIndex
from corral.server.cli.client import Client

from .stored_documents import IDS, stored

Corral = Callable[..., Result]


def test_a_folder_goes_in_with_stable_ids(corral: Corral, documents: Path) -> None:
    """Each document once, under its path relative to the folder; what is left out is said."""
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("farm: ingested 5 documents (")
    assert sorted(map(str, stored(corral)["document_ids"])) == IDS
    for reason, name in {
        "hidden": ".git/",
        "hidden; --hidden takes it": ".hidden.md",
        "empty": "empty.md",
        "binary": "binary.txt",
        "a picture": "picture.png",
    }.items():
        line = next(line for line in done.stderr.splitlines() if f"({reason})" in line)
        assert name in line


def test_ingesting_twice_changes_nothing(corral: Corral, documents: Path) -> None:
    """The same files again replace themselves, from wherever the folder is named.

    If this fails: a document id depends on more than the path within the folder.
    """
    corral("ingest", "farm", documents, "--create")
    before = stored(corral)
    assert corral("ingest", "farm", documents).exit_code == 0
    assert stored(corral) == before


def test_a_changed_file_replaces_its_document(corral: Corral, documents: Path) -> None:
    """Of a document there is one version, the last one."""
    corral("ingest", "farm", documents, "--create")
    (documents / "fences.md").write_text("# Fences\n\nPosts stand four meters apart.")
    corral("ingest", "farm", documents)
    texts = [str(text) for text in stored(corral)["chunks"] if "Posts stand" in str(text)]
    assert len(texts) == 1
    assert "four meters" in texts[0]


def test_source_and_title_are_kept(
    corral: Corral, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is the path within the folder; the title is the heading, else the file's name."""
    monkeypatch.chdir(documents.parent)
    corral("ingest", "farm", "documents", "--create")
    shown = corral("query", "farm", "posts", "--mode", "keyword", "--max-tokens", "200").stdout
    assert '"source":"fences.md"' in shown
    assert '"title":"Fences"' in shown
    shown = corral("query", "farm", "latched", "--mode", "keyword", "--max-tokens", "200").stdout
    assert '"title":"gate"' in shown


def test_a_missing_vector_db_says_how_to_make_it(corral: Corral, documents: Path) -> None:
    """Without `--create` nothing is made by a typo."""
    refused = corral("ingest", "farm", documents)
    assert refused.exit_code == 2
    assert "corral dbs create farm" in refused.stderr
    assert corral("dbs", "list").stdout.startswith("No vector DB")


def test_two_files_of_one_id_are_refused(corral: Corral, documents: Path, tmp_path: Path) -> None:
    """Two folders with a file of one name each would overwrite each other; nothing goes in.

    If this fails: a document is lost without a word.
    """
    other = tmp_path / "other"
    other.mkdir()
    (other / "fences.md").write_text("another fence")
    refused = corral("ingest", "farm", documents, other, "--create")
    assert refused.exit_code == 2
    assert "'fences.md'" in refused.stderr
    assert corral("dbs", "list").stdout.startswith("No vector DB")


def test_another_folder_does_not_overwrite(corral: Corral, documents: Path, tmp_path: Path) -> None:
    """A document of the same relative path from elsewhere is a failure; --replace replaces it.

    The rest goes in, and the folder that holds both keeps them apart.

    If this fails: `ingest farm a` and `ingest farm b` lose a's documents without a word.
    """
    other = tmp_path / "other"
    other.mkdir()
    (other / "fences.md").write_text("# Another\n\nA ditch keeps the water out.")
    (other / "ditch.md").write_text("# Ditch\n\nIt is deep.")
    corral("ingest", "farm", documents, "--create")
    refused = corral("ingest", "farm", other)
    assert refused.exit_code == 1
    assert "fences.md' is already stored from another place" in refused.stderr
    assert "--replace" in refused.stderr
    texts = "".join(map(str, stored(corral)["chunks"]))
    assert "keeps the cattle in" in texts
    assert "It is deep" in texts
    assert corral("ingest", "farm", documents).exit_code == 0
    assert corral("ingest", "farm", other, "--replace").exit_code == 0
    texts = "".join(map(str, stored(corral)["chunks"]))
    assert "keeps the water out" in texts
    assert "keeps the cattle in" not in texts


def test_unchanged_files_are_skipped(corral: Corral, documents: Path) -> None:
    """They are neither embedded nor stored again, and the summary counts them."""
    corral("ingest", "farm", documents, "--create")
    (documents / "fences.md").write_text("# Fences\n\nPosts stand four meters apart.")
    again = corral("ingest", "farm", documents)
    assert again.stdout.startswith("farm: ingested 1 document (")
    assert again.stdout.rstrip().endswith("; 4 unchanged")


def test_an_interruption_says_what_is_stored(
    corral: Corral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: how many documents are in; the same command goes on from there.

    If this fails: who interrupts a long ingest has to begin again, or loses documents.
    """
    folder = tmp_path / "farm"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.txt").write_text(f"document number {number}")
    changed, add = Client.changed_jobs, EngineIndex.add_chunks
    calls = iter(range(1000))

    async def held(self: EngineIndex, *given: Any, **more: Any) -> None:
        if next(calls) >= 4:  # or all are stored before a busy machine asks what changed
            await asyncio.sleep(60)
        await add(self, *given, **more)

    async def interrupted(self: Client, *given: Any) -> Any:
        page = await changed(self, *given)
        if sum(job["status"] == "completed" for job in page["data"]) > 3:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        return page

    with monkeypatch.context() as patched:
        patched.setattr(Client, "changed_jobs", interrupted)
        patched.setattr(EngineIndex, "add_chunks", held)
        done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code != 0
    assert "Interrupted. Stored: " in done.stderr
    again = corral("ingest", "farm", folder)
    assert again.exit_code == 0, again.output
    stored_first = re.search(r"; (\d+) unchanged", again.stdout)
    assert stored_first is not None
    assert 3 < int(stored_first[1]) < 100
    assert len(set(stored(corral)["document_ids"])) == 100
    assert "; 100 unchanged" in corral("ingest", "farm", folder).stdout


def test_a_synced_folder_deletes_what_is_gone(
    corral: Corral, documents: Path, tmp_path: Path
) -> None:
    """--sync deletes the documents of files that are gone, and no others; it says which.

    If this fails: documents of another folder, or of no folder, are deleted with them.
    """
    other = tmp_path / "other"
    other.mkdir()
    (other / "ditch.md").write_text("# Ditch\n\nIt is deep.")
    corral("ingest", "farm", documents, "--create")
    corral("ingest", "farm", other)
    (documents / "fences.md").unlink()
    (documents / "notes" / "gate.txt").unlink()
    asked = corral("ingest", "farm", documents, "--sync")
    assert asked.exit_code == 2
    assert "Not a terminal; pass --yes." in asked.stderr
    done = corral("ingest", "farm", documents, "--sync", "--yes")
    assert done.exit_code == 0, done.output
    assert "Gone from the folder: fences.md, notes/gate.txt" in done.stderr
    left = {*IDS, "ditch.md"} - {"fences.md", "notes/gate.txt"}
    assert set(stored(corral)["document_ids"]) == left


def test_all_that_a_sync_deletes_is_named(corral: Corral, tmp_path: Path) -> None:
    """However many documents it is, before the first one goes.

    If this fails: somebody agrees to delete 500 documents by the names of five.
    """
    folder = tmp_path / "herd"
    folder.mkdir()
    for number in range(12):
        (folder / f"cow{number:02}.md").write_text(f"Cow {number} eats hay.")
    corral("ingest", "farm", folder, "--create")
    for number in range(11):
        (folder / f"cow{number:02}.md").unlink()
    done = corral("ingest", "farm", folder, "--sync", "--yes")
    gone = ", ".join(f"cow{number:02}.md" for number in range(11))
    assert f"Gone from the folder: {gone}\n" in done.stderr
    assert stored(corral)["document_ids"] == ["cow11.md"]


def test_a_watched_folder_stays_in_step(home: Path, documents: Path, corral: Corral) -> None:
    """--watch puts new and changed files in until it is interrupted; --sync deletes.

    Ctrl-C is its regular end: exit code 0, nothing "aborted".
    """
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
    command += ["ingest", "farm", str(documents), "--create", "--watch", "--sync", "--yes"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert any(line.startswith("Watching") for line in process.stderr)
        (documents / "new.md").write_text("# New\n\nA new barn.")
        assert process.stdout.readline().startswith("farm: ingested 5 documents")
        assert process.stdout.readline().startswith("farm: ingested 1 document (")
        (documents / "new.md").unlink()
        assert process.stdout.readline() == "farm: deleted 1 document\n"
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "Aborted" in said) == (0, False)
    assert set(stored(corral)["document_ids"]) == set(IDS)


def test_failed_documents_are_listed_and_retried(corral: Corral, tmp_path: Path) -> None:
    """`corral jobs` says what became of each document, and tries the failed ones again."""
    folder = tmp_path / "farm"
    folder.mkdir()
    (folder / "a.txt").write_text("hay")
    (folder / "b.pdf").write_bytes(b"%PDF-1.4 and no more")
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 1
    listed = corral("jobs", "list", "farm", "--status", "failed", "--json")
    (failed,) = json.loads(listed.stdout)
    assert failed["document_id"] == "b.pdf"
    assert failed["error_message"]
    assert corral("ingest", "farm", folder).exit_code == 1  # it fails a second time
    again = corral("jobs", "retry", "farm")
    assert again.exit_code == 1
    assert again.stdout == "farm: retrying 1 job\n"
    assert again.stderr.count("Failed: b.pdf: ") == 1
    assert "Error: Documents that failed: 1." in again.stderr
    assert corral("jobs", "cancel", "farm").stdout == "farm: cancelled 0 jobs\n"
    assert "completed" in corral("jobs", "list", "farm").stdout


def test_many_files_go_in_batches_with_progress(corral: Corral, tmp_path: Path) -> None:
    """More files than a batch holds all arrive."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(70):
        (folder / f"{number}.txt").write_text(f"document number {number}")
    done = corral("ingest", "farm", folder, "--create")
    assert done.stdout.startswith("farm: ingested 70 documents")
    assert len(set(stored(corral)["document_ids"])) == 70


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
def test_a_terminal_sees_a_bar_with_a_count_and_a_rate(home: Path, documents: Path) -> None:
    """On a terminal a bar moves from 0 to all documents, and standard output stays for the result.

    If this fails: who ingests a large folder sees nothing until it is done.
    """
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    command = [sys.executable, "-m", "corral.server.cli.cli", "--home", str(home)]
    process = subprocess.Popen(
        [*command, "ingest", "farm", str(documents), "--create"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux says so where others end the file
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert said.startswith(b"farm: ingested 5 documents")
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "Ingesting" in seen
    assert "\u2501" in seen  # the bar
    assert re.search(r"\d+ chunks/s", seen)
    counts = [int(count) for count in re.findall(r"(\d+)/7 documents", seen)]  # two are left out
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == 7


@pytest.mark.parametrize("named", ["folder", "file"])
def test_no_path_of_the_machine_is_stored(
    corral: Corral, home: Path, documents: Path, tmp_path: Path, named: str
) -> None:
    """Ingested by absolute path, documents are named by their path within the folder.

    No answer, job, error, snapshot or file of the data folder holds the folder's own path.

    If this fails: everybody who asks learns the user names and folders of whoever ingested.
    """
    secret = tmp_path / "ann-private" / "farm"
    secret.parent.mkdir()
    documents.rename(secret)
    path = secret if named == "folder" else secret / "notes" / "gate.txt"
    assert corral("ingest", "farm", path, "--create").exit_code == 0
    question = ("query", "farm", "the gate opens", "-o", "citations=true", "--max-tokens", "400")
    name = "notes/gate.txt" if named == "folder" else "gate.txt"
    assert f"[1] Source: {name}, line 1" in corral(*question).stdout
    snapshot = tmp_path / "farm.snapshot"
    assert corral("export", "farm", snapshot).exit_code == 0
    answers = [
        corral(*question).output,
        cited := corral(*question, "--json").output,
        corral("documents", "list", "farm", "--names").output,
        corral("documents", "show", "farm", name, "--json").output,
        corral("jobs", "list", "farm", "--json").output,
        corral("dbs", "show", "farm", "--json").output,
    ]
    assert all(name in answer for answer in answers[:5])
    assert '"url": "http://127.0.0.1:8321/document?vector_db_id=farm&' in cited
    assert not [answer for answer in answers if "ann-private" in answer]
    stored = [snapshot, *(path for path in home.rglob("*") if path.is_file())]
    assert not [path for path in stored if b"ann-private" in path.read_bytes()]
    other = tmp_path / "other"
    (other / "notes").mkdir(parents=True)
    again = other / "notes" / "gate.txt"
    again.write_text("Another gate.")
    refused = corral("ingest", "farm", other if named == "folder" else again)
    assert "already stored from another place" in refused.stderr
    assert "ann-private" not in refused.output
