"""The index of one vector DB in one Qdrant collection, in this process or on a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.fields import chunk_terms
from corral.providers.vector_io.qdrant import filters as native
from corral.providers.vector_io.qdrant.collection import Collection, Row
from corral.providers.vector_io.qdrant.points import (
    CHUNK_FIELDS,
    Json,
    Point,
    dense_row,
    make_point,
    point_id,
    read_chunk,
    read_embedding,
    unpack_words,
)
from corral.providers.vector_io.sparse import (
    Proposal,
    SparseQuery,
    Statistics,
    best_matches,
    query_vector,
    sparse_chunk,
)
from corral.providers.vector_io.text import ANALYZER_VERSION, analyzer

MARGIN = 10
"""Chunks fetched beyond k at first, to see where the ties with the last one end."""

MOST_COUNTS = 256
"""Query terms that are counted one by one; more are counted together, by a facet over all terms."""

REINDEX_BATCH = 500

_GROWTH = 4
_SLACK = 1e-5  # a float32 score of unit vectors is off by 1e-6 at most


class QdrantIndex(EmbeddingIndex):
    """Chunks as points of one collection; every public method is the contract's.

    Scores are computed anew in double precision for what the engine returns, and ties are ordered
    by chunk_id: more is asked for until the last one's ties are all there.

    Args:
        vector_db: The registration.
        collection: The collection, which exists.
    """

    def __init__(self, vector_db: VectorDB, collection: Collection) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._analyzer = analyzer(vector_db.language)
        self._distance = vector_db.metric is Metric.L2 and not vector_db.normalize

    async def reindex(self) -> None:
        """Find anew the terms of chunks that another version of the analyzer has stored.

        Done when an index is opened. It can undo a write of the same chunk by another process in
        the same moment, which only an upgrade of one server beside others can meet.
        """
        stale = native.not_of_version(ANALYZER_VERSION)
        while rows := await self._collection.scroll(stale, REINDEX_BATCH):
            chunks = [read_chunk(row.payload, None) for row in rows]
            stored = [read_embedding(row.payload, row.dense) for row in rows]
            points = await self._points(chunks, np.array(stored, dtype=np.float32))
            await self._collection.replace(points, None)

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        stale = native.of_documents(replace_documents) if replace_documents else None
        await self._collection.replace(await self._points(chunks, embeddings), stale)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        narrowed = await self._narrow(filters)
        fields = ["chunk_id", *(["metadata"] if _unsure(filters) else [])]
        query = dense_row(self.vector_db, embedding)
        limit = k + MARGIN
        while True:
            rows = await self._collection.nearest(query.tolist(), limit, narrowed, fields)
            scores = self._scores(query, rows)
            best = _best(rows, scores.raw, k, filters)
            if len(rows) < limit or (len(best) == k and scores.unseen < best[-1].raw_score):
                return best
            limit *= _GROWTH

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        query = SparseQuery(query_string, self._analyzer)
        if not query.terms:
            return []
        statistics, numbers, narrowed = await asyncio.gather(
            self._statistics(), self._frequencies(query.keys), self._narrow(filters)
        )
        weights = query.weights(numbers, statistics.count)
        vector = query_vector(weights)
        unsure = _unsure(filters)
        fields = ["chunk_id", "words", "length", *(["metadata"] if unsure else [])]

        async def fetch(references: Sequence[int] | None, limit: int) -> list[Proposal]:
            band = None if references is None else native.of_references(list(references))
            within = native.all_of(narrowed, band)
            rows = await self._collection.matching(vector, limit, within, fields)
            return [_proposal(row, filters if unsure else None) for row in rows]

        found = await best_matches(query, weights, statistics, k, fetch)
        return [Candidate(one.chunk_id, one.score, matched_terms=one.terms) for one in found]

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        ids = [point_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        fields = [*CHUNK_FIELDS, *(["embedding"] if include_embeddings else [])]
        rows = await self._collection.fetch(ids, fields, include_embeddings)
        return [read_chunk(row.payload, row.dense if include_embeddings else None) for row in rows]

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await self._collection.delete([point_id(i) for i in dict.fromkeys(chunk_ids)])

    async def _count(self) -> int:
        return await self._collection.count()

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._collection.chunk_ids(after, limit)

    async def _drop(self) -> None:
        await self._collection.drop()

    async def _close(self) -> None:
        """Release what the index holds."""
        await self._collection.close()

    # --- writing -----------------------------------------------------------------------------

    async def _points(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
    ) -> list[Point]:
        if not chunks:
            return []
        statistics = await self._statistics()
        return await asyncio.to_thread(self._make_points, chunks, embeddings, statistics)

    def _make_points(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32], statistics: Statistics
    ) -> list[Point]:
        weights = self.vector_db.field_weights
        terms = [chunk_terms(chunk, weights, self._analyzer) for chunk in chunks]
        reference = statistics.reference_with([one.length for one in terms])
        return [
            make_point(self.vector_db, chunk, row, sparse_chunk(found, reference), ANALYZER_VERSION)
            for chunk, row, found in zip(chunks, embeddings, terms, strict=True)
        ]

    # --- reading -----------------------------------------------------------------------------

    async def _narrow(self, filters: Filter | None) -> Json | None:
        """Return the native filter, with the indexes that it needs in place."""
        if filters is None:
            return None
        if fields := native.ordered_fields(filters):
            await self._collection.order_by(fields)
        return native.translate(filters)

    async def _statistics(self) -> Statistics:
        lengths, references = await asyncio.gather(
            self._collection.facet("length"), self._collection.facet("reference")
        )
        return Statistics(lengths, references)

    async def _frequencies(self, keys: Sequence[int]) -> list[int]:
        """Return how many chunks hold each term."""
        if len(keys) <= MOST_COUNTS:
            return await self._collection.counts([native.holding(key) for key in keys])
        found = await self._collection.facet("terms")
        return [found.get(key, 0) for key in keys]

    def _scores(self, query: NDArray[np.float32], rows: Sequence[Row]) -> _Scores:
        """Compute raw scores in double precision, equal for equal embeddings."""
        if not rows:
            return _Scores(np.empty(0), -np.inf)
        matrix = np.array([row.dense for row in rows], dtype=np.float64)
        own = query.astype(np.float64)
        largest = float(np.sqrt((matrix**2).sum(axis=1)).max())
        length = float(np.linalg.norm(own))
        # Not by a matrix product: BLAS may add up two equal rows in different orders.
        if self._distance:
            raw, scale = -np.sqrt(((matrix - own) ** 2).sum(axis=1)), length + largest
        else:
            raw, scale = (matrix * own).sum(axis=1), length * largest
        return _Scores(raw, float(raw[-1]) + _SLACK * scale)


@dataclass(frozen=True, slots=True)
class _Scores:
    """Raw scores of some rows, and a bound of the raw scores of what came behind them."""

    raw: NDArray[np.float64]
    unseen: float


def _best(
    rows: Sequence[Row], raw: NDArray[np.float64], k: int, filters: Filter | None
) -> list[Candidate]:
    """Return the k best of the rows that pass, ties by chunk_id."""
    found = [
        Candidate(row.payload["chunk_id"], score)
        for row, score in zip(rows, raw.tolist(), strict=True)
        if not _unsure(filters) or matches(filters, json.loads(row.payload["metadata"]))
    ]
    return sorted(found, key=lambda c: (-c.raw_score, c.chunk_id))[:k]


def _unsure(filters: Filter | None) -> bool:
    """Say whether the native filter only narrows down."""
    return any(native.orderings(filters))


def _proposal(row: Row, filters: Filter | None) -> Proposal:
    payload = row.payload
    passes = filters is None or matches(filters, json.loads(payload["metadata"]))
    keys, frequencies = unpack_words(payload["words"])
    return Proposal(payload["chunk_id"], row.score, keys, frequencies, payload["length"], passes)
