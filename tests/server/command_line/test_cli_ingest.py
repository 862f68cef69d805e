"""`corral ingest`: which files go in, under which ids, and what happens to bad ones."""

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

import docx
import pytest
from click.testing import Result

from corral.api.embedding_index import EmbeddingIndex
from corral.providers.ingestion import work
from corral.server.command_line.client import Client
from corral.server.command_line.files import BINARY_TYPES, Report, collect, read_document

Corral = Callable[..., Result]

IDS = ["blåbær.markdown", "fences.md", "notes/deep/water.rst", "notes/gate.txt", "page.html"]


def stored(corral: Corral, question: str = "the water in the barn") -> dict[str, list[object]]:
    """Return the metadata of a query that finds every chunk."""
    shown = corral("query", "farm", question, "--mode", "vector", "--k", "100", "--json")
    assert shown.exit_code == 0, shown.output
    metadata: dict[str, list[object]] = json.loads(shown.stdout)["metadata"]
    return metadata


def test_a_folder_goes_in_with_stable_ids(corral: Corral, documents: Path) -> None:
    """Each document once, under its path relative to the folder; what is left out is said."""
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("farm: ingested 5 documents (")
    assert sorted(map(str, stored(corral)["document_ids"])) == IDS
    for reason, name in {
        "hidden": ".git/",
        "empty": "empty.md",
        "binary": "binary.txt",
        "type .png": "picture.png",
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
    """The source is the path as it was named; the title is the heading, else the file's name."""
    monkeypatch.chdir(documents.parent)
    corral("ingest", "farm", "documents", "--create")
    shown = corral("query", "farm", "posts", "--mode", "keyword", "--max-tokens", "200").stdout
    assert '"source":"documents/fences.md"' in shown
    assert '"title":"Fences"' in shown
    shown = corral("query", "farm", "latched", "--mode", "keyword", "--max-tokens", "200").stdout
    assert '"title":"gate"' in shown


def test_a_file_named_itself_is_taken(corral: Corral, documents: Path) -> None:
    """A single file's id is its name, and naming a hidden one is reason enough to take it."""
    gate, hidden = documents / "notes" / "gate.txt", documents / ".hidden.md"
    assert corral("ingest", "farm", gate, hidden, "--create").exit_code == 0
    assert set(stored(corral)["document_ids"]) == {"gate.txt", ".hidden.md"}


def test_a_bad_file_is_reported_and_the_rest_goes_on(corral: Corral, documents: Path) -> None:
    """Unreadable files and files that the server refuses are named; exit code 1; the rest is in."""
    (documents / "broken.txt").write_bytes(b"bl\x81b\x8dr")
    long = documents / ("d" * 120) / ("e" * 120)
    long.mkdir(parents=True)
    (long / f"{'f' * 30}.txt").write_text("an id of more than 255 characters")
    (documents / "dangling.md").symlink_to("nowhere.md")
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 1
    failed = [line for line in done.stderr.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 3
    assert any("broken.txt: not text in windows-1252" in line for line in failed)
    assert any("255" in line for line in failed)
    assert any("dangling.md: not a regular file" in line for line in failed)
    assert "Files that were not ingested: 3." in done.stderr
    assert sorted(map(str, stored(corral)["document_ids"])) == IDS


def test_an_unknown_type_that_is_named_is_a_failure(corral: Corral, documents: Path) -> None:
    """What was asked for and cannot go in is no silent skip."""
    done = corral("ingest", "farm", documents / "picture.png", documents / "fences.md", "--create")
    assert done.exit_code == 1
    assert "picture.png: unknown type" in done.stderr
    assert set(stored(corral)["document_ids"]) == {"fences.md"}


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
    assert "fences.md' is stored already, from another place" in refused.stderr
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


@pytest.mark.parametrize(
    ("encoding", "noted"),
    [("utf-8-sig", None), ("utf-16", None), ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"),
     ("latin-1", "windows-1252"), ("windows-1252", "windows-1252")],
)  # fmt: skip
def test_text_in_other_encodings_goes_in(
    corral: Corral, tmp_path: Path, encoding: str, noted: str | None
) -> None:
    """What is not certain is noted."""
    (tmp_path / "bær.txt").write_bytes("Blåbær vokser i skogen.\n".encode(encoding))
    done = corral("ingest", "farm", tmp_path / "bær.txt", "--create")
    assert done.exit_code == 0, done.output
    assert ("read as" in done.stderr) == (noted is not None)
    assert f"read as {noted or ''}" in done.stderr or noted is None
    assert "Blåbær vokser" in str(stored(corral)["chunks"])


def test_the_encoding_can_be_named(corral: Corral, tmp_path: Path) -> None:
    """On the command line, or by an HTML page itself."""
    (tmp_path / "cow.txt").write_bytes("Корова ест траву.".encode("koi8-r"))
    page = '<html><head><meta charset="koi8-r"></head><body><p>Овца ест сено.</p></body></html>'
    (tmp_path / "sheep.htm").write_bytes(page.encode("koi8-r"))
    corral("ingest", "farm", tmp_path / "sheep.htm", "--create")
    done = corral("ingest", "farm", tmp_path / "cow.txt", "--encoding", "koi8-r")
    assert "read as" not in done.stderr
    texts = str(stored(corral)["chunks"])
    assert "Корова ест траву" in texts
    assert "Овца ест сено" in texts
    assert corral("ingest", "farm", tmp_path, "--encoding", "rot13").exit_code == 2


def test_more_types_go_in_and_others_can_be_insisted_on(corral: Corral, tmp_path: Path) -> None:
    """Code and data are text; --as-text takes what the table of types does not have."""
    folder = tmp_path / "farm"
    folder.mkdir()
    known = ["a.htm", "a.py", "a.csv", "a.json", "a.yaml"]
    for name in [*known, "a.log", "NOTES", "a.bin"]:
        (folder / name).write_text(f"grass and {name}")
    corral("ingest", "farm", folder, "--create")
    assert set(stored(corral)["document_ids"]) == set(known)
    corral("ingest", "farm", folder, "--as-text", "*.log", "--as-text", "NOTES")
    assert set(stored(corral)["document_ids"]) == {*known, "a.log", "NOTES"}


def test_links_that_lead_out_are_not_followed(
    corral: Corral, documents: Path, tmp_path: Path
) -> None:
    """Neither to files nor to folders, and both are said; a link that is named itself is taken.

    If this fails: a link in a folder puts any file of this machine into the vector DB.
    """
    secret, other = tmp_path / "secret.txt", tmp_path / "other"
    secret.write_text("the secret of the barn")
    other.mkdir()
    (other / "more.txt").write_text("more secrets")
    (documents / "link.txt").symlink_to(secret)
    (documents / "folder").symlink_to(other)
    (documents / "inside.md").symlink_to(documents / ".hidden.md")
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 0, done.output
    assert sorted(map(str, stored(corral)["document_ids"])) == sorted([*IDS, "inside.md"])
    for reason, name in {
        "link out of the folder": "link.txt",
        "link to a folder": "folder/",
    }.items():
        line = next(line for line in done.stderr.splitlines() if f"({reason})" in line)
        assert name in line
    corral("ingest", "farm", documents / "link.txt")
    assert "link.txt" in stored(corral)["document_ids"]


def test_too_large_files_are_refused_first(
    corral: Corral, home: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent, with the setting that says so; the rest goes in."""
    with (home / "run.yaml").open("a") as config:
        config.write("rag: {document_limits: {max_characters: 1000}}\n")
        config.write("server: {limits: {max_body_mib: 0.1}}\n")
    (documents / "long.txt").write_text("hay " * 300)
    (documents / "heavy.pdf").write_bytes(b"%PDF" + b"x" * 90_000)
    (documents / "short.txt").write_text("å" * 600)
    sent: list[str] = []
    submit = Client.submit

    async def watched(self: Client, db: str, bodies: Any, *rest: Any, **more: Any) -> Any:
        sent.extend(body["document_id"] for body in bodies)
        return await submit(self, db, bodies, *rest, **more)

    monkeypatch.setattr(Client, "submit", watched)
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 1
    assert "long.txt: its 1,200 characters" in done.stderr
    assert "rag.document_limits.max_characters is 1,000" in done.stderr
    assert "heavy.pdf: its 0.1 MiB" in done.stderr
    assert "server.limits.max_body_mib is 0.1" in done.stderr
    assert sorted(sent) == sorted([*IDS, "short.txt"])


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
    changed, add = Client.changed_jobs, EmbeddingIndex.add_chunks
    calls = iter(range(1000))

    async def held(self: EmbeddingIndex, *given: Any, **more: Any) -> None:
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
        patched.setattr(EmbeddingIndex, "add_chunks", held)
        patched.setattr(work, "STORE_SECONDS", 0.1)  # nobody waits for what is held
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


def git_says(folder: Path, *lines: str) -> None:
    """Write a .gitignore."""
    (folder / ".gitignore").write_text("\n".join(lines))


def test_what_git_ignores_stays_out(corral: Corral, tmp_path: Path) -> None:
    """By the .gitignore of the folder, of its subfolders and of the repository around it.

    The nearest one decides. --no-ignore takes all of it.

    If this fails: a build folder or a secret that git does not know goes in.
    """
    repository = tmp_path / "repository"
    folder = repository / "docs"
    for name in ("a.md", "build/b.md", "sub/c.md", "sub/d.md", "sub/keep/d.md", "secret.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"hay in {name}")
    (repository / ".git").mkdir()
    git_says(repository, "secret*", "/docs/nothing")
    git_says(folder, "build/", "d.md")
    git_says(folder / "sub" / "keep", "!d.md")
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 0, done.output
    assert set(stored(corral)["document_ids"]) == {"a.md", "sub/c.md", "sub/keep/d.md"}
    assert "Skipped (ignored by .gitignore): " in done.stderr
    corral("ingest", "farm", folder, "--no-ignore")
    assert len(set(stored(corral)["document_ids"])) == 6


def test_globs_choose_files(corral: Corral, documents: Path) -> None:
    """--include takes only what matches, --exclude leaves out, --hidden takes dot files."""
    corral("ingest", "farm", documents, "--create", "--include", "*.md", "--include", "notes/**")
    ids = {"fences.md", "notes/gate.txt", "notes/deep/water.rst"}
    assert set(stored(corral)["document_ids"]) == ids
    corral("ingest", "farm", documents, "--exclude", "page.html", "--hidden")
    ids |= {"blåbær.markdown", ".hidden.md"}
    assert set(stored(corral)["document_ids"]) == ids


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


def test_a_watched_folder_stays_in_step(home: Path, documents: Path, corral: Corral) -> None:
    """--watch puts new and changed files in until it is interrupted; --sync deletes.

    Ctrl-C is its regular end: exit code 0, nothing "aborted".
    """
    command = [sys.executable, "-m", "corral.server.command_line.cli", "--home", str(home)]
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


def test_what_a_file_holds_beside_text_is_noted(corral: Corral, tmp_path: Path) -> None:
    """Comments of a Word file are not read, and that is said."""
    document = docx.Document()
    runs = [document.add_paragraph("The gate is green.").runs[0]]
    document.add_comment(runs, text="Is it?", author="Ada")
    document.save(str(tmp_path / "gate.docx"))
    done = corral("ingest", "farm", tmp_path / "gate.docx", "--create")
    assert done.exit_code == 0, done.output
    assert "gate.docx: not read: comments" in done.stderr


def test_the_same_file_named_twice_is_one(corral: Corral, documents: Path) -> None:
    """A file and its folder may be named together."""
    done = corral("ingest", "farm", documents, documents / "fences.md", "--create")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("farm: ingested 5 documents")


def test_nothing_to_ingest_is_an_error(corral: Corral, tmp_path: Path) -> None:
    """An empty folder and a path that is not there: exit code 2."""
    (tmp_path / "void").mkdir()
    assert corral("ingest", "farm", tmp_path / "void", "--create").exit_code == 2
    missing = corral("ingest", "farm", tmp_path / "nowhere", "--create")
    assert missing.exit_code == 2
    assert "nowhere" in missing.stderr


@pytest.mark.parametrize("suffix", sorted(BINARY_TYPES))
def test_binary_formats_travel_as_data_uris(tmp_path: Path, suffix: str) -> None:
    """A PDF or Word file is sent as base64 with its MIME type, for the server to parse."""
    file = tmp_path / f"paper{suffix.upper()}"
    file.write_bytes(b"%PDF \0\1")
    document = read_document(collect([file], Report())[0])
    assert document["content"] == {"uri": f"data:{BINARY_TYPES[suffix]};base64,JVBERiAAAQ=="}
    assert document["mime_type"] == BINARY_TYPES[suffix]


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
    command = [sys.executable, "-m", "corral.server.command_line.cli", "--home", str(home)]
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


def test_a_word_document_is_found_by_what_it_says(corral: Corral, tmp_path: Path) -> None:
    """A .docx of some size goes in by the same command and is found by its text."""
    document = docx.Document()
    document.add_heading("The herd at night", level=1)
    for number in range(200):
        document.add_paragraph(f"Paragraph {number} says nothing of interest, at length.")
    document.add_paragraph("The shepherd counts the zebras twice.")
    document.save(str(tmp_path / "night.docx"))
    done = corral("ingest", "notes", tmp_path / "night.docx", "--create")
    assert done.exit_code == 0, done.output
    found = corral("query", "notes", "who counts zebras?", "--mode", "keyword", "--json")
    assert "counts the zebras twice" in found.output
