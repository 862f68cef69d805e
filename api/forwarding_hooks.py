"""The hooks of one index behind the public methods of another: a view of it does not copy it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.filters import Filter
from corral.api.hits import Candidate
from corral.api.index_hooks import IndexHooks


class ForwardingHooks(IndexHooks):
    """Hooks that call those of another index, which its owner alone deletes and closes."""

    _whole: IndexHooks

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await self._whole._add(chunks, embeddings, replace_documents)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._whole._query_vector(embedding, k, filters)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._whole._query_keyword(query_string, k, filters)

    async def _query_fuzzy(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._whole._query_fuzzy(query_string, k, filters)

    async def _query_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        return await self._whole._query_hybrid(embedding, query_string, k, filters)

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._whole._get(chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        if chunk_ids:
            await self._whole._delete_chunks(chunk_ids)

    async def _count(self) -> int:
        return await self._whole._count()

    async def _count_passing(self, filters: Filter) -> int:
        return await self._whole._count_passing(filters)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._whole._chunk_ids(after, limit)

    async def _chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self._whole._chunk_ids_passing(after, limit, filters)

    async def _documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        return await self._whole._documents(after, limit)

    async def _documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await self._whole._documents_passing(after, limit, filters)

    async def _document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await self._whole._document_chunk_ids(document_id)

    async def _settle(self) -> None:
        await self._whole._settle()

    async def _drop(self) -> None:
        """Drop nothing: others use the index."""
