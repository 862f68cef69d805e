"""The index of one vector DB in one Weaviate collection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import (
    SINGLE_PRECISION_SLACK,
    effective_metric,
    exact_scores,
)
from corral.providers.ranking.fields import chunk_terms
from corral.providers.ranking.text import ANALYZER_VERSION, analyzer
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.collection import MOST_RESULTS, Collection
from corral.providers.vector_io.weaviate.keyword import (
    Proposal,
    Query,
    held_terms,
    most_unseen,
    proposal,
    scores,
)
from corral.providers.vector_io.weaviate.objects import (
    ALL_PROPERTIES,
    CHUNK_PROPERTIES,
    Row,
    make_row,
    object_id,
    read_chunk,
    read_embedding,
)

MARGIN = 10
"""Chunks asked for beyond k by vector at first, to see where the ties with the last one end."""

KEYWORD_MARGIN = 50
"""Chunks asked for beyond 2k by words at first: Weaviate's order only resembles ours."""

MOST_COUNTS = 16
"""Terms that are counted at the same time."""

REINDEX_BATCH = 500

_GROWTH = 4


class WeaviateIndex(EmbeddingIndex):
    """Chunks as objects of one collection; every public method is the contract's.

    Scores are computed anew in double precision for what Weaviate returns, and ties are ordered by
    chunk_id: more is asked for until the last one's ties are all there, up to `MOST_RESULTS`.

    Args:
        vector_db: The registration.
        collection: The collection, which exists.
        undo_seconds: How long cleaning up after a failed write may take.
    """

    def __init__(self, vector_db: VectorDB, collection: Collection, *, undo_seconds: float) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._undo_seconds = undo_seconds
        self._analyzer = analyzer(vector_db.language)
        self._metric = effective_metric(vector_db)
        self._writing = asyncio.Lock()

    async def prepare(self) -> None:
        """Refuse a newer layout, and find terms anew that another version of the analyzer stored.

        Done when an index is opened. It can undo a write of the same chunk by another process in
        the same moment, which only an upgrade of one server beside others can meet.

        Raises:
            NotFound: The collection is gone.
            ConfigError: A newer Corral wrote it.
        """
        await self._collection.sign()
        stale = native.not_of_version(ANALYZER_VERSION)
        while rows := await self._collection.some(stale, REINDEX_BATCH, ALL_PROPERTIES, dense=True):
            chunks = [read_chunk(row, include_embedding=False) for row in rows]
            embeddings = np.array([read_embedding(row) for row in rows], dtype=np.float32)
            await self._collection.put(await asyncio.to_thread(self._rows, chunks, embeddings))
            await self._collection.settle()

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        rows = await asyncio.to_thread(self._rows, chunks, embeddings)
        new = [row.id for row in rows]
        async with self._writing:
            # Reading fails where the collection is gone; a write would make one up.
            before = await self._collection.fetch(new, ALL_PROPERTIES, True)
            try:
                await self._collection.put(rows)
            except (CorralError, asyncio.CancelledError):
                await self._undo(new, before)
                raise
            # Nothing is undone from here on: a delete that failed may have been carried out.
            await self._delete_others(replace_documents, new)
        await self._collection.settle()

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        narrowed = native.translate(filters) if filters else None
        unsure = filters if native.has_orderings(filters) else None
        properties = ["chunk_id", *(["metadata"] if unsure else [])]
        limit = min(k + MARGIN, MOST_RESULTS)
        while True:
            rows = await self._collection.nearest(embedding.tolist(), limit, narrowed, properties)
            raw, unseen = self._raw_scores(embedding, rows)
            best = _best(rows, raw, k, unsure)
            if len(rows) < limit or (len(best) == k and unseen < best[-1].raw_score):
                return best
            if limit == MOST_RESULTS:
                return best
            limit = min(_GROWTH * limit, MOST_RESULTS)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        query = Query(query_string, self._analyzer)
        if not query.wanted:
            return []
        narrowed = native.translate(filters) if filters else None
        unsure = filters if native.has_orderings(filters) else None
        properties = ["chunk_id", "frequencies", "length", *(["metadata"] if unsure else [])]
        numbers: dict[str, int] = {}
        limit = min(2 * k + KEYWORD_MARGIN, MOST_RESULTS)
        known, rows = await asyncio.gather(
            self._collection.statistics(),
            self._collection.matching(query.text, limit, narrowed, properties),
        )
        while rows and known.average > 0:
            found = [proposal(row, query) for row in rows]
            await self._count_terms(held_terms(found), numbers)
            exact = scores(found, query.weights(numbers, known.count), known.average)
            best = _best_matches(rows, found, exact, k, unsure)
            if len(rows) < limit or limit == MOST_RESULTS:
                return best
            if len(best) == k and most_unseen(found, exact) < best[-1].raw_score:
                return best
            limit = min(_GROWTH * limit, MOST_RESULTS)
            rows = await self._collection.matching(query.text, limit, narrowed, properties)
        return []

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        ids = [object_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        properties = [*CHUNK_PROPERTIES, *(["embedding"] if include_embeddings else [])]
        rows = await self._collection.fetch(ids, properties, include_embeddings)
        return [read_chunk(row, include_embedding=include_embeddings) for row in rows]

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        async with self._writing:
            await self._collection.delete([object_id(i) for i in dict.fromkeys(chunk_ids)])
        await self._collection.settle()

    async def _count(self) -> int:
        return await self._collection.count()

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._collection.chunk_ids(after, limit)

    async def _drop(self) -> None:
        await self._collection.drop()
        await self._collection.leave()

    async def _close(self) -> None:
        """Let go of the connection."""
        await self._collection.leave()

    # --- writing -----------------------------------------------------------------------------

    def _rows(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> list[Row]:
        weights = self.vector_db.field_weights
        return [
            make_row(
                self.vector_db,
                chunk,
                embedding,
                chunk_terms(chunk, weights, self._analyzer),
                ANALYZER_VERSION,
            )
            for chunk, embedding in zip(chunks, embeddings, strict=True)
        ]

    async def _delete_others(self, documents: frozenset[str], new: Sequence[str]) -> None:
        """Delete these documents' objects that are not new, in as many rounds as it takes."""
        others = native.of_documents_but(documents, new)
        full = bool(documents)
        while full:
            rows = await self._collection.some(others, MOST_RESULTS, [], dense=False)
            await self._collection.delete([row.id for row in rows])
            full = len(rows) == MOST_RESULTS

    async def _undo(self, new: Sequence[str], before: Sequence[Row]) -> None:
        """Put back what was there before a write that failed; what cannot be is left."""
        there = {row.id for row in before}
        with suppress(CorralError, TimeoutError):
            async with asyncio.timeout(self._undo_seconds):
                await self._collection.require()
                await self._collection.put(before)
                await self._collection.delete([one for one in new if one not in there])

    # --- reading -----------------------------------------------------------------------------

    async def _count_terms(self, terms: set[str], numbers: dict[str, int]) -> None:
        """Add the number of chunks that hold each term, for those not known yet."""
        places = asyncio.Semaphore(MOST_COUNTS)

        async def count(term: str) -> None:
            async with places:
                numbers[term] = await self._collection.count(native.holding(term))

        await asyncio.gather(*(count(term) for term in sorted(terms - numbers.keys())))

    def _raw_scores(
        self, query: NDArray[np.float32], rows: Sequence[Row]
    ) -> tuple[NDArray[np.float64], float]:
        """Return the rows' raw scores, equal for equal embeddings, and a bound of the others'."""
        if not rows:
            return np.empty(0), -np.inf
        matrix = np.array([row.dense for row in rows], dtype=np.float32)
        raw = exact_scores(matrix, query, self._metric)
        scale = 1.0
        if self._metric is not Metric.COSINE:
            length = float(np.linalg.norm(query.astype(np.float64)))
            longest = float(np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1)).max())
            scale = length * longest if self._metric is Metric.DOT else length + longest
        return raw, float(raw[-1]) + SINGLE_PRECISION_SLACK * scale


def _best(
    rows: Sequence[Row], raw: NDArray[np.float64], k: int, filters: Filter | None
) -> list[Candidate]:
    """Return the k best of the rows that pass, ties by chunk_id."""
    found = [
        Candidate(row.properties["chunk_id"], score)
        for row, score in zip(rows, raw.tolist(), strict=True)
        if _passes(row, filters)
    ]
    return sorted(found, key=lambda one: (-one.raw_score, one.chunk_id))[:k]


def _best_matches(
    rows: Sequence[Row],
    proposals: Sequence[Proposal],
    exact: Sequence[float],
    k: int,
    filters: Filter | None,
) -> list[Candidate]:
    """Return the k best of the proposals that hold a term and pass, ties by chunk_id."""
    found = [
        Candidate(one.chunk_id, score, matched_terms=tuple(one.frequencies))
        for row, one, score in zip(rows, proposals, exact, strict=True)
        if score > 0 and _passes(row, filters)
    ]
    return sorted(found, key=lambda one: (-one.raw_score, one.chunk_id))[:k]


def _passes(row: Row, filters: Filter | None) -> bool:
    return filters is None or matches(filters, json.loads(row.properties["metadata"]))
