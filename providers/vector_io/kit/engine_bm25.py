"""Keyword search on engines with their own BM25.

Such an engine ranks the same words with the same k1, b and idf, but it rounds lengths, keeps its
own average, counts deleted chunks, or has no field weights. So it only proposes chunks. Each
proposal is scored again from the exact frequencies stored with it and the current statistics, which
the engine counts. The ratios of the two scores seen so far bound the score of a chunk that has not
been proposed yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import term_weight
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.candidates import Proposals, best_candidates
from corral.providers.vector_io.kit.records import ReadFields, attach_chunks
from corral.providers.vector_io.kit.sparse import Proposal, SparseQuery, scored
from corral.providers.vector_io.kit.statistics import KeptStatistics

MARGIN = 5
"""Proposals requested beyond 5/2 k at first, because the engine's order only resembles ours. Fewer
would suffice for k = 10. With fewer, the 100 of a hybrid query would need a second request for four
times as many."""

MAX_REPEATS = 8
"""Maximum number of repetitions of a word; at k1 = 1.2, a ninth adds almost nothing to BM25."""

_SLACK = 1.05
"""Maximum factor between the largest ratio and the largest one seen, if all field weights are whole
numbers."""


class Matches(NamedTuple):
    """Chunks that an engine proposes for a query.

    Attributes:
        proposals: The chunks, in any order.
        unseen: Upper bound for the engine's score of any other chunk; None if there is no other.
    """

    proposals: Sequence[Proposal]
    unseen: float | None

    @classmethod
    def best(cls, proposals: Sequence[Proposal], limit: int) -> Matches:
        """Return the answer to one request for `limit` chunks."""
        return cls(proposals, proposals[-1].score if len(proposals) >= limit else None)

    @classmethod
    def of_parts(cls, parts: Sequence[Matches]) -> Matches:
        """Return the matches of a query from those of its parts.

        The scores of a chunk are added up. A chunk that no part returned has at most the sum of
        their bounds.
        """
        if len(parts) == 1:
            return parts[0]
        merged: dict[str, Proposal] = {}
        for one in chain.from_iterable(part.proposals for part in parts):
            scores = merged.setdefault(one.chunk_id, replace(one, score=0.0))
            scores.score += one.score
        bounds = [part.unseen for part in parts if part.unseen is not None]
        return cls([*merged.values()], sum(bounds) if bounds else None)


class WordIndex(Protocol):
    """The words of one vector DB, searched and counted by its engine."""

    async def statistics(self) -> TermStatistics:
        """Return the number of chunks and of all their terms; `holding` stays empty."""

    async def holding(self, terms: Sequence[str]) -> Sequence[int]:
        """Return the number of chunks that contain each term."""

    async def matching(self, query: SparseQuery, limit: int, filters: Filter | None) -> Matches:
        """Return the chunks that contain a term of the query and have the engine's best scores.

        Args:
            query: The query; it has at least one term.
            limit: Number of chunks to request.
            filters: Applied before the limit; the engine may pass too many chunks (see
                `Proposal.passes`).
        """


def engine_terms(terms: ChunkTerms) -> Iterator[str]:
    """Yield the words to index, each repeated by its frequency.

    An engine counts whole words, so a word in a field of weight 2 is repeated twice.
    """
    for term, frequency in terms.frequencies.items():
        for _ in range(repeats(frequency)):
            yield term


def repeats(frequency: float) -> int:
    """Return the number of repetitions of a word with this frequency, 1 to `MAX_REPEATS`."""
    return min(MAX_REPEATS, max(1, round(frequency)))


class Keywords:
    """Keyword search of one vector DB.

    Args:
        vector_db: The registration; its language and field weights decide the terms.
        index: The engine's words.
        most: Maximum number of chunks that the engine returns.
        max_age_seconds: Maximum age of the statistics if another process writes.
    """

    def __init__(
        self, vector_db: VectorDB, index: WordIndex, most: int, max_age_seconds: float
    ) -> None:
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)
        self._index = index
        self._most = most
        self._slack = slack_of(vector_db.field_weights)
        self._kept = KeptStatistics(
            index.statistics, index.holding, max_age_seconds, lasts=lambda one: one.average > 0
        )

    def forget(self) -> None:
        """Count again for the next query; call this after a write."""
        self._kept.forget()

    def terms(self, chunk: Chunk) -> ChunkTerms:
        """Return the terms of a chunk."""
        return chunk_terms(chunk, self._weights, self._analyzer)

    async def term_statistics(self, query_string: str) -> TermStatistics:
        """Return the statistics of a query for `search`."""
        terms = SparseQuery(query_string, self._analyzer).terms
        counted, numbers = await self._kept.read(terms)
        return replace(counted, holding=dict(zip(terms, numbers, strict=True)))

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
        search = _Search(self._index, self._kept, query, filters, self._slack, by)
        margin = 3 * k // 2 + MARGIN
        best = await best_candidates(k, search.propose, margin=margin, most=self._most)
        attach_chunks(best, search.stored)
        return KeywordLeg(best, search.greatest() if best else 1.0)


@dataclass(slots=True)
class _Search:
    """One query: the engine's proposals, and the counts for their scores."""

    index: WordIndex
    counts: KeptStatistics[TermStatistics, str]
    query: SparseQuery
    filters: Filter | None
    slack: float
    by: TermStatistics | None
    statistics: TermStatistics = field(default_factory=partial(TermStatistics, 0, 0))
    holding: list[int] = field(default_factory=list)
    stored: dict[str, ReadFields | None] = field(default_factory=dict)

    async def propose(self, limit: int) -> Proposals:
        """Request `limit` chunks from the engine, and score them by the definition of BM25."""
        _, (matches, unseen) = await asyncio.gather(
            self._count(), self.index.matching(self.query, limit, self.filters)
        )
        if not matches or not self.statistics.average > 0:
            return Proposals([], None)
        self.stored |= {one.chunk_id: one.stored for one in matches}
        await self._count_new(matches)
        weights = self.query.weights(self._frequencies(), self._ranked_by.count)
        average = self._ranked_by.average or self.statistics.average
        held: dict[str, tuple[int, ...]] = {}
        exact = {one.chunk_id: one for one in scored(weights, average, matches, held)}
        for one in exact.values():
            one.matched_terms = self.query.held(held[one.chunk_id])
        passing = [exact[one.chunk_id] for one in matches if one.passes and one.chunk_id in exact]
        if unseen is None:
            return Proposals(passing, None)
        # The ratio of both scores of a chunk that was not proposed is at most about these.
        ratios = [
            exact[one.chunk_id].raw_score / one.score
            for one in matches
            if one.chunk_id in exact and one.score
        ]
        most = max(ratios, default=0.0) * self.slack * self._spread(weights)
        return Proposals(passing, unseen * most)

    def greatest(self) -> float:
        """Return the maximum possible score, with all terms of the query."""
        return self.query.greatest(self._frequencies(), self._ranked_by.count)

    @property
    def _ranked_by(self) -> TermStatistics:
        return self.by or self.statistics

    def _frequencies(self) -> list[int]:
        """Return the number of chunks with each term, in all vector DBs ranked together."""
        return self.query.frequencies(self._ranked_by, self.holding)

    def _spread(self, weights: Mapping[int, float]) -> float:
        """Return the maximum factor between a ratio of two terms' weights and the engine's.

        The engine's idf counts only its own chunks. With other statistics, a chunk that was not
        proposed may contain the term that gains most.
        """
        if self.by is None:
            return 1.0
        own = self.query.weights(self.holding, self.statistics.count)
        ratios = [weights[key] / own[key] for key in own if key in weights]
        return max(ratios) / min(ratios) if ratios else 1.0

    async def _count(self) -> None:
        """Count the terms of the whole query, once."""
        if not self.holding:
            self.statistics, self.holding = await self.counts.read(self.query.terms)

    async def _count_new(self, matches: Iterable[Proposal]) -> None:
        """Count the terms without chunks again if a chunk was added during the search."""
        absent = [term for term, n in zip(self.query.terms, self.holding, strict=True) if not n]
        if not absent:
            return
        keys = {key for one in matches for key in np.frombuffer(one.keys, "<i8").tolist()}
        pairs = zip(self.query.keys, self.query.terms, strict=True)
        new = [term for key, term in pairs if term in absent and key in keys]
        if new:
            again = dict(zip(new, await self.counts.holding(new), strict=True))
            numbers = zip(self.query.terms, self.holding, strict=True)
            self.holding = [again.get(term, n) for term, n in numbers]


def slack_of(field_weights: Mapping[str, float]) -> float:
    """Return an empirical bound for any ratio of both scores, as a factor of the largest seen.

    Here a word counts by its field's weight; in the engine it counts by its number of repetitions
    (`engine_terms`). These differ for weights below 1, above `MAX_REPEATS`, or between whole
    numbers, and all chunks seen may have their words in fields with a low ratio. The slack for
    whole weights was measured.
    """
    weights = np.array([*field_weights.values()])
    ratios = term_weight(weights, 1, 1.0) / term_weight(np.vectorize(repeats)(weights), 1, 1.0)
    return float(_SLACK * ratios.max() / ratios.min())
