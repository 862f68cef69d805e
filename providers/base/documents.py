"""Documents of a vector DB: list, read and delete them, change their acl and attributes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.chunks import Chunk
from corral.api.documents import READ_CHUNKS, DocumentCount
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.principal import UNRESTRICTED
from corral.api.scope import Scope
from corral.providers.base.document_names import title_of

_OF_EACH_CHUNK = ("document_id", "token_count", "metadata_token_count")
_RESERVED = frozenset({*_OF_EACH_CHUNK, "file_id", "filename"})
"""Metadata keys that ingestion writes into each chunk; attributes cannot change them."""


@dataclass(frozen=True, slots=True)
class Page:
    """A range of a document's chunks, in document order; `offset` counts from 0."""

    offset: int
    limit: int


WHOLE = Page(0, sys.maxsize)
"""All chunks of a document."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of documents; the next page starts after `last_id`, "" on an empty page."""

    items: Sequence[DocumentCount]
    has_more: bool

    @property
    def last_id(self) -> str:
        """The id to start the next page after."""
        return self.items[-1].document_id if self.items else ""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document.

    Attributes:
        chunk_count: Number of all its chunks.
        metadata: The metadata of its first chunk, without that chunk's counts.
        chunks: The requested chunks, in document order; with embeddings only on request.
    """

    chunk_count: int
    metadata: dict[str, Any]
    chunks: Sequence[Chunk]


async def list_documents(index: EmbeddingIndex, after: str, limit: int) -> Listed:
    """Return the first `limit` documents whose ids follow `after`, ascending."""
    found = await index.documents(after, limit + 1)
    return Listed(found[:limit], len(found) > limit)


async def names_of(index: EmbeddingIndex, document_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of documents by id; see `document_names` for the rules.

    Reads the chunk ids of each document, and one of its chunks.
    """
    found = _first_chunks(index, document_ids)
    return {chunk.document_id or "": title_of(chunk) async for chunk in found}


async def origins_of(index: EmbeddingIndex) -> dict[str, str | None]:
    """Return the `origin` of every document by id; None for a document without one.

    Reads the chunk ids of each document, and one of its chunks: all have the same origin.
    """
    origins: dict[str, str | None] = {}
    async for page in all_documents(index):
        async for chunk in _first_chunks(index, [each.document_id for each in page]):
            record = chunk.chunk_metadata
            origins[chunk.document_id or ""] = record.document_origin if record else None
    return origins


async def _first_chunks(index: EmbeddingIndex, document_ids: Sequence[str]) -> AsyncIterator[Chunk]:
    """Yield a chunk of each document that exists."""
    firsts = [ids[0] for each in document_ids if (ids := await index.document_chunk_ids(each))]
    async for chunk in chunks_by_id(index, firsts):
        yield chunk


async def count_documents(index: EmbeddingIndex) -> int:
    """Return the number of documents; see `EmbeddingIndex.documents` for the cost."""
    return sum([len(page) async for page in all_documents(index)])


async def all_documents(index: EmbeddingIndex) -> AsyncIterator[Sequence[DocumentCount]]:
    """Yield all documents by id, in large pages."""
    after = ""
    while page := await index.documents(after, READ_CHUNKS * 100):
        yield page
        after = page[-1].document_id


def unknown_document(vector_db_id: str, document_id: str, hint: str = "") -> NotFound:
    """Return the error for a document that does not exist, or that the caller may not read."""
    return NotFound(
        f"There is no document {document_id!r} in vector DB {vector_db_id!r}.",
        hint=hint,
        field="document_id",
    )


async def read_document(
    index: EmbeddingIndex, document_id: str, page: Page, *, include_embeddings: bool = False
) -> StoredDocument | None:
    """Return a document, or None if it has no chunks."""
    ids = await index.document_chunk_ids(document_id)
    found = chunks_by_id(index, ids, include_embeddings=include_embeddings)
    chunks = [chunk async for chunk in found]
    if not chunks:
        return None
    chunks.sort(key=_place)
    metadata = {k: v for k, v in chunks[0].metadata.items() if k not in _OF_EACH_CHUNK}
    return StoredDocument(len(chunks), metadata, chunks[page.offset : page.offset + page.limit])


async def delete_document(index: EmbeddingIndex, document_id: str) -> int:
    """Delete a document in one write and return its number of chunks; 0 if it is unknown."""
    ids = await index.document_chunk_ids(document_id)
    if ids:
        await index.add_chunks([], replace_documents=[document_id])
    return len(ids)


async def change_acl(index: EmbeddingIndex, document_id: str, acl: Sequence[str] | None) -> int:
    """Give a document's chunks another acl in one write; return their number, 0 if unknown.

    Args:
        index: The principal's view; only visible chunks are changed.
        acl: Tokens; None for the vector DB's default.
    """
    return await index.set_acl(await index.document_chunk_ids(document_id), acl)


async def change_attributes(
    index: EmbeddingIndex, document_id: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> int:
    """Replace the attributes of a document's chunks in one write; return the number of chunks.

    Texts and embeddings do not change.
    """

    def changed(chunk: Chunk) -> Chunk:
        kept = {k: v for k, v in chunk.metadata.items() if k in _RESERVED or k not in old}
        reserved = {k: v for k, v in kept.items() if k in _RESERVED}
        return chunk.model_copy(update={"metadata": {**kept, **new, **reserved}})

    return await index.change_document(document_id, changed)


def acls_of(chunks: Iterable[Chunk], default: Sequence[str]) -> dict[str, set[str]]:
    """Return the tokens that allow reading each document: the union over its chunks."""
    scope, found = Scope(UNRESTRICTED, default), dict[str, set[str]]()
    for chunk in chunks:
        acl = scope.shown(chunk).acl
        found.setdefault(chunk.document_id or "", set()).update(default if acl is None else acl)
    return found


async def stored_acl(index: EmbeddingIndex, document_id: str) -> set[str] | None:
    """Return the tokens that allow reading a document, or None if it has no chunks.

    Args:
        index: An admin's view of the index.
    """
    ids, acl = await index.document_chunk_ids(document_id), set[str]()
    async for chunk in chunks_by_id(index, ids):
        acl.update(*acls_of([chunk], index.vector_db.default_acl).values())
    return acl if ids else None


async def chunks_by_id(
    index: EmbeddingIndex, chunk_ids: Sequence[str], *, include_embeddings: bool = False
) -> AsyncIterator[Chunk]:
    """Yield chunks in the order of `chunk_ids`, read `READ_CHUNKS` at a time."""
    for start in range(0, len(chunk_ids), READ_CHUNKS):
        page = chunk_ids[start : start + READ_CHUNKS]
        for chunk in await index.get_chunks(page, include_embeddings=include_embeddings):
            yield chunk


def _place(chunk: Chunk) -> tuple[int, str]:
    recorded = chunk.chunk_metadata
    position = recorded.position if recorded else None
    return (0 if position is None else position, chunk.chunk_id)
