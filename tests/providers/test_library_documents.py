"""The library's documents and files, and what a notebook shows of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import corral.providers.library as corral
from corral.api.errors import InvalidRequest, NotFound

from .test_library import HASHING, TEXTS


def test_documents_are_listed_read_and_deleted(tmp_path: Path) -> None:
    """Without an event loop: what was inserted is listed, read with its chunks, and deleted.

    If this fails: compare with `Corral`, of which `SyncCorral` is the twin.
    """
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        herd.insert("notes", TEXTS)
        words = " ".join(f"word{number}" for number in range(300))
        sizes = {"chunk_size_in_tokens": 64, "overlap_in_tokens": 0}
        many = herd.insert("notes", {"long.txt": words}, **sizes).chunks["long.txt"]
        assert many > 5
        again = herd.insert("notes", {"long.txt": words}, skip_unchanged=True, **sizes)
        assert again.unchanged == ["long.txt"]
        listed = [(each.document_id, each.chunks) for each in herd.documents("notes")]
        assert listed == [("barn.md", 1), ("fence.md", 1), ("long.txt", many)]
        found = herd.document("notes", "fence.md")
        assert [chunk.content for chunk in found.chunks] == ["A fence keeps the sheep in."]
        assert herd.delete_document("notes", "long.txt") == many
        assert len(herd.documents("notes")) == 2
        for call in (herd.document, herd.delete_document):
            with pytest.raises(NotFound, match=r"There is no document 'long\.txt'"):
                call("notes", "long.txt")


async def test_files_of_this_machine_become_documents(tmp_path: Path) -> None:
    """Each is a document under its name, with the metadata and the title that are given.

    If this fails: look at `_file_document` in `providers/library/__init__.py`.
    """
    gate, hay = tmp_path / "gate.txt", tmp_path / "hay.md"
    gate.write_text("The gate opens inward.", encoding="utf-8")
    hay.write_text("# Hay\n\nHay is stored dry.", encoding="utf-8")
    async with corral.open(tmp_path / "home", HASHING) as herd:
        await herd.register("notes")
        stored = await herd.insert_files("notes", gate, str(hay), metadata={"year": 2026})
        assert stored.chunks == {"gate.txt": 1, "hay.md": 1}
        about = (await herd.document("notes", "gate.txt")).metadata
        assert (about["title"], about["year"], about["source"]) == ("gate", 2026, "gate.txt")
        assert (await herd.document("notes", "hay.md")).metadata["title"] == "Hay"
        await herd.insert_files("notes", gate, title="The gate", chunk_size_in_tokens=64)
        assert (await herd.document("notes", "gate.txt")).metadata["title"] == "The gate"
        refusals: list[tuple[list[Any], dict[str, Any], str]] = [
            ([gate, hay], {"title": "Both"}, r"title is for one file \(got 2\)"),
            ([tmp_path / "none.txt"], {}, "none.txt cannot be read: No such file"),
            ([gate], {"chunk_size": 3}, "chunk_size is not a known"),
            ([gate, gate], {}, "gate.txt"),
        ]
        for paths, options, said in refusals:
            with pytest.raises(InvalidRequest, match=said):
                await herd.insert_files("notes", *paths, **options)
        assert len(await herd.documents("notes")) == 2


def test_uploaded_files_are_added_listed_read_and_deleted(tmp_path: Path) -> None:
    """They are the files that the server's /v1/files has."""
    gate = tmp_path / "gate.txt"
    gate.write_bytes(b"The gate opens inward.")
    with corral.open_sync(tmp_path / "home", HASHING) as herd:
        assert herd.files() == []
        first, second = herd.add_file(gate), herd.add_file(str(gate), purpose="user_data")
        assert (first.filename, first.purpose, first.bytes) == ("gate.txt", "assistants", 22)
        assert herd.files() == [first, second]
        assert herd.file(first.file_id) == first
        assert herd.read_file(first.file_id) == b"The gate opens inward."
        herd.delete_file(first.file_id)
        assert herd.files() == [second]
        for call in (herd.file, herd.read_file, herd.delete_file):
            with pytest.raises(NotFound, match=first.file_id):
                call(first.file_id)


def test_a_notebook_shows_hits_and_contexts_escaped(tmp_path: Path) -> None:
    """Hits are a table, a context is its text; nothing of a document becomes markup.

    If this fails: look at `_repr_html_` in `api/hits.py` and `api/rag.py`. A document runs a script
    in the notebook of whoever searches it.
    """
    evil = "<script>alert('fence')</script> & a fence"
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes", search_mode="keyword")
        herd.insert("notes", {"<b>fence</b>": evil, "barn.md": "The barn is red."})
        found, context = herd.query("fence", "notes"), herd.ask("fence", "notes")
        nothing = herd.query("xyzzy", "notes"), herd.ask("xyzzy", "notes")
    for shown in (found, found.hits[0], context):
        html = shown._repr_html_()
        assert "&lt;script&gt;alert" in html
        assert "<script" not in html
        assert "<b>" not in html
    assert "<td" in found._repr_html_()
    assert f"{found.hits[0].score:.3f}" in found._repr_html_()
    assert "of 4096 tokens" in context._repr_html_()
    assert all("Nothing found." in shown._repr_html_() for shown in nothing)
