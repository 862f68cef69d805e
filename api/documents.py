"""Documents: the chunks of an index by the `document_id` in their metadata."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from corral.api.chunks import Chunk
from corral.api.document_names import title_of

READ_CHUNKS = 500
"""Chunks per read when code walks over an index."""


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """A stored document and its number of chunks."""

    document_id: str
    chunks: int


class DocumentOrder(StrEnum):
    """The order of a list of documents."""

    ID = "id"
    NAME = "name"
    SIZE = "size"
    CHUNKS = "chunks"
    UPDATED = "updated"


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """Selects a page of documents.

    Attributes:
        contains: Only documents with this in their name; upper and lower case are the same.
        order_by: Documents without a time come before those with one; ties are in order of id.
        descending: The reverse of the ascending order, ties included.
        offset: Number of documents to skip.
        limit: Maximum number of documents, >= 1.
    """

    contains: str = ""
    order_by: DocumentOrder = DocumentOrder.NAME
    descending: bool = False
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """A document in a list.

    Attributes:
        document_id: Its id.
        name: Its name by one of its chunks; see `document_names`.
        chunks: Number of its chunks.
        size: Bytes of its chunks' texts in UTF-8, overlaps included.
        updated_at: Unix seconds of its newest chunk; None if its chunks have no times.
    """

    document_id: str
    name: str
    chunks: int
    size: int
    updated_at: int | None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of documents, and the number of documents on all pages."""

    items: Sequence[DocumentSummary]
    total: int


_KEYS: dict[DocumentOrder, Callable[[DocumentSummary], Any]] = {
    DocumentOrder.ID: lambda one: one.document_id,
    DocumentOrder.NAME: lambda one: name_key(one.name),
    DocumentOrder.SIZE: lambda one: one.size,
    DocumentOrder.CHUNKS: lambda one: one.chunks,
    DocumentOrder.UPDATED: lambda one: (one.updated_at is not None, one.updated_at or 0),
}


def name_key(name: str) -> str:
    """Return a name as names are compared: without differences of case or width."""
    return unicodedata.normalize("NFKC", name).casefold()


def count_chunk(documents: dict[str, DocumentSummary], chunk: Chunk) -> None:
    """Add a chunk to its document in `documents`; the first chunk of a document names it."""
    if not (document_id := chunk.document_id):
        return
    size = len(chunk.content.encode("utf-8", "surrogatepass"))
    time = chunk.chunk_metadata.updated_timestamp if chunk.chunk_metadata else None
    before = documents.get(document_id) or DocumentSummary(document_id, title_of(chunk), 0, 0, None)
    times = [each for each in (before.updated_at, time) if each is not None]
    documents[document_id] = replace(
        before,
        chunks=before.chunks + 1,
        size=before.size + size,
        updated_at=max(times, default=None),
    )


def summaries(chunks: Iterable[Chunk]) -> list[DocumentSummary]:
    """Return the documents of chunks."""
    documents: dict[str, DocumentSummary] = {}
    for chunk in chunks:
        count_chunk(documents, chunk)
    return list(documents.values())


def page_of(documents: Iterable[DocumentSummary], query: DocumentQuery) -> DocumentPage:
    """Return the page of these documents that a query selects."""
    part, key = name_key(query.contains), _KEYS[query.order_by]
    selected = sorted(
        (one for one in documents if part in name_key(one.name)),
        key=lambda one: (key(one), one.document_id),
        reverse=query.descending,
    )
    return DocumentPage(selected[query.offset : query.offset + query.limit], len(selected))
