"""Fusion: merges two ranked lists of chunks. Pure functions, used by every provider.

Fusion reads ranks and scores, never text (re-ranking does). There are three methods:

* `rrf`, reciprocal rank fusion: sum over the legs of weight / (rank_constant + rank), divided by
  its maximum (sum of weights) / (rank_constant + 1), so that 1.0 means first in every leg.
  Cormack, Clarke, Buettcher: "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
  Learning Methods", SIGIR 2009, section 2; the paper also suggests rank_constant 60.
* `weighted`, a convex combination: alpha * vector + (1 - alpha) * keyword of the legs' scores,
  as they are or normalized first.
  Bruch, Gai, Ingber: "An Analysis of Fusion Functions for Hybrid Retrieval", TOIS 2023, section 4.
  With z-scores it is the default (RFC 0001). If the ranker has no alpha, the vector leg counts less
  for a query that the embedding model cannot read (RFC 0001).
* `max`: each leg's score scaled by its weight, the best leg wins.

In all three, weight 0 switches a leg off: it is not searched, and the answer lacks the chunks that
only this leg would find.

Ranks are competition ranks (tied chunks share a rank), and equal fused scores are ordered by
chunk_id, so equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from corral.api.rankers import (
    LEGS,
    RANK_CONSTANT,
    LegName,
    MaxRanker,
    RRFRanker,
    WeightedRanker,
)
from corral.api.scoring import SINGLE_PRECISION_SLACK, competition_ranks


@dataclass(slots=True)  # not frozen: a query makes hundreds, and freezing triples the cost
class LegHit:
    """A chunk's rank and scores in one leg.

    Attributes:
        rank: Competition rank in the leg, from 1.
        score: The leg's score in [0, 1].
        raw_score: The engine's score, higher is better: cosine, inner product, minus the L2
            distance, or BM25.
    """

    rank: int
    score: float
    raw_score: float


@dataclass(slots=True)  # not frozen, as `LegHit`
class Explanation:
    """How a chunk's score was computed from its legs.

    Attributes:
        legs: By leg name, the chunk's rank and scores in each leg that returned it.
        contributions: By leg name, weight times normalized score. The fused score is their sum,
            under `max` the larger of them. Empty in a single-leg search.
        matched_terms: Index terms of the query that the chunk contains, if the engine reports them.
        weights: By leg name, the leg's weight in this fusion; empty in a single-leg search.
        normalized: By leg name, the leg's score as fused, in [0, 1]; empty in a single-leg search.
        asked: By leg name, the ranker's weight before it is multiplied by the spread: alpha and
            1 - alpha. For both legs; empty unless both legs' scores are z-scores.
        spreads: By leg name, the distance from the leg's floor to its best score, in standard
            deviations; empty if `asked` is. `weights` are asked times spread, scaled to sum 1.
        query_ranks: The chunk's rank for each of several queries, None if a query did not return
            it; empty for a single query.
        rerank: The parts of a re-ranked chunk's score, by name; empty without re-ranking.
        recency: `age_days`, unless it is unknown; the `factor`, the `floor` from which the score
            counts, and `score_before`; empty without a `recency`.
        matched_words: Distinct words of the content, as written, that match a term, from its first
            100,000 characters; empty unless the request has `explain`.
    """

    legs: Mapping[LegName, LegHit]
    contributions: Mapping[LegName, float] = field(default_factory=dict)
    matched_terms: tuple[str, ...] = ()
    weights: Mapping[LegName, float] = field(default_factory=dict)
    normalized: Mapping[LegName, float] = field(default_factory=dict)
    asked: Mapping[LegName, float] = field(default_factory=dict)
    spreads: Mapping[LegName, float] = field(default_factory=dict)
    query_ranks: tuple[int | None, ...] = ()
    rerank: Mapping[str, float | str] = field(default_factory=dict)
    recency: Mapping[str, float] = field(default_factory=dict)
    matched_words: tuple[str, ...] = ()


@dataclass(slots=True)  # not frozen, as `LegHit`
class FusedHit:
    """A chunk's place in the fused list."""

    chunk_id: str
    score: float
    explanation: Explanation


Leg: TypeAlias = Sequence[tuple[str, float, float]]
"""(chunk_id, score, raw_score), best first."""

Terms: TypeAlias = Mapping[str, tuple[str, ...]]
"""By chunk_id, the query's index terms that the chunk contains."""

NO_TERMS: Terms = {}

_Found: TypeAlias = Mapping[LegName, Leg]
_Weights: TypeAlias = Mapping[LegName, float]


@dataclass(frozen=True, slots=True)
class _Share:
    """The weight of each leg, and the normalized scores of its chunks (`worth`), in [0, 1].

    `given` becomes `Explanation.asked`, and `spreads` becomes `Explanation.spreads`.
    """

    weights: _Weights
    worth: Mapping[LegName, Sequence[float]]
    given: _Weights = field(default_factory=dict)
    spreads: _Weights = field(default_factory=dict)


def fuse(
    ranker: RRFRanker | WeightedRanker | MaxRanker,
    legs: Mapping[LegName, Leg],
    k: int | None = None,
    terms: Terms = NO_TERMS,
) -> list[FusedHit]:
    """Fuse the legs and return the k best chunks of either, best first, ties by chunk_id.

    Examples:
        >>> vector = [("a", 0.9, 0.8), ("b", 0.7, 0.4)]
        >>> keyword = [("b", 0.75, 3.0)]
        >>> hits = fuse(RRFRanker(), {"vector": vector, "keyword": keyword})
        >>> [(hit.chunk_id, round(hit.score, 3)) for hit in hits]
        [('b', 0.992), ('a', 0.5)]

    Args:
        ranker: The fusion method and its parameters.
        legs: By name, each leg's hits, best first, chunk ids unique within a leg. A leg that is
            absent or has weight 0 counts as empty.
        k: Maximum number of hits; None for all.
        terms: By chunk_id, the `matched_terms` of its explanation.

    Returns:
        Hits with scores in [0, 1]. Cost: O(n log n) in the number of candidates.
    """
    counted = ranker.counted()
    searched = {name: legs.get(name, ()) if name in counted else () for name in LEGS}
    share = _SHARES[ranker.type](ranker, searched)
    larger = ranker.type == "max"
    total: dict[str, float] = {}
    for name in LEGS:
        weight = share.weights[name]
        for (chunk_id, _, _), worth in zip(searched[name], share.worth[name], strict=True):
            part, other = weight * worth, total.get(chunk_id, 0.0)
            total[chunk_id] = max(part, other) if larger else part + other
    pairs = [(-score if score < 1.0 else -1.0, chunk_id) for chunk_id, score in total.items()]
    ranked = sorted(pairs)[:k]
    explanations = _explanations(searched, [chunk_id for _, chunk_id in ranked], share, terms)
    return [
        FusedHit(chunk_id, -negative, explanation)
        for (negative, chunk_id), explanation in zip(ranked, explanations, strict=True)
    ]


def _explanations(
    legs_of_all: _Found, chunk_ids: Sequence[str], share: _Share, terms: Terms
) -> Iterator[Explanation]:
    places = {name: {one[0]: place for place, one in enumerate(legs_of_all[name])} for name in LEGS}
    ranks = {name: _ranks(legs_of_all[name]) for name in LEGS}
    for chunk_id in chunk_ids:
        legs: dict[LegName, LegHit] = {}
        weights: dict[LegName, float] = {}
        normalized: dict[LegName, float] = {}
        contributions: dict[LegName, float] = {}
        for name in LEGS:
            place = places[name].get(chunk_id)
            if place is None:
                continue
            _, score, raw = legs_of_all[name][place]
            legs[name] = LegHit(ranks[name][place], score, raw)
            weights[name], normalized[name] = share.weights[name], share.worth[name][place]
            contributions[name] = weights[name] * normalized[name]
        yield Explanation(
            legs,
            contributions,
            terms.get(chunk_id, ()),
            weights,
            normalized,
            share.given,
            share.spreads,
        )


def single_leg(name: LegName, leg: Leg, terms: Terms = NO_TERMS) -> list[FusedHit]:
    """Return one leg's hits in the form of `fuse`, by raw score, ties by chunk_id.

    Two large raw scores can round to the same float64 score; the raw score still orders them.
    """
    hits = [
        FusedHit(
            chunk_id,
            score,
            Explanation({name: LegHit(rank, score, raw)}, matched_terms=terms.get(chunk_id, ())),
        )
        for (chunk_id, score, raw), rank in zip(leg, _ranks(leg), strict=True)
    ]
    hits.sort(key=lambda hit: (-hit.explanation.legs[name].raw_score, hit.chunk_id))
    return hits


def merge_ranked(lists: Sequence[Sequence[tuple[str, float]]]) -> list[tuple[str, float]]:
    """Fuse any number of (id, score) lists by rank; return (id, RRF score in [0, 1]), best first.

    It merges the answers to several wordings of one question. An id that is first in every list
    scores 1; ties are ordered by id.

    Examples:
        >>> merge_ranked([[("a", 0.9), ("b", 0.5)], [("a", 0.8)]])[0]
        ('a', 1.0)

    Args:
        lists: Each best first.
    """
    total: dict[str, float] = {}
    for ranked in lists:
        ranks = competition_ranks([score for _, score in ranked])
        for (identifier, _), rank in zip(ranked, ranks, strict=True):
            total[identifier] = total.get(identifier, 0.0) + 1 / (RANK_CONSTANT + rank)
    best = (len(lists) or 1) / (RANK_CONSTANT + 1)
    scores = ((i, min(1.0, s / best)) for i, s in total.items())  # a rounded sum can exceed 1
    return sorted(scores, key=lambda pair: (-pair[1], pair[0]))


def _ranks(leg: Leg) -> list[int]:
    return competition_ranks(_raws(leg))


def _rrf_share(ranker: RRFRanker, legs: _Found) -> _Share:
    constant = ranker.rank_constant
    total = sum(map(ranker.weight, LEGS))
    shares = {name: ranker.weight(name) / total for name in LEGS}
    worth = {
        name: [(constant + 1) / (constant + rank) for rank in _ranks(leg)]
        for name, leg in legs.items()
    }
    return _Share(shares, worth)


def _weighted_share(ranker: WeightedRanker, legs: _Found) -> _Share:
    weight = {name: ranker.weight(name) for name in LEGS}
    if ranker.normalization == "raw":
        return _Share(weight, _scores(legs))
    # If one leg is empty, the other keeps its weight.
    spreads = _spreads(legs) if ranker.normalization == "z_score" and all(legs.values()) else {}
    given = weight if spreads else {}
    if spreads:
        best = sum(weight[name] * spreads[name] for name in LEGS)
        weight = {name: weight[name] * spreads[name] / best for name in LEGS}
    worth = {name: _stretched(name, leg, ranker.normalization) for name, leg in legs.items()}
    return _Share(weight, worth, given, spreads)


def _stretched(name: LegName, leg: Leg, normalization: str) -> list[float]:
    """Return each chunk's score scaled so that the leg's floor is 0 and its best score is 1."""
    raws = _raws(leg)
    low, high = _floor(name, leg, normalization), max(raws, default=0.0)
    if _is_flat(low, high):  # one candidate, or equal scores: each is the best of its leg
        return [1.0] * len(raws)
    return [(raw - low) / (high - low) for raw in raws]


def _spreads(legs: _Found) -> dict[LegName, float]:
    """Return the factor of each leg's weight; the products are then scaled to sum 1.

    A z-score is (score - mean) / deviation. Measured from the floor instead of the mean, which
    shifts all candidates of a leg equally, it is `spread` times the min-max score, and 0 for a
    chunk that the leg did not return. So combining z-scores equals combining min-max scores under
    these weights, and the result stays in [0, 1]. A leg with fewer candidates than the other is
    padded with its floor, the score of the chunks that it did not return.
    """
    size = max(map(len, legs.values())) + 1
    return {name: _spread(name, leg, size) for name, leg in legs.items()}


def _spread(name: LegName, leg: Leg, size: int) -> float:
    """Return (best - floor) / standard deviation of a leg's `size` scores."""
    low = _floor(name, leg, "z_score")
    scores = [raw - low for raw in _raws(leg)]
    best = max(scores)
    if _is_flat(low, low + best):
        return 1.0
    scaled = [score / best for score in scores] + [0.0] * (size - len(scores))
    return 1.0 / float(np.std(scaled))


def _is_flat(low: float, high: float) -> bool:
    """Return True if two raw scores may differ by rounding only.

    Scaling would turn such a difference into 0 and 1.
    """
    return high - low <= SINGLE_PRECISION_SLACK * max(abs(low), abs(high))


def _floor(name: LegName, leg: Leg, normalization: str) -> float:
    """Return the raw score that is scaled to 0: zero for BM25 z-scores, else the lowest score."""
    if normalization == "z_score" and name == "keyword":
        return 0.0
    return min(_raws(leg), default=0.0)


def _raws(leg: Leg) -> list[float]:
    return [raw for _, _, raw in leg]


def _scores(legs: _Found) -> dict[LegName, list[float]]:
    return {name: [score for _, score, _ in leg] for name, leg in legs.items()}


def _max_share(ranker: MaxRanker, legs: _Found) -> _Share:
    return _Share({name: ranker.weight(name) for name in LEGS}, _scores(legs))


_SHARES: dict[str, Callable[..., _Share]] = {
    "rrf": _rrf_share,
    "weighted": _weighted_share,
    "max": _max_share,
}
