"""A search: the provider's hooks are asked, and their answers checked, scored and fused."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker
from corral.api.chunks import Chunk
from corral.api.confidence import Evidence
from corral.api.errors import ContractViolation, InvalidEmbedding
from corral.api.filters import Filter
from corral.api.fusion import FusedHit, fuse, single_leg
from corral.api.hits import (
    Candidate,
    Hit,
    KeywordLeg,
    Leg,
    QueryChunksResponse,
    TermStatistics,
)
from corral.api.rankers import LegName
from corral.api.scoped_hooks import ScopedHooks
from corral.api.scoring import Metric, keyword_score, vector_score, whole_cosine
from corral.api.spans import span
from corral.api.vector_dbs import SearchMode, VectorDB

MAX_SEARCHES = 4
"""How often a query is searched where other writers replace what it found before it is read."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """The arguments of `EmbeddingIndex.query`, checked, in their one form.

    Attributes:
        vector: Shape (dimension,); None in keyword mode.
        filters: The caller's, within the scope of the principal.
    """

    mode: SearchMode
    k: int
    threshold: float
    text: str
    ranker: AnyRanker
    filters: Filter | None
    vector: NDArray[np.float32] | None
    fuzzy: bool
    include_embeddings: bool

    @property
    def leg_size(self) -> int:
        """Most candidates of a leg."""
        return self.ranker.leg_size(self.k) if self.mode is SearchMode.HYBRID else self.k

    @property
    def legs(self) -> Collection[str]:
        """The names of the legs that count."""
        return self.ranker.counted() if self.mode is SearchMode.HYBRID else [self.mode.value]


class LegSearch(ScopedHooks):
    """What `EmbeddingIndex.query` does with its checked arguments."""

    async def _answer(self, query: IndexQuery) -> QueryChunksResponse:
        for _ in range(MAX_SEARCHES):
            ranked, found, evidence = await self._search(query)
            kept = [hit for hit in ranked if hit.score >= query.threshold]
            hits = await self._hits(kept, found, query.include_embeddings)
            if len(hits) == len(kept):
                break  # else the next search finds what took the place of those that are gone
        return QueryChunksResponse(hits, evidence=evidence)

    async def _search(
        self, query: IndexQuery
    ) -> tuple[list[FusedHit], dict[str, Candidate], Evidence]:
        provider = self.vector_db.provider_id
        with span("engine", provider=provider, mode=query.mode, k=query.leg_size) as seen:
            legs = await self._legs(query)
            seen["candidates"] = sum(map(len, legs.values()))
        with span("fusion"):
            ranked = fuse_legs(self.vector_db, query, legs)
            found = {c.chunk_id: c for name in legs for c in legs[name]}
            cosine = share = None
            if query.vector is not None and "vector" in legs:
                cosine = await self._cosine(query.vector, legs["vector"])
            if "keyword" in legs:
                share = self._share(legs["keyword"], alone=cosine is None)
            return ranked, found, Evidence(cosine, share, self.vector_db.unrelated_cosine)

    async def _legs(self, query: IndexQuery) -> dict[LegName, Sequence[Candidate]]:
        """Return the candidates of each leg that counts."""
        legs: dict[LegName, Sequence[Candidate]] = {}
        vector, text, size, filters = query.vector, query.text, query.leg_size, query.filters
        if "vector" not in query.legs or vector is None:
            words = self._query_fuzzy if query.fuzzy else self._query_keyword
            legs["keyword"] = await words(text, size, filters)
        elif "keyword" not in query.legs:
            legs["vector"] = await self._query_vector(vector, size, filters)
        else:
            hybrid = self._query_fuzzy_hybrid if query.fuzzy else self._query_hybrid
            legs["vector"], legs["keyword"] = await hybrid(vector, text, size, filters)
        return legs

    async def _leg_by_vector(self, query: IndexQuery, size: int) -> Leg:
        if query.vector is None:
            raise InvalidEmbedding("A vector leg needs an embedding.", field="embedding")
        provider = self.vector_db.provider_id
        with span("engine", provider=provider, mode="vector", k=size) as seen:
            leg = await self._query_vector(query.vector, size, query.filters)
            seen["candidates"] = len(leg)
        check_leg(self.vector_db, "vector", leg, size)
        return Leg(leg, await self._cosine(query.vector, leg))

    async def _leg_by_words(
        self, query: IndexQuery, size: int, statistics: TermStatistics | None
    ) -> Leg:
        text, filters = query.text, query.filters
        provider = self.vector_db.provider_id
        with span("engine", provider=provider, mode="keyword", k=size) as seen:
            words = self._query_fuzzy if query.fuzzy else self._query_keyword
            by = () if statistics is None else (statistics,)
            leg = await words(text, size, filters, *by)
            seen["candidates"] = len(leg)
        check_leg(self.vector_db, "keyword", leg, size)
        return Leg(leg, self._share(leg, alone="vector" not in query.legs))

    def _share(self, words: Sequence[Candidate], *, alone: bool) -> float | None:
        """Return the best keyword score as a share of the greatest possible; None if unknown.

        Args:
            alone: Whether no other leg tells of the confidence: then a query without a word has 0.
        """
        # The greatest score depends on words that no chunk in the scope holds: it would tell of
        # hidden ones.
        if not self._scope.is_whole or not isinstance(words, KeywordLeg):
            return None
        if words.greatest <= 0 and not alone:
            return None
        return min(1.0, words[0].raw_score / words.greatest) if words else 0.0

    async def _cosine(self, vector: NDArray[np.float32], leg: Sequence[Candidate]) -> float:
        """Return the cosine of the best chunk, whatever the metric; 0 where there is none."""
        if not leg or _is_cosine(self.vector_db):
            return leg[0].raw_score if leg else 0.0
        for chunk in await self._get([leg[0].chunk_id], True):
            row, query = np.array(chunk.embedding, np.float64), vector.astype(np.float64)
            lengths = float(np.linalg.norm(row) * np.linalg.norm(query))
            return float(row @ query) / lengths if lengths > 0 else 0.0
        return 0.0  # another writer has deleted it

    async def _query_fuzzy_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        vector, keyword = await asyncio.gather(
            self._query_vector(embedding, k, filters), self._query_fuzzy(query_string, k, filters)
        )
        return vector, keyword

    async def _hits(
        self, ranked: Sequence[FusedHit], found: dict[str, Candidate], include_embeddings: bool
    ) -> list[Hit]:
        """Fetch the chunks that the hooks did not bring, and put the answer together.

        A chunk that another writer deleted or hid between search and fetch is left out; see
        `_answer`.
        """
        wanted = [found[hit.chunk_id] for hit in ranked]
        told = await self._chunks_of(wanted, include_embeddings)
        return [
            Hit(told[hit.chunk_id], hit.score, hit.explanation)
            for hit in ranked
            if hit.chunk_id in told
        ]

    async def _chunks_of(
        self, candidates: Sequence[Candidate], include_embeddings: bool
    ) -> dict[str, Chunk]:
        """Return the chunks of candidates by id, as far as they still exist and are visible."""
        chunks = {one.chunk_id: one.chunk for one in candidates}
        missing = [i for i, chunk in chunks.items() if chunk is None or include_embeddings]
        if missing:
            fetched = await self._get(missing, include_embeddings)
            chunks.update(dict.fromkeys(missing), **{c.chunk_id: c for c in fetched})
        stored = [chunk for chunk in chunks.values() if chunk is not None]
        return {chunk.chunk_id: chunk for chunk in await self._told(self._scope, stored)}


def fuse_legs(
    vector_db: VectorDB, query: IndexQuery, legs: Mapping[LegName, Sequence[Candidate]]
) -> list[FusedHit]:
    """Return the k best chunks of the legs, best first, ties by chunk_id.

    Raises:
        ContractViolation: As `score_leg` says.
    """
    scored = {name: score_leg(vector_db, name, leg, query.leg_size) for name, leg in legs.items()}
    terms = {c.chunk_id: c.matched_terms for c in legs.get("keyword", ())}
    if query.mode is SearchMode.HYBRID:
        return fuse(query.ranker, scored, query.k, terms)
    name, leg = next(iter(scored.items()))
    return single_leg(name, leg, terms)


def score_leg(
    vector_db: VectorDB, name: LegName, leg: Sequence[Candidate], size: int
) -> list[tuple[str, float, float]]:
    """Check a hook's answer and return it with scores, as `fuse` takes it.

    Raises:
        ContractViolation: As `check_leg` says.
    """
    check_leg(vector_db, name, leg, size)
    if name == "keyword":
        return [(c.chunk_id, keyword_score(c.raw_score), c.raw_score) for c in leg]
    metric, normalized = vector_db.metric, vector_db.normalize
    whole = whole_cosine if _is_cosine(vector_db) else float
    return [
        (c.chunk_id, vector_score(whole(c.raw_score), metric, normalized=normalized), c.raw_score)
        for c in leg
    ]


def check_leg(vector_db: VectorDB, name: LegName, leg: Sequence[Candidate], size: int) -> None:
    """Check a hook's answer.

    Raises:
        ContractViolation: Too many hits, not sorted, twice, or scores that cannot be.
    """
    what = f"{vector_db.provider_id}, {name} leg"
    raws = [candidate.raw_score for candidate in leg]
    if len(leg) > size:
        raise ContractViolation(f"{what}: {len(leg)} hits where {size} were asked for.")
    if not all(map(math.isfinite, raws)):
        raise ContractViolation(f"{what}: a score is not finite.")
    if any(map(operator.gt, raws[1:], raws)):
        raise ContractViolation(f"{what}: hits are not sorted, best first.")
    if len({candidate.chunk_id for candidate in leg}) < len(leg):
        raise ContractViolation(f"{what}: a chunk appears twice.")
    if name == "keyword" and raws and raws[-1] <= 0:
        raise ContractViolation(f"{what}: a keyword score is not above 0.")
    if name == "vector" and raws and not _possible(vector_db, raws[0], raws[-1]):
        raise ContractViolation(f"{what}: a raw score is out of the metric's range.")


def _is_cosine(vector_db: VectorDB) -> bool:
    return vector_db.normalize or vector_db.metric is Metric.COSINE


def _possible(vector_db: VectorDB, best: float, worst: float) -> bool:
    """Return True if the metric can give raw scores from `worst` to `best`, rounding allowed."""
    if _is_cosine(vector_db):
        return worst >= -1.001 and best <= 1.001
    return best <= 0 or vector_db.metric is not Metric.L2
