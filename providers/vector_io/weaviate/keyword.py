"""BM25 by Corral's definition for the proposals of Weaviate's own BM25.

Weaviate ranks by the same words with the same k1, b and idf, but uses its own average length and
has no field weights. So it only proposes: each chunk is scored again from its stored frequencies
and the current statistics. The observed ratios of the scores bound that of the other chunks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import term_weight
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.candidates import Proposals, best_candidates
from corral.providers.vector_io.kit.sparse import Proposal, SparseQuery, packed, scored
from corral.providers.vector_io.kit.statistics import KeptStatistics
from corral.providers.vector_io.kit.tokens import needed, passes
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.client import CollectionReads
from corral.providers.vector_io.weaviate.records import StoredObject, repeats

MARGIN = 5
"""Chunks requested beyond 5/2 k at first, because Weaviate's order only approximates ours. Fewer
would suffice for k = 10; the 100 of a hybrid query need these, or four times as many are requested.
"""

MOST_COUNTS = 16
"""Terms counted concurrently."""

COUNTED_TOGETHER = 100
"""Terms of a long query that Weaviate first checks for any chunk."""

_SLACK = 1.05
"""Largest possible ratio over the largest observed one, if field weights are integers."""


class Keywords:
    """The keyword index of one vector DB.

    Args:
        vector_db: The registration; its language and field weights decide the terms.
        max_age_seconds: Maximum age of the statistics if another process writes.
    """

    def __init__(
        self, vector_db: VectorDB, collection: CollectionReads, max_age_seconds: float
    ) -> None:
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)
        self._collection = collection
        self._slack = slack_of(vector_db.field_weights)
        self._kept = KeptStatistics(
            collection.statistics, self._count, max_age_seconds, lasts=lambda one: one.average > 0
        )

    def forget(self) -> None:
        """Clear the statistics after a write."""
        self._kept.forget()

    def terms(self, chunk: Chunk) -> ChunkTerms:
        """Return the terms of a chunk."""
        return chunk_terms(chunk, self._weights, self._analyzer)

    async def term_statistics(self, query_string: str) -> TermStatistics:
        """Return the terms of a query for `search`."""
        terms = SparseQuery(query_string, self._analyzer).terms
        known, numbers = await self._kept.read(terms)
        return replace(known, holding=dict(zip(terms, numbers, strict=True)))

    async def search(
        self,
        query_string: str,
        k: int,
        filters: Filter | None,
        by: TermStatistics | None = None,
    ) -> KeywordLeg:
        """Return the k best chunks that pass, best first."""
        query = SparseQuery(query_string, self._analyzer)
        if not query.terms:
            return KeywordLeg([], 0.0)
        search = _Search(self._collection, self._kept, query, filters, self._slack, by)
        margin = 3 * k // 2 + MARGIN
        most = self._collection.limits.results
        found = await best_candidates(k, search.propose, margin=margin, most=most)
        return KeywordLeg(found, search.greatest() if found else 1.0)

    async def _count(self, terms: Sequence[str]) -> list[int]:
        """Return the number of chunks that contain each term.

        Each term takes a request, so if there are many, unused terms are ruled out in groups.
        """
        places = asyncio.Semaphore(MOST_COUNTS)

        async def count(*some: str) -> int:
            async with places:
                return await self._collection.count(native.holding(*some))

        async def count_each(some: Sequence[str]) -> list[int]:
            if len(terms) > COUNTED_TOGETHER and not await count(*some):
                return [0] * len(some)
            return await asyncio.gather(*map(count, some))

        groups = runs(terms, COUNTED_TOGETHER)
        return list(chain.from_iterable(await asyncio.gather(*map(count_each, groups))))


@dataclass(slots=True)
class _Search:
    """One query: Weaviate's proposals, and the statistics for their scores."""

    collection: CollectionReads
    kept: KeptStatistics[TermStatistics, str]
    query: SparseQuery
    filters: Filter | None
    slack: float
    by: TermStatistics | None
    statistics: TermStatistics = field(default_factory=partial(TermStatistics, 0, 0))
    holding: list[int] = field(default_factory=list)

    async def propose(self, limit: int) -> Proposals:
        """Request this many chunks from Weaviate, and score them by the definition."""
        narrowed = native.translate(self.filters) if self.filters else None
        properties = ["chunk_id", "frequencies", "length", *needed(self.filters)]
        text = " ".join(term for term, n in self.query.times.items() for _ in range(n))
        _, objects = await asyncio.gather(
            self._count(), self.collection.matching(text, limit, narrowed, properties)
        )
        if not objects or not self.statistics.average > 0:
            return Proposals([], None)
        words = [json.loads(one.properties["frequencies"]) for one in objects]
        await self._count_new(words)
        weights = self.query.weights(self._frequencies(), self._ranked_by.count)
        average = self._ranked_by.average or self.statistics.average
        found = [self._proposal(*one) for one in zip(objects, words, strict=True)]
        held: dict[str, tuple[int, ...]] = {}
        exact = {one.chunk_id: one for one in scored(weights, average, found, held)}
        for one in exact.values():
            one.matched_terms = self.query.held(held[one.chunk_id])
        passing = [exact[one.chunk_id] for one in found if one.passes and one.chunk_id in exact]
        if len(objects) < limit:
            return Proposals(passing, None)
        # A chunk after the last proposal hardly has a larger ratio of both scores than these.
        ratios = [
            exact[one.chunk_id].raw_score / one.score
            for one in found
            if one.chunk_id in exact and one.score
        ]
        most = max(ratios, default=0.0) * self.slack * self._spread(weights)
        return Proposals(passing, found[-1].score * most)

    def greatest(self) -> float:
        """Return the maximum possible score for all terms of the query."""
        return self.query.greatest(self._frequencies(), self._ranked_by.count)

    @property
    def _ranked_by(self) -> TermStatistics:
        return self.by or self.statistics

    def _frequencies(self) -> list[int]:
        """Return the number of chunks that contain each term, over all vector DBs searched."""
        return self.query.frequencies(self._ranked_by, self.holding)

    def _proposal(self, stored: StoredObject, words: Mapping[str, float]) -> Proposal:
        known = sorted(zip(self.query.keys, self.query.terms, strict=True))
        pairs = [(key, words[term]) for key, term in known if term in words]
        return Proposal(
            stored.properties["chunk_id"],
            stored.score,
            *packed([key for key, _ in pairs], [frequency for _, frequency in pairs]),
            int(stored.properties.get("length") or 0),
            passes(self.filters, stored.properties),
        )

    def _spread(self, weights: Mapping[int, float]) -> float:
        """Return the factor by which the weights of two terms can differ from Weaviate's.

        Weaviate's idf comes from its own chunks; with other statistics, a chunk that was not
        proposed may contain the term that gains most.
        """
        if self.by is None:
            return 1.0
        own = self.query.weights(self.holding, self.statistics.count)
        ratios = [weights[key] / own[key] for key in own if key in weights]
        return max(ratios) / min(ratios) if ratios else 1.0

    async def _count(self) -> None:
        """Count the statistics for the whole query, once."""
        if not self.holding:
            self.statistics, self.holding = await self.kept.read(self.query.terms)

    async def _count_new(self, words: Sequence[Mapping[str, float]]) -> None:
        """Count terms without chunks again, because a chunk was added during the search."""
        numbers = zip(self.query.terms, self.holding, strict=True)
        new = [term for term, n in numbers if not n and any(term in held for held in words)]
        if new:
            counts = dict(zip(new, await self.kept.holding(new), strict=True))
            numbers = zip(self.query.terms, self.holding, strict=True)
            self.holding = [counts.get(term, n) for term, n in numbers]


def slack_of(field_weights: Mapping[str, float]) -> float:
    """Return a factor by which a ratio of both scores can exceed the largest observed one.

    A word counts by its field's weight here, and in Weaviate by its repetitions in `terms`. These
    differ for weights below 1, above `MOST_REPEATS`, or between two integers, and all observed
    chunks may have their words in fields with a low ratio. For integer weights it is measured.
    """
    weights = np.array([*field_weights.values()])
    ratios = term_weight(weights, 1, 1.0) / term_weight(np.vectorize(repeats)(weights), 1, 1.0)
    return float(_SLACK * ratios.max() / ratios.min())
