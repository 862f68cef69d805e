"""The state of stored documents: whether they are complete and unchanged, and their origin.

Each chunk's record has a hash of its document's input. If all chunks of a document exist and have
the hash that it would get now, the document need not be read and embedded again.
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
from corral.api.document_names import public_source
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import ChunkingConfig, SearchMode
from corral.providers.base.documents import chunks_by_id


@dataclass(frozen=True, slots=True)
class Known:
    """A stored document.

    Attributes:
        hash: Hash of its input; None if chunks are missing or have different hashes.
        origin: The `origin` from its sender, or None.
        source: The `source` in its metadata, or None.
    """

    hash: str | None
    origin: str | None
    source: str | None


def document_hash(
    document: RAGDocument, chunking: ChunkingConfig, *, chosen: bool = False
) -> str | None:
    """Return a hash of all inputs that affect a document's chunks; None for a URL to fetch.

    The hash includes the version of Corral, because another version may read and split documents
    differently. It does not include the model: changing the model embeds the same chunks again
    (`corral reembed`). So a stored document is recognized before the model is loaded.

    Args:
        chunking: The sizes of the chunks.
        chosen: True if the sizes were set explicitly; if False, chunks also fit the model's window.
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
    """Return the stored documents among `document_ids`, by id.

    This takes one filtered query if the documents have fewer than 1,000 chunks in total, or else
    several.
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
    """Return the ids of documents that are stored in the form they would get now.

    Args:
        hashes: By document id, the result of `document_hash`.
        origins: By document id, the required origin of a stored document; None, an absent entry and
            a stored document without origin match any origin.

    Raises:
        Conflict: A stored document has another origin.
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
    """Return the state of one document, reading its chunks in pages to limit memory."""
    ids = await index.document_chunk_ids(document_id)
    seen = _Seen()
    async for chunk in chunks_by_id(index, ids):
        seen.add(chunk)
    return {document_id: seen.known()} if ids else {}


class _Seen:
    """Accumulates the state of a document from its chunks."""

    def __init__(self) -> None:
        self._chunks = 0
        self._hashes: set[str | None] = set()
        self._positions: set[int | None] = set()
        self._last: ChunkMetadata | None = None
        self._origin: str | None = None
        self._source: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
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
        """Return the state, assuming that all chunks of the document were added."""
        whole = self._positions == set(range(self._chunks))
        ended = self._last is not None and self._last.next_chunk_id is None
        agreed = len(self._hashes) == 1 and whole and ended
        return Known(next(iter(self._hashes)) if agreed else None, self._origin, self._source)
