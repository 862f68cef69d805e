"""What is known of documents that are stored: whether one is whole, unchanged, and from where.

Each chunk's record carries a hash of what its document was made from. A document whose chunks are
all there and all carry the hash that it would get now need not be read and embedded again.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata

import numpy as np

from corral.api.checks import MAX_K
from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import ChunkingConfig, SearchMode
from corral.providers.base.document_names import public_source
from corral.providers.base.documents import chunks_by_id


@dataclass(frozen=True, slots=True)
class Known:
    """A stored document.

    Attributes:
        hash: Of what it was made from; None where chunks are missing or do not agree.
        origin: As its sender gave it, or None.
        source: The place that its metadata names, or None.
    """

    hash: str | None
    origin: str | None
    source: str | None


def document_hash(
    document: RAGDocument, chunking: ChunkingConfig, *, chosen: bool = False
) -> str | None:
    """Return a hash of all that decides on a document's chunks; None where a URL answers with it.

    The version of Corral is part of it, since it may read and split documents in another way. The
    model is not: who changes it embeds the chunks again, as they are (`corral reembed`). So a
    document that is stored already is recognized before the model is loaded.

    Args:
        chunking: The sizes of its chunks.
        chosen: Whether somebody has said them; else chunks also fit into what the model reads.
    """
    content = document.content.uri if isinstance(document.content, URL) else document.content
    if isinstance(document.content, URL) and content[:5].lower() != "data:":
        return None
    rest = [
        _version(), isinstance(document.content, URL), document.document_id, document.mime_type,
        document.metadata, document.origin, chunking.model_dump(mode="json"),
        chosen,
    ]  # fmt: skip
    rest += [] if document.acl is None else [document.acl]
    made = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    made.update(content.encode("utf-8", "surrogatepass"))
    return made.hexdigest()


@cache
def _version() -> str:
    return metadata.version("corral-rag")


async def known_documents(index: EmbeddingIndex, document_ids: Sequence[str]) -> dict[str, Known]:
    """Return those of some documents that are stored, by id.

    One filtered query where they have fewer than 1,000 chunks together, more queries where not.
    """
    if len(document_ids) == 1:
        return await _of_one(index, document_ids[0])
    if not document_ids:
        return {}
    chunks = await _some_chunks(index, document_ids)
    if len(chunks) < MAX_K:
        found: defaultdict[str | None, _Seen] = defaultdict(_Seen)
        for chunk in chunks:
            found[chunk.document_id].add(chunk)
        return {i: found[i].known() for i in set(document_ids) & found.keys()}
    half = len(document_ids) // 2
    first = await known_documents(index, document_ids[:half])
    return first | await known_documents(index, document_ids[half:])


async def unchanged(
    index: EmbeddingIndex, hashes: dict[str, str | None], origins: dict[str, str | None]
) -> set[str]:
    """Return the ids of documents that are stored as they would be stored now.

    Args:
        index: Where.
        hashes: By document id, what `document_hash` says of it.
        origins: By document id, where it must be from if it is stored; documents that are not in
            it, and None here or there, may be from anywhere.

    Raises:
        Conflict: A stored document is from elsewhere.
    """
    found = await known_documents(index, list(hashes))
    for document_id, known in found.items():
        wanted = origins.get(document_id)
        if wanted and known.origin and known.origin != wanted:
            source = public_source(known.source)
            place = f" ({source})" if source not in (None, document_id) else ""
            raise Conflict(
                f"Document {document_id!r} is already stored from another place{place}.",
                hint="Choose another document_id, or replace it with same_origin_only: false.",
                field="documents",
            )
    return {i for i, known in found.items() if known.hash and known.hash == hashes[i]}


async def _some_chunks(index: EmbeddingIndex, document_ids: Sequence[str]) -> list[Chunk]:
    any_direction = np.eye(1, index.vector_db.embedding_dimension, dtype=np.float32)[0]
    found = await index.query(
        any_direction,
        k=MAX_K,
        mode=SearchMode.VECTOR,
        filters={"type": "in", "key": "document_id", "value": list(document_ids)},
    )
    return [hit.chunk for hit in found.hits]


async def _of_one(index: EmbeddingIndex, document_id: str) -> dict[str, Known]:
    """Return what is known of one document; its chunks may be too many to hold together."""
    ids = await index.document_chunk_ids(document_id)
    seen = _Seen()
    async for chunk in chunks_by_id(index, ids):
        seen.add(chunk)
    return {document_id: seen.known()} if ids else {}


class _Seen:
    """What the chunks of a document say of it, one after the other."""

    def __init__(self) -> None:
        self._chunks = 0
        self._hashes: set[str | None] = set()
        self._positions: set[int | None] = set()
        self._last: ChunkMetadata | None = None
        self._origin: str | None = None
        self._source: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Take one more."""
        self._chunks += 1
        record = chunk.chunk_metadata
        if record is None:
            return
        self._hashes.add(record.document_hash)
        self._positions.add(record.position)
        if self._last is None or (record.position or 0) > (self._last.position or 0):
            self._last = record
        self._origin = self._origin or record.document_origin
        self._source = self._source or record.source

    def known(self) -> Known:
        """Return what is known, if these are all chunks of the document."""
        whole = self._positions == set(range(self._chunks))
        ended = self._last is not None and self._last.next_chunk_id is None
        agreed = len(self._hashes) == 1 and whole and ended
        return Known(next(iter(self._hashes)) if agreed else None, self._origin, self._source)
