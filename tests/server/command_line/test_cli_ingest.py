"""`corral ingest`: which files go in, under which ids, and what happens to bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from click.testing import Result

from corral.server.command_line.ingest import BINARY_TYPES, Report, collect, read_document

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
    (documents / "latin.txt").write_bytes("blåbær".encode("latin-1"))
    long = documents / ("d" * 120) / ("e" * 120)
    long.mkdir(parents=True)
    (long / f"{'f' * 30}.txt").write_text("an id of more than 255 characters")
    (documents / "dangling.md").symlink_to("nowhere.md")
    done = corral("ingest", "farm", documents, "--create")
    assert done.exit_code == 1
    failed = [line for line in done.stderr.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 3
    assert any("latin.txt: not UTF-8" in line for line in failed)
    assert any("255" in line for line in failed)
    assert any("dangling.md: is no file" in line for line in failed)
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
