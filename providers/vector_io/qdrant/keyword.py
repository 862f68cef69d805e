"""Keyword search in one collection: Qdrant proposes chunks, and BM25 is computed here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.fields import chunk_terms
from corral.providers.vector_io.kit.sparse import (
    Proposal,
    SparseChunk,
    SparseQuery,
    Statistics,
    keyword_leg,
    query_vector,
    reference_of,
    sparse_chunk,
)
from corral.providers.vector_io.kit.statistics import KeptStatistics, finds_new_chunks
from corral.providers.vector_io.kit.tokens import has_orderings, needed, passes
from corral.providers.vector_io.qdrant import filters as native
from corral.providers.vector_io.qdrant.client import ServerReads
from corral.providers.vector_io.qdrant.records import FoundPoint

RECOUNT_AFTER = 0.25
"""Once a process has added this share of the chunks, it counts again for its next write."""

MOST_COUNTS = 256
"""Maximum query terms counted one by one; for more, blocks of unused terms are skipped."""

BLOCK = 64
"""Terms counted together, to check whether any chunk contains one."""


class Keywords:
    """The keyword index of one vector DB.

    Args:
        vector_db: The registration; its language and field weights decide the terms.
        max_age_seconds: Maximum age of the statistics if another process writes.
    """

    def __init__(
        self, vector_db: VectorDB, collection: ServerReads, max_age_seconds: float
    ) -> None:
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)
        self._collection = collection
        self._kept = KeptStatistics(
            self._statistics, self._frequencies, max_age_seconds, lasts=finds_new_chunks
        )
        # the latest statistics, and the additions since then
        self._counted: Statistics | None = None
        self._added_chunks = self._added_terms = 0

    def forget(self) -> None:
        """Clear the statistics after a write."""
        self._kept.forget()

    async def encode(self, chunks: Sequence[Chunk]) -> list[SparseChunk]:
        """Return the stored form of the words of new chunks."""
        terms = await asyncio.to_thread(
            lambda: [chunk_terms(chunk, self._weights, self._analyzer) for chunk in chunks]
        )
        reference = await self._reference([one.length for one in terms])
        return [sparse_chunk(one, reference) for one in terms]

    async def term_statistics(self, query_string: str) -> TermStatistics:
        """Return the query's terms for `search`."""
        query = SparseQuery(query_string, self._analyzer)
        return query.statistics(*await self._kept.read(query.keys))

    async def search(
        self,
        query_string: str,
        k: int,
        filters: Filter | None,
        by: TermStatistics | None = None,
    ) -> KeywordLeg:
        """Return the k best chunks that pass, best first."""
        narrowed = None if filters is None else native.translate(filters)
        fields = ["chunk_id", "words", "length", *needed(filters)]

        async def fetch(
            weights: Mapping[int, float], references: Sequence[int] | None, limit: int
        ) -> list[Proposal]:
            vector = query_vector(weights)
            band = None if references is None else native.of_references(list(references))
            within = native.all_of(narrowed, band)
            found = await self._collection.matching(vector, limit, within, fields)
            if not has_orderings(filters):
                return [_proposal(point) for point in found]
            return [_proposal(point, passes(filters, point.payload)) for point in found]

        query = SparseQuery(query_string, self._analyzer)
        return await keyword_leg(query, k, by, self._kept.read, fetch)

    async def _reference(self, lengths: Sequence[int]) -> int:
        """Return the reference for new chunks of these lengths.

        Any reference gives right answers, an accurate one gives fast answers. So the engine counts
        only occasionally, and this process adds its own writes.
        """
        known = self._counted
        if known is None or self._added_chunks > RECOUNT_AFTER * known.count:
            known = await self._statistics()
        self._added_chunks += len(lengths)
        self._added_terms += sum(lengths)
        terms = known.average * known.count + self._added_terms
        return reference_of(terms / (known.count + self._added_chunks))

    async def _statistics(self) -> Statistics:
        """Count the statistics in the engine, including deletions and other processes' writes."""
        lengths, references = await asyncio.gather(
            self._collection.facet("length"), self._collection.facet("reference")
        )
        self._counted = found = Statistics(lengths, references)
        self._added_chunks = self._added_terms = 0
        return found

    async def _frequencies(self, keys: Sequence[int]) -> list[int]:
        """Return the number of chunks with each term; drops unused terms if there are too many."""
        used: Sequence[int] = keys
        if len(keys) > MOST_COUNTS:
            blocks = [keys[start : start + BLOCK] for start in range(0, len(keys), BLOCK)]
            holding = await self._collection.counts([native.holding(*block) for block in blocks])
            pairs = zip(blocks, holding, strict=True)
            used = [key for block, number in pairs if number for key in block]
        counts = await self._collection.counts([native.holding(key) for key in used])
        found = dict(zip(used, counts, strict=True))
        return [found.get(key, 0) for key in keys]


def _proposal(point: FoundPoint, passes: bool = True) -> Proposal:
    payload = point.payload
    keys, frequencies = payload["words"]
    return Proposal(payload["chunk_id"], point.score, keys, frequencies, payload["length"], passes)
