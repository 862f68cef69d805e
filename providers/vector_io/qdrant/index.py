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
from corral.api.errors import ConfigError
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.fields import chunk_terms
from corral.providers.ranking.sparse import (
    Proposal,
    SparseQuery,
    Statistics,
    best_matches,
    query_vector,
    reference_of,
    sparse_chunk,
)
from corral.providers.ranking.text import analyzer
from corral.providers.vector_io.qdrant import filters as native
from corral.providers.vector_io.qdrant.collection import Collection, Row
from corral.providers.vector_io.qdrant.points import (
    CHUNK_FIELDS,
    VERSION,
    Point,
    dense_row,
    make_point,
    point_id,
    read_chunk,
    read_embedding,
    unpack_words,
)

MARGIN = 10
"""Chunks fetched beyond k at first, to see where the ties with the last one end."""

RECOUNT_AFTER = 0.25
"""Share of the chunks that a process adds before it counts anew for its next write."""

MOST_COUNTS = 256
"""Query terms that are counted one by one at once; of more it is asked first which are used."""

BLOCK = 64
"""Terms of which it is asked together whether any chunk holds one."""

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
        self._counted: Statistics | None = None  # the latest, and what was added since
        self._added_chunks = self._added_terms = 0

    async def reindex(self) -> None:
        """Write anew the chunks that an older version of the layout or the analyzer has stored.

        Done when an index is opened. The collection is signed before, so that a process of the
        older version that opens it from now on is refused. It can undo a write of the same chunk
        by another process in the same moment, which only an upgrade of one server beside others
        can meet.

        Raises:
            ConfigError: A newer version has signed the collection; nothing is changed.
        """
        signed = await self._collection.version()
        if signed > VERSION:
            raise ConfigError(
                f"{self.vector_db.provider_id}: a newer Corral wrote this vector DB.",
                hint="Run that version.",
            )
        if signed < VERSION:
            await self._collection.sign(VERSION)
        stale = native.not_of_version(VERSION)
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
        narrowed = None if filters is None else native.translate(filters)
        fields = ["chunk_id", *(["metadata"] if native.has_orderings(filters) else [])]
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
        statistics, numbers = await asyncio.gather(
            self._statistics(), self._frequencies(query.keys)
        )
        narrowed = None if filters is None else native.translate(filters)
        weights = query.weights(numbers, statistics.count)
        vector = query_vector(weights)
        unsure = native.has_orderings(filters)
        fields = ["chunk_id", "words", "length", *(["metadata"] if unsure else [])]

        async def fetch(references: Sequence[int] | None, limit: int) -> list[Proposal]:
            band = None if references is None else native.of_references(list(references))
            within = native.all_of(narrowed, band)
            rows = await self._collection.matching(vector, limit, within, fields)
            return [_proposal(row, filters if unsure else None) for row in rows]

        return await best_matches(query, weights, statistics, k, fetch)

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
        weights = self.vector_db.field_weights
        terms = await asyncio.to_thread(
            lambda: [chunk_terms(chunk, weights, self._analyzer) for chunk in chunks]
        )
        reference = await self._reference([one.length for one in terms])
        return await asyncio.to_thread(
            lambda: [
                make_point(self.vector_db, chunk, row, sparse_chunk(found, reference), VERSION)
                for chunk, row, found in zip(chunks, embeddings, terms, strict=True)
            ]
        )

    async def _reference(self, lengths: Sequence[int]) -> int:
        """Return the reference of chunks of these lengths that are about to be added.

        Any gives right answers and one near the truth quick ones, so the engine is asked only now
        and then: this process knows what it added itself.
        """
        known = self._counted
        if known is None or self._added_chunks > RECOUNT_AFTER * known.count:
            known = await self._statistics()
        self._added_chunks += len(lengths)
        self._added_terms += sum(lengths)
        terms = known.average * known.count + self._added_terms
        return reference_of(terms / (known.count + self._added_chunks))

    # --- reading -----------------------------------------------------------------------------

    async def _statistics(self) -> Statistics:
        """Have the engine count, so that deletions, restarts and other processes are in it."""
        lengths, references = await asyncio.gather(
            self._collection.facet("length"), self._collection.facet("reference")
        )
        self._counted = found = Statistics(lengths, references)
        self._added_chunks = self._added_terms = 0
        return found

    async def _frequencies(self, keys: Sequence[int]) -> list[int]:
        """Return how many chunks hold each term. Of very many most are unused: these go first."""
        used: Sequence[int] = keys
        if len(keys) > MOST_COUNTS:
            blocks = [keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK)]
            holding = await self._collection.counts([native.holding(*block) for block in blocks])
            pairs = zip(blocks, holding, strict=True)
            used = [key for block, number in pairs if number for key in block]
        counts = await self._collection.counts([native.holding(key) for key in used])
        found = dict(zip(used, counts, strict=True))
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
        if not native.has_orderings(filters)
        or matches(filters, json.loads(row.payload["metadata"]))
    ]
    return sorted(found, key=lambda c: (-c.raw_score, c.chunk_id))[:k]


def _proposal(row: Row, filters: Filter | None) -> Proposal:
    payload = row.payload
    passes = filters is None or matches(filters, json.loads(payload["metadata"]))
    keys, frequencies = unpack_words(payload["words"])
    return Proposal(payload["chunk_id"], row.score, keys, frequencies, payload["length"], passes)
