"""Documents: the chunks of an index by the `document_id` in their metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk

if TYPE_CHECKING:
    from corral.api.embedding_index import EmbeddingIndex

READ_AT_ONCE = 500
"""Chunks that a walk over an index asks for at once."""


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """A document that is stored, and how many chunks it has."""

    document_id: str
    chunks: int


async def count_by_document(index: EmbeddingIndex) -> Counter[str]:
    """Return the number of chunks of each document, having read every chunk of the index."""
    found = Counter[str]()
    async for chunk in _all_chunks(index):
        if chunk.document_id:
            found[chunk.document_id] += 1
    return found


async def chunk_ids_of(index: EmbeddingIndex, document_id: str) -> list[str]:
    """Return the ids of a document's chunks, having read every chunk of the index."""
    return [c.chunk_id async for c in _all_chunks(index) if c.document_id == document_id]


async def _all_chunks(index: EmbeddingIndex) -> AsyncIterator[Chunk]:
    after = ""
    while ids := await index.chunk_ids(after, MAX_IDS):
        for start in range(0, len(ids), READ_AT_ONCE):
            for chunk in await index.get_chunks(ids[start : start + READ_AT_ONCE]):
                yield chunk
        if len(ids) < MAX_IDS:
            return
        after = ids[-1]
