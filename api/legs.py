"""A search of an engine: the candidates of each leg, checked, scored and fused."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker
from corral.api.confidence import Evidence
from corral.api.engine import Engine
from corral.api.errors import ContractViolation, InvalidEmbedding
from corral.api.filters import Filter
from corral.api.fusion import FusedHit, fuse, single_leg
from corral.api.hits import (
    Candidate,
    Hit,
    KeywordLeg,
    Leg,
    QueryChunksResponse,
    SearcherState,
    TermStatistics,
    VectorLeg,
)
from corral.api.rankers import LegName
from corral.api.scope import Scope
from corral.api.scoped_engine import ScopedEngine
from corral.api.scoring import Metric, keyword_score, vector_score, whole_cosine
from corral.api.spans import Attributes, span
from corral.api.vector_dbs import SearchMode, VectorDB

MAX_SEARCHES = 4
"""Maximum searches for one query, while concurrent writers replace chunks before they are read."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """The arguments of `EmbeddingIndex.query`, parsed and checked.

    Attributes:
        vector: Shape (dimension,); None in keyword mode.
        filters: The caller's filter, narrowed to the scope of the principal.
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
        """Maximum number of candidates of a leg."""
        return self.ranker.leg_size(self.k) if self.mode is SearchMode.HYBRID else self.k

    @property
    def legs(self) -> Collection[str]:
        """The names of the legs that count."""
        return self.ranker.counted() if self.mode is SearchMode.HYBRID else [self.mode.value]


async def answer(view: ScopedEngine, query: IndexQuery) -> QueryChunksResponse:
    """Return the hits of a query in a scope, and the evidence of its confidence."""
    for _ in range(MAX_SEARCHES):
        ranked, candidates, evidence, searchers = await _search(view, query)
        above = [hit for hit in ranked if hit.score >= query.threshold]
        hits = await _hits(view, above, candidates, query.include_embeddings)
        if len(hits) == len(above):
            break  # otherwise, search again for the chunks that replaced the deleted chunks
    return QueryChunksResponse(hits, evidence=evidence, searchers=searchers)


async def _search(
    view: ScopedEngine, query: IndexQuery
) -> tuple[list[FusedHit], dict[str, Candidate], Evidence, list[SearcherState]]:
    provider = view.engine.vector_db.provider_id
    with span("engine", provider=provider, mode=query.mode, k=query.leg_size) as traced:
        legs = await _legs(view.engine, query)
        traced["candidates"] = sum(map(len, legs.values()))
        searcher = _searcher(view.scope, legs.get("vector", ()), traced)
    with span("fusion"):
        ranked = fuse_legs(view.engine.vector_db, query, legs)
        candidates = {c.chunk_id: c for name in legs for c in legs[name]}
        cosine = share = None
        if query.vector is not None and "vector" in legs:
            cosine = await _cosine(view.engine, query.vector, legs["vector"])
        if "keyword" in legs:
            share = _share(view.scope, legs["keyword"], alone=cosine is None)
        evidence = Evidence(cosine, share, view.engine.vector_db.unrelated_cosine)
        return ranked, candidates, evidence, [searcher] if searcher else []


def _searcher(scope: Scope, leg: Sequence[Candidate], traced: Attributes) -> SearcherState | None:
    """Return the searcher of a vector leg as the principal may see it, and trace it."""
    if not isinstance(leg, VectorLeg):
        return None
    traced["searcher"] = leg.searcher.method
    if leg.searcher.recall is not None:
        traced["searcher_recall"] = leg.searcher.recall
    if leg.searcher.indexed is not None:
        traced["searcher_indexed"] = leg.searcher.indexed
    return leg.searcher if scope.is_whole else replace(leg.searcher, indexed=None)


async def _legs(engine: Engine, query: IndexQuery) -> dict[LegName, Sequence[Candidate]]:
    """Return the candidates of each leg that counts."""
    legs: dict[LegName, Sequence[Candidate]] = {}
    vector, text, size, filters = query.vector, query.text, query.leg_size, query.filters
    if "vector" not in query.legs or vector is None:
        legs["keyword"] = await _words(engine, query.fuzzy)(text, size, filters)
    elif "keyword" not in query.legs:
        legs["vector"] = await engine.search_vector(vector, size, filters)
    elif query.fuzzy:
        legs["vector"], legs["keyword"] = await asyncio.gather(
            engine.search_vector(vector, size, filters),
            engine.search_fuzzy(text, size, filters),
        )
    else:
        legs["vector"], legs["keyword"] = await engine.search_hybrid(vector, text, size, filters)
    return legs


def _words(engine: Engine, fuzzy: bool) -> Callable[..., Awaitable[Sequence[Candidate]]]:
    return engine.search_fuzzy if fuzzy else engine.search_keyword


async def vector_leg(view: ScopedEngine, query: IndexQuery, size: int) -> Leg:
    """Return at most `size` candidates of the vector leg."""
    if query.vector is None:
        raise InvalidEmbedding("A vector leg needs an embedding.", field="embedding")
    provider = view.engine.vector_db.provider_id
    with span("engine", provider=provider, mode="vector", k=size) as traced:
        leg = await view.engine.search_vector(query.vector, size, query.filters)
        traced["candidates"] = len(leg)
        searcher = _searcher(view.scope, leg, traced)
    check_leg(view.engine.vector_db, "vector", leg, size)
    return Leg(leg, await _cosine(view.engine, query.vector, leg), searcher)


async def keyword_leg(
    view: ScopedEngine, query: IndexQuery, size: int, statistics: TermStatistics | None
) -> Leg:
    """Return at most `size` candidates of the keyword leg, ranked by the statistics if given."""
    provider = view.engine.vector_db.provider_id
    with span("engine", provider=provider, mode="keyword", k=size) as traced:
        by = () if statistics is None else (statistics,)
        leg = await _words(view.engine, query.fuzzy)(query.text, size, query.filters, *by)
        traced["candidates"] = len(leg)
    check_leg(view.engine.vector_db, "keyword", leg, size)
    return Leg(leg, _share(view.scope, leg, alone="vector" not in query.legs))


def _share(scope: Scope, leg: Sequence[Candidate], *, alone: bool) -> float | None:
    """Return the best keyword score as a share of the maximum score; None if unknown.

    Args:
        alone: True if the keyword leg is the only evidence; a query without a word then has 0.
    """
    # The maximum score uses statistics of all chunks, which would leak hidden chunks.
    if not scope.is_whole or not isinstance(leg, KeywordLeg):
        return None
    if leg.greatest <= 0 and not alone:
        return None
    return min(1.0, leg[0].raw_score / leg.greatest) if leg else 0.0


async def _cosine(engine: Engine, vector: NDArray[np.float32], leg: Sequence[Candidate]) -> float:
    """Return the cosine of the best chunk, whatever the metric; 0 without one."""
    if not leg or is_cosine(engine.vector_db):
        return leg[0].raw_score if leg else 0.0
    for chunk in await engine.get([leg[0].chunk_id], True):
        row, query = np.array(chunk.embedding, np.float64), vector.astype(np.float64)
        lengths = float(np.linalg.norm(row) * np.linalg.norm(query))
        return float(row @ query) / lengths if lengths > 0 else 0.0
    return 0.0  # another writer has deleted it


async def _hits(
    view: ScopedEngine,
    ranked: Sequence[FusedHit],
    candidates: dict[str, Candidate],
    include_embeddings: bool,
) -> list[Hit]:
    """Return the hits with their chunks, except chunks deleted or hidden since the search."""
    winners = [candidates[hit.chunk_id] for hit in ranked]
    chunks = await view.chunks_of(winners, include_embeddings)
    return [
        Hit(chunks[hit.chunk_id], hit.score, hit.explanation)
        for hit in ranked
        if hit.chunk_id in chunks
    ]


def fuse_legs(
    vector_db: VectorDB, query: IndexQuery, legs: Mapping[LegName, Sequence[Candidate]]
) -> list[FusedHit]:
    """Return the k best chunks of the legs, best first, ties by chunk_id.

    Raises:
        ContractViolation: See `score_leg`.
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
    """Check an engine's answer and return it with scores, in the form for `fuse`.

    Raises:
        ContractViolation: See `check_leg`.
    """
    check_leg(vector_db, name, leg, size)
    if name == "keyword":
        return [(c.chunk_id, keyword_score(c.raw_score), c.raw_score) for c in leg]
    metric, normalized = vector_db.metric, vector_db.normalize
    whole = whole_cosine if is_cosine(vector_db) else float
    return [
        (c.chunk_id, vector_score(whole(c.raw_score), metric, normalized=normalized), c.raw_score)
        for c in leg
    ]


def check_leg(vector_db: VectorDB, name: LegName, leg: Sequence[Candidate], size: int) -> None:
    """Check an engine's answer.

    Raises:
        ContractViolation: Too many or unsorted hits, a chunk twice, or impossible scores.
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


def is_cosine(vector_db: VectorDB) -> bool:
    """Return True if raw vector scores are cosines."""
    return vector_db.normalize or vector_db.metric is Metric.COSINE


def _possible(vector_db: VectorDB, best: float, worst: float) -> bool:
    """Return True if the metric can give raw scores from `worst` to `best`, rounding allowed."""
    if is_cosine(vector_db):
        return worst >= -1.001 and best <= 1.001
    return best <= 0 or vector_db.metric is not Metric.L2
