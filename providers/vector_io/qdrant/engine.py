"""The index of one vector DB in one collection of a Qdrant server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import ConfigError
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.candidates import (
    Proposals,
    best_candidates,
    open_order,
    score_vectors,
    settled,
)
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, read_chunk
from corral.providers.vector_io.kit.tokens import has_orderings, needed, passes
from corral.providers.vector_io.qdrant import filters as native
from corral.providers.vector_io.qdrant.keyword import Keywords
from corral.providers.vector_io.qdrant.records import (
    VERSION,
    FoundPoint,
    Json,
    Point,
    make_point,
    point_id,
    searched,
)

if TYPE_CHECKING:
    from corral.providers.vector_io.qdrant.server.collection import ServerCollection

MARGIN = 10
"""Chunks fetched beyond k at first, to see where the ties with the last one end."""

REINDEX_BATCH = 500


class QdrantEngine(Engine):
    """Chunks as points of one collection; every public method is the contract's.

    The engine's scores of directions are off by `SINGLE_PRECISION_SLACK` at most. Where that leaves
    the order open, and for all scores of embeddings of any length, they are computed anew in double
    precision. Ties are ordered by chunk_id: more is asked for until the last one's ties are all
    there.

    Args:
        collection: The collection, which exists.
        statistics_max_age_seconds: Most age of what BM25 knows of other processes' writes.
    """

    has_term_statistics = True

    def __init__(
        self, vector_db: VectorDB, collection: ServerCollection, statistics_max_age_seconds: float
    ) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._keywords = Keywords(vector_db, collection, statistics_max_age_seconds)
        self._unit_length = vector_db.normalize or vector_db.metric is Metric.COSINE
        # What is stored under cosine has length 1: its inner product is the cosine.
        by_distance = vector_db.metric is Metric.L2 and not vector_db.normalize
        self._metric = Metric.L2 if by_distance else Metric.DOT

    async def reindex(self) -> None:
        """Write anew the chunks that an older version of the layout or the analyzer has stored.

        Done when an index is opened. The new version is recorded before, so that a process of the
        older version that opens the collection from now on is refused. It can undo a write of the
        same chunk by another process in the same moment, which only an upgrade of one server
        beside others can meet.

        Raises:
            ConfigError: A newer version wrote the collection; nothing is changed.
        """
        stored = await self._collection.version()
        if stored > VERSION:
            raise ConfigError(
                f"{self.vector_db.provider_id}: a newer Corral wrote this vector DB.",
                hint="Run that version.",
            )
        if stored < VERSION:
            await self._collection.upgrade(VERSION)
        stale = native.not_of_version(VERSION)
        while found := await self._collection.scroll(stale, REINDEX_BATCH):
            chunks = [read_chunk(point.payload) for point in found]
            embeddings = np.array([point.embedding for point in found], dtype=np.float32)
            await self._write(chunks, embeddings, None)

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        stale = native.of_documents(replace_documents) if replace_documents else None
        await self._write(chunks, embeddings, stale)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        narrowed = None if filters is None else native.translate(filters)
        fields = ["chunk_id", *needed(filters)]
        query = searched(self.vector_db, embedding)

        async def propose(limit: int) -> Proposals:
            found = await self._collection.nearest(query.tolist(), limit, narrowed, fields)
            passing = found
            if has_orderings(filters):
                passing = [one for one in found if passes(filters, one.payload)]
            if not self._unit_length:
                return await self._compared(query, found, passing, limit)
            last = found[-1].score if len(found) >= limit else None
            candidates = [Candidate(one.payload["chunk_id"], one.score) for one in passing]
            asked = frozenset(open_order(candidates, k))
            unclear = [p for p in passing if p.payload["chunk_id"] in asked] if asked else []
            stored = await self._embeddings(unclear)
            return settled(candidates, stored, last, query, self._metric)

        return await best_candidates(k, propose, margin=MARGIN)

    async def _compared(
        self,
        query: NDArray[np.float32],
        found: Sequence[FoundPoint],
        passing: Sequence[FoundPoint],
        limit: int,
    ) -> Proposals:
        """Compare with every embedding: of any length, it may be off by any rounding error."""
        stored = await self._embeddings(found)
        wanted = {one.payload["chunk_id"] for one in passing}
        there = [i for one in found if (i := one.payload["chunk_id"]) in stored]
        ids = [chunk_id if chunk_id in wanted else None for chunk_id in there]
        matrix = np.array([stored[chunk_id] for chunk_id in there], dtype=np.float64)
        gone = len(found) - len(there)
        return score_vectors(ids, matrix, query, self._metric, limit=limit - gone)

    async def _embeddings(self, points: Sequence[FoundPoint]) -> dict[str, list[float]]:
        """Return what is stored as `dense` by chunk id, of those points that are still there."""
        names = {one.id: str(one.payload["chunk_id"]) for one in points}
        found = await self._collection.fetch(list(names), [], True) if names else []
        return {names[one.id]: one.dense for one in found}

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self._keywords.search(query_string, k, filters, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self._keywords.term_statistics(query_string)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        ids = [point_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        fields = [*CHUNK_FIELDS, *(["embedding"] if include_embeddings else [])]
        found = await self._collection.fetch(ids, fields, include_embeddings)
        return [read_chunk(p.payload, p.embedding if include_embeddings else None) for p in found]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        try:
            await self._collection.delete([point_id(i) for i in dict.fromkeys(chunk_ids)])
        finally:
            self._keywords.forget()

    @override
    async def count(self) -> int:
        return await self._collection.count()

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._collection.chunk_ids(after, limit)

    @override
    async def count_passing(self, filters: Filter) -> int:
        if has_orderings(filters):  # which are only narrowed down
            return await super().count_passing(filters)
        return await self._collection.count_passing(native.translate(filters))

    @override
    async def drop(self) -> None:
        await self._collection.drop()

    @override
    async def close(self) -> None:
        """Release what the index holds."""
        await self._collection.close()

    # --- writing -----------------------------------------------------------------------------

    async def _write(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32], stale: Json | None
    ) -> None:
        points = await self._points(chunks, embeddings)
        try:
            await self._collection.replace(points, stale)
        finally:
            self._keywords.forget()

    async def _points(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
    ) -> list[Point]:
        if not chunks:
            return []
        encoded = await self._keywords.encode(chunks)
        return await asyncio.to_thread(
            lambda: [
                make_point(self.vector_db, chunk, embedding, sparse, VERSION)
                for chunk, embedding, sparse in zip(chunks, embeddings, encoded, strict=True)
            ]
        )
