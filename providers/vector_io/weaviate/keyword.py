"""BM25 by Corral's definition for what Weaviate's own BM25 proposes.

Weaviate ranks by the same words with the same k1, b and idf, but keeps its own average length and
knows no field weights. So its scores only propose: each proposal is scored anew from the exact
frequencies stored in it, and with the statistics of the moment, which Weaviate counts. The ratio of
the two scores, as seen so far, tells how good a chunk can be that was not proposed yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import Analyzer, analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.candidates import Proposals, best_candidates
from corral.providers.vector_io.kit.statistics import KeptStatistics
from corral.providers.vector_io.kit.tokens import needed, passes
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.collection import Collection, Statistics
from corral.providers.vector_io.weaviate.records import StoredObject, repeats

MARGIN = 5
"""Chunks asked for beyond 5/2 k at first: Weaviate's order only resembles ours. Fewer would do for
k = 10; the 100 of a hybrid query need these, or four times as many are asked for."""

MOST_COUNTS = 16
"""Terms that are counted at the same time."""

COUNTED_TOGETHER = 100
"""Terms of a long query of which Weaviate is first asked whether any chunk holds one."""

_SLACK = 1.05
"""The largest ratio there is to the largest one seen, where all field weights are whole numbers."""


class Keywords:
    """The words of one vector DB.

    Args:
        vector_db: The registration; its language and field weights decide the terms.
        max_age_seconds: Most age of the statistics where another process writes.
    """

    def __init__(self, vector_db: VectorDB, collection: Collection, max_age_seconds: float) -> None:
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)
        self._collection = collection
        self._slack = slack_of(vector_db.field_weights)
        self._kept = KeptStatistics(
            collection.statistics, self._count, max_age_seconds, lasts=lambda one: one.average > 0
        )

    def forget(self) -> None:
        """Count anew for the next query: a write has ended."""
        self._kept.forget()

    def terms(self, chunk: Chunk) -> ChunkTerms:
        """Return the terms of a chunk."""
        return chunk_terms(chunk, self._weights, self._analyzer)

    async def term_statistics(self, query_string: str) -> TermStatistics:
        """Return what `search` ranks a query by."""
        terms = list(Query(query_string, self._analyzer).wanted)
        known, numbers = await self._kept.read(terms)
        holding = dict(zip(terms, numbers, strict=True))
        return TermStatistics(known.count, known.total_length, holding)

    async def search(
        self,
        query_string: str,
        k: int,
        filters: Filter | None,
        by: TermStatistics | None = None,
    ) -> KeywordLeg:
        """Return the k best chunks that pass, best first.

        Args:
            by: The statistics to rank by; None for the vector DB's own.
        """
        query = Query(query_string, self._analyzer)
        if not query.wanted:
            return KeywordLeg([], 0.0)
        search = _Search(self._collection, self._kept, query, filters, self._slack, by)
        margin = 3 * k // 2 + MARGIN
        most = self._collection.limits.results
        found = await best_candidates(k, search.propose, margin=margin, most=most)
        return KeywordLeg(found, search.greatest() if found else 1.0)

    async def _count(self, terms: Sequence[str]) -> list[int]:
        """Return how many chunks hold each term.

        A term is a request, so of many terms those that no chunk holds are ruled out in groups.
        """
        places = asyncio.Semaphore(MOST_COUNTS)

        async def count(*some: str) -> int:
            async with places:
                return await self._collection.count(native.holding(*some))

        async def count_each(some: Sequence[str]) -> list[int]:
            if len(terms) > COUNTED_TOGETHER and not await count(*some):
                return [0] * len(some)
            return await asyncio.gather(*map(count, some))

        starts = range(0, len(terms), COUNTED_TOGETHER)
        groups = [terms[start : start + COUNTED_TOGETHER] for start in starts]
        return list(chain.from_iterable(await asyncio.gather(*map(count_each, groups))))


@dataclass(slots=True)
class _Search:
    """One query: what Weaviate proposes for it, and what was counted for its scores."""

    collection: Collection
    kept: KeptStatistics[Statistics, str]
    query: Query
    filters: Filter | None
    slack: float
    by: TermStatistics | None
    statistics: Statistics = field(default_factory=partial(Statistics, 0, 0))
    holding: dict[str, int] = field(default_factory=dict)

    async def propose(self, limit: int) -> Proposals:
        """Ask Weaviate for so many chunks, and score them by the definition."""
        narrowed = native.translate(self.filters) if self.filters else None
        properties = ["chunk_id", "frequencies", "length", *needed(self.filters)]
        known, objects = await asyncio.gather(
            self._statistics(),
            self.collection.matching(self.query.text, limit, narrowed, properties),
        )
        if not objects or not known.average > 0:
            return Proposals([], None)
        found = [proposal(one, self.query) for one in objects]
        await self._count_new(held_terms(found))
        by = self._ranked_by()
        weights = self.query.weights(self._frequencies(), by.count)
        exact = scores(found, weights, by.average or known.average)
        candidates = [
            Candidate(one.chunk_id, score, matched_terms=tuple(one.frequencies))
            for stored, one, score in zip(objects, found, exact, strict=True)
            if score > 0 and passes(self.filters, stored.properties)
        ]
        slack = self.slack * self._spread(weights)
        unseen = most_unseen(found, exact, slack) if len(objects) >= limit else None
        return Proposals(candidates, unseen)

    def greatest(self) -> float:
        """Return the score that no chunk can exceed, going by all terms of the query."""
        return self.query.terms.greatest(self._frequencies(), self._ranked_by().count)

    def _ranked_by(self) -> TermStatistics:
        known = self.statistics
        return self.by or TermStatistics(known.count, known.total_length)

    def _frequencies(self) -> dict[str, int]:
        """Return by term the number of chunks that hold it, in all that is ranked together."""
        numbers = self._ranked_by()
        return {term: numbers.frequency(term, own) for term, own in self.holding.items()}

    def _spread(self, weights: Mapping[str, float]) -> float:
        """Return by how much the weights of two terms can differ from Weaviate's, as a factor.

        Its idf is that of its own chunks: by other statistics a chunk that was not proposed may
        hold the term that gains most.
        """
        if self.by is None:
            return 1.0
        own = self.query.weights(self.holding, self.statistics.count)
        ratios = [weights[term] / own[term] for term in own if term in weights]
        return max(ratios) / min(ratios) if ratios else 1.0

    async def _statistics(self) -> Statistics:
        """Count for the whole query, once."""
        if not self.holding:
            terms = list(self.query.wanted)
            self.statistics, numbers = await self.kept.read(terms)
            self.holding = dict(zip(terms, numbers, strict=True))
        return self.statistics

    async def _count_new(self, held: set[str]) -> None:
        """Count anew the terms that no chunk held: one with them came while Weaviate searched."""
        new = sorted(term for term in held if not self.holding[term])
        if new:
            self.holding.update(zip(new, await self.kept.holding(new), strict=True))


class Query:
    """The terms of a query; empty for a text without a word.

    Args:
        text: Any text. Its terms are joined by OR, and a repeated one counts as often.
        analyzer: The analyzer of the vector DB's language.
    """

    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self.terms = analyzer.query(text)
        self.wanted = dict(sorted(self.terms.times.items()))

    @property
    def text(self) -> str:
        """The terms joined by spaces, repeated as often as they were asked for."""
        return " ".join(term for term, times in self.wanted.items() for _ in range(times))

    def weights(self, frequencies: Mapping[str, int], count: int) -> dict[str, float]:
        """Return by term its weight, idf times repetitions.

        Args:
            frequencies: By term, the number of chunks that hold it. One above `count`, which a
                write between two counts can leave, counts as this.
            count: The number of chunks.
        """
        return {
            term: idf(min(frequencies[term], count), count) * times
            for term, times in self.wanted.items()
            if frequencies.get(term, 0) > 0 and count > 0
        }


@dataclass(frozen=True, slots=True)
class Proposal:
    """A chunk that Weaviate proposes.

    Attributes:
        chunk_id: The chunk.
        native: Weaviate's score.
        frequencies: Of the query's terms in it, by term in ascending order.
        length: Number of its terms.
    """

    chunk_id: str
    native: float
    frequencies: dict[str, float]
    length: int


def proposal(stored: StoredObject, query: Query) -> Proposal:
    """Read a proposal from an object with chunk_id, frequencies and length."""
    found: dict[str, float] = json.loads(stored.properties["frequencies"])
    held = {term: found[term] for term in sorted(query.wanted.keys() & found.keys())}
    length = int(stored.properties.get("length") or 0)
    return Proposal(stored.properties["chunk_id"], stored.score, held, length)


def held_terms(proposals: Iterable[Proposal]) -> set[str]:
    """Return the query's terms that some proposal holds: no other has a part in a score."""
    return {term for one in proposals for term in one.frequencies}


def scores(
    proposals: Sequence[Proposal], weights: Mapping[str, float], average: float
) -> list[float]:
    """Return the BM25 of each proposal, 0 for one without a term; equal for equal terms.

    Args:
        weights: Of `Query.weights`.
        average: Mean length of a chunk, above 0.
    """
    parts = [
        (row, weights[term], frequency, one.length)
        for row, one in enumerate(proposals)
        for term, frequency in one.frequencies.items()
        if term in weights
    ]
    if not parts:
        return [0.0] * len(proposals)
    rows, factors, frequencies, lengths = (np.array(column) for column in zip(*parts, strict=True))
    products = term_weight(frequencies.astype(np.float64), lengths, average) * factors
    totals: list[float] = np.bincount(rows, products, minlength=len(proposals)).tolist()
    return totals


def slack_of(field_weights: Mapping[str, float]) -> float:
    """Return by how much a ratio of both scores can exceed the largest seen, going by experience.

    A word counts by its field's weight here, and there by how often `terms` repeats it. That is not
    the same for weights below 1, above `MOST_REPEATS`, or between two whole numbers, and of the
    chunks seen all may have their words in fields where the ratio is low. The slack for whole
    weights is measured.
    """
    weights = np.array([*field_weights.values()])
    ratios = term_weight(weights, 1, 1.0) / term_weight(np.vectorize(repeats)(weights), 1, 1.0)
    return float(_SLACK * ratios.max() / ratios.min())


def most_unseen(proposals: Sequence[Proposal], exact: Sequence[float], slack: float) -> float:
    """Return what a chunk behind the last proposal scores at most, going by the proposals."""
    ratios = [score / one.native for one, score in zip(proposals, exact, strict=True) if one.native]
    return proposals[-1].native * max(ratios, default=0.0) * slack
