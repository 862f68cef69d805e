"""Names of documents: one precedence, and no folder of anybody's machine."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.document_names import cited_name, filename_of, public_source, title_of

URL = "https://farm.example/fences"


def chunk(metadata: dict[str, Any], **record: Any) -> Chunk:
    """Return a chunk with this metadata and record."""
    return Chunk(chunk_id="c", content="hay", metadata=metadata, chunk_metadata=record or None)


@pytest.mark.parametrize(
    ("metadata", "record", "title", "filename", "cited"),
    [
        ({"title": "Fences", "filename": "fence.md", "document_id": "file-1"}, {},
         "Fences (fence.md)", "fence.md", "Fences (fence.md)"),
        ({"filename": "fence.txt", "document_id": "file-1"}, {},
         "fence.txt", "fence.txt", "fence.txt"),
        ({"document_id": "file-1"}, {"filename": "fence.txt"},
         "fence.txt", "fence.txt", "fence.txt"),
        ({"title": "fence", "source": "notes/fence.txt", "document_id": "d"}, {},
         "notes/fence.txt", "notes/fence.txt", "notes/fence.txt"),
        ({"title": "Fences", "source": "wiki", "document_id": "d"}, {"source": URL},
         "Fences", URL, f"Fences ({URL})"),
        ({"title": "Fences", "document_id": "d"}, {}, "Fences", "Fences", "Fences"),
        ({"source": "/home/ann/farm/fence.md", "document_id": "d"}, {},
         "fence.md", "fence.md", "fence.md"),
        ({"title": 7, "filename": "", "source": None, "document_id": "d"}, {}, "d", "d", "d"),
        ({}, {}, "c", "c", "unknown"),
    ],
)  # fmt: skip
def test_the_precedence_is_title_file_source_id(
    metadata: dict[str, Any], record: dict[str, Any], title: str, filename: str, cited: str
) -> None:
    """Title and file, file, source, id; a title that only repeats the file's name is none.

    If this fails: the same document has another name in each answer, or one that nobody knows.
    """
    one = chunk(metadata, **record)
    assert (title_of(one), filename_of(one), cited_name(one)) == (title, filename, cited)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("/home/ann/notes/fence.md", "fence.md"),
        ("/home/ann/notes/", "notes"),
        ("~/notes/fence.md", "fence.md"),
        ("~ann/fence.md", "fence.md"),
        ("C:\\Users\\ann\\fence.md", "fence.md"),
        ("C:/Users/ann/fence.md", "fence.md"),
        ("\\\\server\\share\\fence.md", "fence.md"),
        ("file:///home/ann/my%20fence.md", "my fence.md"),
        ("FILE://localhost/home/ann/fence.md", "fence.md"),
        ("file:/home/ann/fence.md", "fence.md"),
        ("file://[x/fence.md", "fence.md"),
        ("file:C:\\ann\\fence.md", "fence.md"),
        ("notes/fence.md", "notes/fence.md"),
        ("~draft.md", "~draft.md"),
        ("https://farm.example/home/ann", "https://farm.example/home/ann"),
        ("s3://bucket/fence.md", "s3://bucket/fence.md"),
        ("c: drive", "c: drive"),
        ("/", None),
        ("", None),
        (None, None),
    ],
)
def test_a_source_names_no_folder_of_a_machine(source: str | None, shown: str | None) -> None:
    """Of an absolute path or a `file:` URL, only the last part is left; other sources stay.

    If this fails: answers tell strangers the user names and folders of whoever ingested.
    """
    assert public_source(source) == shown
