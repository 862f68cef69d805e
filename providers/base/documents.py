"""List, read and delete the documents of a vector DB, and change their ACLs and attributes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.api.checks import MAX_K
from corral.api.chunks import Chunk
from corral.api.documents import READ_CHUNKS, DocumentCount
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.filters import MAX_VALUES
from corral.api.principal import UNRESTRICTED
from corral.api.scope import Scope
from corral.api.vector_dbs import SearchMode

_OF_EACH_CHUNK = ("document_id", "token_count", "metadata_token_count")
MAX_CONCURRENT_READS = 25
"""Maximum reads of chunk ids at once."""

RESERVED = frozenset({*_OF_EACH_CHUNK, "file_id", "filename", "part_of", "parts"})
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


async def first_chunks_of(index: EmbeddingIndex, document_ids: Sequence[str]) -> dict[str, Chunk]:
    """Return a chunk of each document that exists, by document id.

    Reads the chunk ids of each document, and one of its chunks.
    """
    return {chunk.document_id or "": chunk async for chunk in _first_chunks(index, document_ids)}


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
    firsts: list[str] = []
    for start in range(0, len(document_ids), MAX_CONCURRENT_READS):
        some = document_ids[start : start + MAX_CONCURRENT_READS]
        listed = await asyncio.gather(*map(index.document_chunk_ids, some))
        firsts += [ids[0] for ids in listed if ids]
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


async def parts_of(index: EmbeddingIndex, document_id: str) -> list[str]:
    """Return the ids of the documents in a container, such as a mail's attachments, ascending.

    Their ids begin with its id, and `part_of` in their metadata is its id.
    """
    ids = await index.document_chunk_ids(document_id)
    first = await index.get_chunks(ids[:1]) if ids else []
    if not first or "parts" not in first[0].metadata:
        return []
    any_direction = np.eye(1, index.vector_db.embedding_dimension, dtype=np.float32)[0]
    parts: set[str] = set()
    while True:
        filters = {"type": "and", "filters": [_part_of(document_id), *_others(sorted(parts))]}
        page = await index.query(any_direction, k=MAX_K, mode=SearchMode.VECTOR, filters=filters)
        new = {hit.chunk.document_id or "" for hit in page.hits} - parts
        if not new:
            return sorted(each for each in parts if each.startswith(f"{document_id}/"))
        parts |= new


def _part_of(document_id: str) -> dict[str, Any]:
    return {"type": "eq", "key": "part_of", "value": document_id}


def _others(document_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(document_ids), MAX_VALUES):
        values = document_ids[start : start + MAX_VALUES]
        yield {"type": "nin", "key": "document_id", "value": values}


async def delete_document(index: EmbeddingIndex, document_id: str) -> int:
    """Delete a document and the documents in it in one write; return the number of its own chunks.

    If the document is unknown, return 0 and delete nothing.
    """
    ids = await index.document_chunk_ids(document_id)
    if ids:
        parts = await parts_of(index, document_id)
        await index.add_chunks([], replace_documents=[document_id, *parts])
    return len(ids)


async def change_acl(index: EmbeddingIndex, document_id: str, acl: Sequence[str] | None) -> int:
    """Change the ACL of a document and the documents in it in one write.

    Return the number of chunks; 0 if the document is unknown.

    Args:
        index: The principal's view; only visible chunks are changed.
        acl: Tokens; None for the vector DB's default.
    """
    named = [document_id, *await parts_of(index, document_id)]
    chunk_ids = [chunk_id for each in named for chunk_id in await index.document_chunk_ids(each)]
    return await index.set_acl(chunk_ids, acl)


async def change_attributes(
    index: EmbeddingIndex, document_id: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> int:
    """Replace the attributes of a document's chunks in one write; return the number of chunks.

    This includes the documents in it. Texts and embeddings do not change.
    """

    def changed(chunk: Chunk) -> Chunk:
        kept = {k: v for k, v in chunk.metadata.items() if k in RESERVED or k not in old}
        reserved = {k: v for k, v in kept.items() if k in RESERVED}
        return chunk.model_copy(update={"metadata": {**kept, **new, **reserved}})

    parts = await parts_of(index, document_id)
    return sum([await index.change_document(each, changed) for each in (document_id, *parts)])


def attributes_of(chunk: Chunk) -> dict[str, Any]:
    """Return the attributes of a chunk's document: its metadata but for what ingestion writes."""
    return {key: value for key, value in chunk.metadata.items() if key not in RESERVED}


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
