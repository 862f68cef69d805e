"""`corral ingest`: which files go in, how they are read, and what happens to bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pytest
from click.testing import Result

from corral.providers.ingestion.read.detecting import BINARY, SUFFIXES
from corral.server.cli import ingesting
from corral.server.cli.client import Client
from corral.server.cli.failures import CommandError
from corral.server.cli.files import (
    ReadOptions,
    Report,
    collect,
    read_document,
    within_limits,
)
from corral.server.cli.ingesting import _reason

from .stored_documents import IDS, stored

Corral = Callable[..., Result]


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
    assert "picture.png: Corral does not read this kind: a picture" in done.stderr
    assert set(stored(corral)["document_ids"]) == {"fences.md"}


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


def test_a_pattern_makes_any_file_plain_text(corral: Corral, tmp_path: Path) -> None:
    """--as-text takes a file that its name leaves out, and a page as it is written."""
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm" / "barn.lock").write_text("The barn is locked at night.")
    (tmp_path / "farm" / "page.html").write_text("<html><p>Hay</p></html>")
    corral("ingest", "farm", tmp_path / "farm", "--create", "--as-text", "*.lock")
    assert set(stored(corral)["document_ids"]) == {"barn.lock", "page.html"}
    corral("ingest", "farm", tmp_path / "farm", "--as-text", "*")
    assert "<p>Hay</p>" in str(stored(corral)["chunks"])


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


def git_says(folder: Path, *lines: str) -> None:
    """Write a .gitignore."""
    (folder / ".gitignore").write_text("\n".join(lines))


def test_a_file_that_goes_meanwhile_stops_no_other(
    corral: Corral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is deleted while a folder is read is left out, or told; the others go in.

    If this fails: the temporary file of an editor ends `corral ingest --watch`.
    """
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("kept", "seen", "early"):
        (folder / f"{name}.txt").write_text(name)
    mime_type = ReadOptions.mime_type

    def at_first_sight(self: ReadOptions, path: Path) -> str | None:
        if path.name == "early.txt":
            path.unlink(missing_ok=True)
        return mime_type(self, path)

    def once_collected(*given: Any) -> Any:
        (folder / "seen.txt").unlink()
        return within_limits(*given)

    monkeypatch.setattr(ReadOptions, "mime_type", at_first_sight)
    monkeypatch.setattr(ingesting, "within_limits", once_collected)
    done = corral("ingest", "farm", folder, "--create")
    assert "farm: ingested 1 document " in done.stdout
    assert "seen.txt: cannot be read: No such file" in done.stderr
    assert "early.txt" not in done.stderr


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
    assert "Skipped (ignored by .gitignore; --no-ignore takes it): " in done.stderr
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


@pytest.mark.parametrize("suffix", [s for s, kind in SUFFIXES.items() if kind in BINARY])
def test_binary_formats_travel_as_data_uris(tmp_path: Path, suffix: str) -> None:
    """A PDF or Word file is sent as base64 with its MIME type, for the server to parse."""
    file = tmp_path / f"paper{suffix.upper()}"
    file.write_bytes(b"%PDF \0\1")
    document = read_document(collect([file], Report())[0])
    assert document["content"] == {"uri": f"data:{SUFFIXES[suffix]};base64,JVBERiAAAQ=="}
    assert document["mime_type"] == SUFFIXES[suffix]


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


def test_a_pdf_is_one_whatever_its_name(tmp_path: Path) -> None:
    """What begins as a PDF is sent as such, under the name of a text too.

    If this fails: its chunks are `%PDF-1.4` and what follows.
    """
    (tmp_path / "p.txt").write_bytes(b"%PDF-1.4\n1 0 obj\nendobj\n")
    [file] = collect([tmp_path], Report())
    document = read_document(file)
    assert document["mime_type"] == "application/pdf"
    assert document["content"]["uri"].startswith("data:application/pdf;base64,")


PAGE = "<!DOCTYPE html><html><head><title>Wool</title></head><body><p>Warm.</p></body></html>"


def test_a_web_page_is_one_whatever_its_name(tmp_path: Path) -> None:
    """What begins as HTML is sent as such, under the name of a text or without a suffix too.

    The page has its own title then. Who insists on text gets text.

    If this fails: tags and scripts are in the chunks of a page that was saved as .txt.
    """
    for name in ("a.txt", "b.md", "c", "d.2024"):
        (tmp_path / name).write_text(PAGE, "utf-8-sig" if name == "b.md" else "utf-8")
    files = collect([tmp_path], Report())
    documents = [read_document(file) for file in files]
    assert [each["mime_type"] for each in documents] == ["text/html"] * 4
    assert not any("title" in each["metadata"] for each in documents)
    assert all(each["content"].startswith("<!DOCTYPE") for each in documents)
    insisted = ReadOptions(as_text=("*",))
    [*files] = collect([tmp_path], Report(), insisted)
    assert {read_document(file, insisted)["mime_type"] for file in files} == {"text/plain"}


def test_only_a_document_from_another_folder_is_told_how_to_replace_it() -> None:
    """Any other conflict keeps its own advice."""
    changed = CommandError("The model is another one.", hint="Embed it again.", status=409)
    assert _reason(changed) == "The model is another one. Embed it again."
    other = CommandError("Document 'a' is already stored from another place.", status=409)
    assert _reason(other).endswith("--replace.")


def test_a_notebook_goes_in_by_its_cells(corral: Corral, tmp_path: Path) -> None:
    """Of a folder, a notebook is taken and its cells are stored; a broken one fails by itself.

    If this fails: look at `SUFFIXES` in `providers/ingestion/read/detecting.py`; notebooks are
    skipped.
    """
    cells = [
        {"cell_type": "markdown", "source": ["# Sheep\n", "The ewe eats grass."]},
        {"cell_type": "code", "source": "count = 42", "outputs": []},
    ]
    folder = tmp_path / "farm"
    folder.mkdir()
    whole = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (folder / "sheep.ipynb").write_text(whole)
    (folder / "broken.ipynb").write_text("{")
    done = corral("ingest", "farm", folder, "--create")
    assert done.exit_code == 1
    assert "broken.ipynb: " in done.stderr
    assert "The notebook cannot be read: it is not valid JSON at line 1" in done.stderr
    found = stored(corral)
    assert set(found["document_ids"]) == {"sheep.ipynb"}
    assert "count = 42" in str(found["chunks"])
    assert "cell_type" not in str(found["chunks"])
