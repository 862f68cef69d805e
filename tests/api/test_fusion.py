"""Fusion: hand-computed sums, shared ranks, fixed order, scores in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.api.checks import check_ranker
from corral.api.errors import InvalidRequest
from corral.api.fusion import FusedHit, Leg, fuse, merge_ranked, single_leg
from corral.api.rankers import (
    LegName,
    LegWeights,
    MaxRanker,
    RRFRanker,
    WeightedRanker,
)


def leg(*scores: tuple[str, float]) -> Leg:
    """Return a leg whose raw scores are its scores."""
    return [(chunk_id, score, score) for chunk_id, score in scores]


def descending(*chunk_ids: str) -> Leg:
    """Return a leg of these chunks in this order, no two scores equal."""
    return leg(*((chunk_id, 1.0 - 0.1 * n) for n, chunk_id in enumerate(chunk_ids)))


def scores_of(hits: Sequence[FusedHit]) -> dict[str, float]:
    """Return the score of each chunk."""
    return {hit.chunk_id: hit.score for hit in hits}


# x is fifth in the vector leg and fourth in the keyword leg; y is third in the vector leg only.
VECTOR = descending("a", "b", "y", "c", "x")
KEYWORD = descending("d", "e", "f", "x")
BOTH: dict[LegName, Leg] = {"vector": VECTOR, "keyword": KEYWORD}

# --- reciprocal rank fusion -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constant", "x", "y"),
    [
        (0.0, 1 / 5 + 1 / 4, 1 / 3),  # 0.45 against 0.33
        (60.0, 1 / 65 + 1 / 64, 1 / 63),  # 0.0310 against 0.0159
        (1.0, 1 / 6 + 1 / 5, 1 / 4),
    ],
)
def test_rrf_is_the_sum_of_reciprocal_ranks_over_its_maximum(
    constant: float, x: float, y: float
) -> None:
    """Ranks 5 and 4 sum to 0.45 without a constant; the score is that over the best, 2 / (c + 1).

    If this fails: the scale is wrong, and a threshold of 0.1 empties every answer or none.
    """
    best = 2 / (constant + 1)
    scores = scores_of(fuse(RRFRanker(rank_constant=constant), BOTH))
    assert scores["x"] * best == pytest.approx(x, abs=1e-12)
    assert scores["y"] * best == pytest.approx(y, abs=1e-12)


def test_with_60_two_middling_ranks_beat_a_single_first_place() -> None:
    """Raw sums 0.031 against 0.016: agreement of the legs wins."""
    hits = fuse(RRFRanker(), BOTH)
    scores = scores_of(hits)
    assert hits[0].chunk_id == "x"
    assert scores["x"] * 2 / 61 == pytest.approx(0.031, abs=5e-4)
    assert scores["a"] * 2 / 61 == pytest.approx(0.016, abs=5e-4)


@pytest.mark.parametrize("constant", [0.0, 1.0, 60.0, 1e6])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 0.5), (1000.0, 1000.0)])
def test_first_in_every_leg_scores_1(constant: float, weights: tuple[float, float]) -> None:
    """1.0 means first in every leg, whatever the constant and the weights."""
    ranker = RRFRanker(
        rank_constant=constant, weights=LegWeights(vector=weights[0], keyword=weights[1])
    )
    hits = fuse(ranker, {"vector": descending("a", "b"), "keyword": descending("a", "c")})
    assert hits[0].chunk_id == "a"
    assert hits[0].score == pytest.approx(1.0, abs=1e-12)


def test_rrf_weights_scale_each_leg() -> None:
    """Weights 3 and 1, constant 0: first in the vector leg alone is 3/4, in the other 1/4."""
    ranker = RRFRanker(rank_constant=0, weights=LegWeights(vector=3, keyword=1))
    scores = scores_of(fuse(ranker, {"vector": descending("v"), "keyword": descending("k")}))
    assert scores == {"v": pytest.approx(0.75), "k": pytest.approx(0.25)}


def test_only_the_ratio_of_rrf_weights_matters() -> None:
    """Weights 2 and 4 are weights 1 and 2."""
    small = RRFRanker(weights=LegWeights(vector=1, keyword=2))
    large = RRFRanker(weights=LegWeights(vector=2, keyword=4))
    assert scores_of(fuse(small, BOTH)) == pytest.approx(scores_of(fuse(large, BOTH)))


def test_the_k_best_are_the_first_of_all() -> None:
    """Asking for k returns the beginning of the whole fused list."""
    for ranker in (RRFRanker(), WeightedRanker(), MaxRanker()):
        everything = fuse(ranker, BOTH)
        assert [fuse(ranker, BOTH, k) for k in (1, 2)] == [everything[:1], everything[:2]]


def test_the_smallest_possible_weights_still_fuse() -> None:
    """A weight near zero neither divides by zero nor leaves [0, 1]."""
    ranker = RRFRanker(weights=LegWeights(vector=5e-324, keyword=0))
    assert fuse(ranker, {"vector": descending("a")})[0].score == pytest.approx(1.0)


def test_ties_in_a_leg_share_a_rank() -> None:
    """Two chunks with equal scores are both second; the next one is fourth."""
    tied = leg(("a", 0.9), ("c", 0.8), ("b", 0.8), ("d", 0.7))
    hits = fuse(RRFRanker(rank_constant=0), {"vector": tied})
    ranks = {hit.chunk_id: hit.explanation.legs["vector"].rank for hit in hits}
    assert ranks == {"a": 1, "b": 2, "c": 2, "d": 4}
    assert scores_of(hits)["b"] == scores_of(hits)["c"] == pytest.approx(1 / 2 / 2)
    assert [hit.chunk_id for hit in hits] == ["a", "b", "c", "d"]


def test_ranks_follow_the_raw_scores_where_the_scores_saturate() -> None:
    """Inner products 100 and 200 both score 1.0, but the better one is still first.

    If this fails: ranks are taken from the bounded score, and large raw scores look like ties.
    """
    saturated = [("b", 1.0, 200.0), ("a", 1.0, 100.0)]
    hits = fuse(RRFRanker(), {"vector": saturated})
    assert [(hit.chunk_id, hit.explanation.legs["vector"].rank) for hit in hits] == [
        ("b", 1),
        ("a", 2),
    ]
    assert [hit.chunk_id for hit in single_leg("vector", saturated)] == ["b", "a"]


@pytest.mark.parametrize(
    ("off", "rankers"),
    [
        (
            "vector",
            [
                WeightedRanker(alpha=0),
                WeightedRanker(alpha=0, normalization="raw"),
                WeightedRanker(alpha=0, normalization="min_max"),
                RRFRanker(weights=LegWeights(vector=0)),
                MaxRanker(weights=LegWeights(vector=0)),
            ],
        ),
        (
            "keyword",
            [
                WeightedRanker(alpha=1),
                WeightedRanker(alpha=1, normalization="raw"),
                WeightedRanker(alpha=1, normalization="min_max"),
                RRFRanker(weights=LegWeights(keyword=0)),
                MaxRanker(weights=LegWeights(keyword=0)),
            ],
        ),
    ],
)
def test_weight_0_switches_a_leg_off(off: LegName, rankers: list[Any]) -> None:
    """What only that leg found is not in the answer, and it says nothing of the others.

    If this fails: `alpha: 0` returns chunks with score 0 that hold no word of the query.
    """
    other: LegName = "keyword" if off == "vector" else "vector"
    for ranker in rankers:
        hits = fuse(ranker, BOTH)
        assert hits == fuse(ranker, {other: BOTH[other]})
        assert {hit.chunk_id for hit in hits} == {chunk_id for chunk_id, _, _ in BOTH[other]}
        assert all(set(hit.explanation.legs) == {other} for hit in hits)


# --- the other ways -------------------------------------------------------------------------------

WEIGHTED: dict[LegName, Leg] = {
    "vector": leg(("a", 0.9), ("b", 0.7), ("c", 0.5)),
    "keyword": leg(("c", 0.8), ("b", 0.2)),
}


@pytest.mark.parametrize(
    ("alpha", "normalization", "expected"),
    [
        (0.5, "raw", {"a": 0.45, "b": 0.45, "c": 0.65}),
        (0.5, "min_max", {"a": 0.5, "b": 0.25, "c": 0.5}),
        (0.25, "raw", {"a": 0.225, "b": 0.325, "c": 0.725}),
        (0.25, "min_max", {"a": 0.25, "b": 0.125, "c": 0.75}),
        (1.0, "raw", {"a": 0.9, "b": 0.7, "c": 0.5}),
        (0.0, "raw", {"b": 0.2, "c": 0.8}),
        (1.0, "min_max", {"a": 1.0, "b": 0.5, "c": 0.0}),
        (0.0, "min_max", {"b": 0.0, "c": 1.0}),
    ],
)
def test_weighted_is_a_convex_combination(
    alpha: float, normalization: Any, expected: dict[str, float]
) -> None:
    """alpha * vector + (1 - alpha) * keyword: alpha 1 is the vector leg alone, 0 the keyword leg.

    If this fails with alpha at 0 or 1: alpha is inverted, as it was in another server.
    """
    ranker = WeightedRanker(alpha=alpha, normalization=normalization)
    assert scores_of(fuse(ranker, WEIGHTED)) == pytest.approx(expected, abs=1e-12)


def test_min_max_gives_full_marks_to_equal_candidates() -> None:
    """One candidate, or all equal: each is the best of its leg, and nothing divides by zero."""
    legs: dict[LegName, Leg] = {"vector": leg(("a", 0.3), ("b", 0.3)), "keyword": leg(("a", 0.2))}
    ranker = WeightedRanker(alpha=0.5, normalization="min_max")
    assert scores_of(fuse(ranker, legs)) == {"a": 1.0, "b": 0.5}


@pytest.mark.parametrize("normalization", ["min_max", "z_score"])
def test_what_rounding_explains_is_not_stretched(normalization: Any) -> None:
    """Cosines that differ by rounding only are equal: the last of them is not worth nothing."""
    legs: dict[LegName, Leg] = {
        "vector": leg(("a", 0.3), ("b", 0.29999999)),
        "keyword": leg(("b", 0.9), ("c", 0.2)),
    }
    exact = {**legs, "vector": leg(("a", 0.3), ("b", 0.3))}
    ranker = WeightedRanker(alpha=0.5, normalization=normalization)
    assert scores_of(fuse(ranker, legs)) == scores_of(fuse(ranker, exact))


def test_min_max_stretches_the_engines_scores() -> None:
    """The bounded form of BM25 squeezes what is good together; what is stretched is BM25 itself."""
    legs: dict[LegName, Leg] = {
        "keyword": [("a", 30 / 31, 30.0), ("b", 20 / 21, 20.0), ("c", 10 / 11, 10.0)]
    }
    ranker = WeightedRanker(alpha=0, normalization="min_max")
    assert scores_of(fuse(ranker, legs)) == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.0})


def z_scored(alpha: float, legs: dict[LegName, Leg]) -> dict[str, float]:
    """The textbook: each leg's (score - mean) / deviation, absent chunks at the leg's floor."""
    ids = {hit[0] for leg in legs.values() for hit in leg}
    size = max(len(leg) for leg in legs.values()) + 1
    total = dict.fromkeys(ids, 0.0)
    best = 0.0
    for name, weight in (("vector", alpha), ("keyword", 1 - alpha)):
        raws = {hit[0]: hit[2] for hit in legs[name]}  # type: ignore[index]
        floor = 0.0 if name == "keyword" else min(raws.values())
        filled = np.array([*raws.values(), *[floor] * (size - len(raws))])
        z = {i: (raws.get(i, floor) - filled.mean()) / filled.std() for i in ids}
        lowest = (floor - filled.mean()) / filled.std()
        for i in ids:
            total[i] += weight * (z[i] - lowest)
        best += weight * (max(z.values()) - lowest)
    return {i: value / best for i, value in total.items()}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_z_scores_are_those_of_the_textbook(alpha: float) -> None:
    """The combination of standard scores, scaled so that 1.0 is the best of both legs.

    Hand-computed for alpha 0.5: the vector leg (0.9, 0.7, 0.5, floor 0.5) has deviation 0.1658 and
    spread 2.412; the keyword leg (0.8, 0.2, 0, 0) has 0.3279 and 2.4398.
    """
    expected = z_scored(alpha, WEIGHTED)
    if alpha == 0:  # the vector leg is off, and only it found this one
        del expected["a"]
    found = scores_of(fuse(WeightedRanker(alpha=alpha), WEIGHTED))
    assert found == pytest.approx(expected, abs=1e-12)
    if alpha == 0.5:
        assert found["a"] == pytest.approx(2.412 / (2.412 + 2.4398), abs=1e-4)


def test_a_leg_counts_more_where_it_tells_its_candidates_apart() -> None:
    """One word found in one chunk of many outweighs a vector leg in which all look alike.

    If this fails: an identifier in the query is lost among chunks that mean nothing in particular.
    """
    noise = [(f"v{i:02}", 0.55, 0.10 + 0.001 * (i % 7)) for i in range(99, 0, -1)]
    noise.sort(key=lambda hit: -hit[2])
    legs: dict[LegName, Leg] = {"vector": noise, "keyword": [("exact", 0.9, 9.0)]}
    hits = fuse(WeightedRanker(), legs)
    assert hits[0].chunk_id == "exact"
    assert hits[0].score > 2 * hits[1].score


def test_weights_are_another_way_to_say_alpha() -> None:
    """Weights 3 and 1 are alpha 0.75; both at once, or none above 0, is refused."""
    assert check_ranker({"type": "weighted", "weights": {"vector": 3, "keyword": 1}}) == (
        WeightedRanker(alpha=0.75)
    )
    for bad in ({"alpha": 0.5, "weights": {}}, {"weights": {"vector": 0, "keyword": 0}}):
        with pytest.raises(InvalidRequest):
            check_ranker({"type": "weighted", **bad})


def test_max_lets_the_better_leg_win() -> None:
    """The best weighted score counts: keyword scores are scaled by 0.7 unless told otherwise."""
    scores = scores_of(fuse(MaxRanker(), WEIGHTED))
    assert scores == pytest.approx({"a": 0.9, "b": 0.7, "c": 0.56})
    even = MaxRanker(weights=LegWeights(vector=1.0, keyword=1.0))
    assert scores_of(fuse(even, WEIGHTED)) == pytest.approx({"a": 0.9, "b": 0.7, "c": 0.8})


# --- what all of them keep ------------------------------------------------------------------------

RANKERS = [
    RRFRanker(),
    RRFRanker(rank_constant=0, weights=LegWeights(vector=0, keyword=2)),
    WeightedRanker(alpha=0.3),
    WeightedRanker(normalization="raw"),
    WeightedRanker(normalization="min_max"),
    MaxRanker(),
]
legs_strategy = st.dictionaries(
    st.text(max_size=3), st.sampled_from([0.0, 0.1, 0.5, 0.5000001, 1.0]) | st.floats(0, 1)
).map(lambda scores: sorted(leg(*scores.items()), key=lambda hit: -hit[1]))


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda r: f"{r.type}-{RANKERS.index(r)}")
@given(vector=legs_strategy, keyword=legs_strategy, data=st.data())
def test_fusion_depends_on_nothing_but_the_scores(
    ranker: Any, vector: Leg, keyword: Leg, data: st.DataObject
) -> None:
    """The order of the dict, and of ties within a leg, never changes the answer.

    If this fails: the same question gets its answers in another order after a restart.
    """
    hits = fuse(ranker, {"vector": vector, "keyword": keyword})
    shuffled = sorted(data.draw(st.permutations(vector)), key=lambda hit: -hit[1])
    again = fuse(ranker, {"keyword": keyword, "vector": shuffled})
    assert [(h.chunk_id, h.score) for h in hits] == [(h.chunk_id, h.score) for h in again]
    counted = {"vector": vector, "keyword": keyword}
    assert {h.chunk_id for h in hits} == {
        hit[0] for name in ranker.counted() for hit in counted[name]
    }
    assert all(0.0 <= hit.score <= 1.0 for hit in hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id))


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda r: f"{r.type}-{RANKERS.index(r)}")
def test_an_explanation_adds_up(ranker: Any) -> None:
    """Contributions sum to the score (their maximum, under max); legs name who found the chunk."""
    for hit in fuse(ranker, WEIGHTED):
        parts = hit.explanation.contributions
        why = hit.explanation
        assert parts == {n: why.weights[n] * why.normalized[n] for n in parts}
        assert all(0.0 <= worth <= 1.0 for worth in why.normalized.values())
        total = max(parts.values()) if ranker.type == "max" else sum(parts.values())
        assert hit.score == pytest.approx(total, abs=1e-12)
        assert set(parts) == set(hit.explanation.legs)
        assert set(parts) == {
            n for n in ranker.counted() if hit.chunk_id in [h[0] for h in WEIGHTED[n]]
        }


def test_an_explanation_says_why_a_weight_is_not_alpha() -> None:
    """With standard scores: alpha, the legs' spreads, and the weight as their scaled product.

    If this fails: `--explain` shows 0.357 where alpha is 0.4, and nobody can say why.
    """
    for hit in fuse(WeightedRanker(alpha=0.3), WEIGHTED):
        why = hit.explanation
        assert why.asked == {"vector": 0.3, "keyword": 0.7}
        assert why.spreads == pytest.approx({"vector": 2.412, "keyword": 2.4398}, abs=1e-3)
        products = {name: why.asked[name] * why.spreads[name] for name in why.asked}
        for name, weight in why.weights.items():
            assert weight == pytest.approx(products[name] / sum(products.values()))
    for ranker in (RRFRanker(), MaxRanker(), WeightedRanker(normalization="min_max")):
        why = fuse(ranker, WEIGHTED)[0].explanation
        assert (why.asked, why.spreads) == ({}, {})


def test_equal_fused_scores_are_ordered_by_chunk_id() -> None:
    """Symmetric places give equal scores, and the id decides."""
    hits = fuse(RRFRanker(), {"vector": descending("b", "a"), "keyword": descending("a", "b")})
    assert [hit.chunk_id for hit in hits] == ["a", "b"]
    assert hits[0].score == hits[1].score


@pytest.mark.parametrize("legs", [{}, {"vector": []}, {"vector": [], "keyword": []}])
@pytest.mark.parametrize("ranker", RANKERS, ids=lambda r: f"{r.type}-{RANKERS.index(r)}")
def test_nothing_fused_is_nothing(legs: dict[LegName, Leg], ranker: Any) -> None:
    """Empty or absent legs give an empty answer."""
    assert fuse(ranker, legs) == []


def test_a_single_leg_keeps_its_own_scores() -> None:
    """Without fusion a hit has its leg's score, ties by chunk_id, and no contributions."""
    hits = single_leg("keyword", [("b", 0.5, 1.0), ("a", 0.5, 1.0), ("c", 0.2, 0.25)])
    assert [(hit.chunk_id, hit.score) for hit in hits] == [("a", 0.5), ("b", 0.5), ("c", 0.2)]
    assert hits[2].explanation.legs["keyword"].raw_score == 0.25
    assert hits[2].explanation.legs["keyword"].rank == 3
    assert hits[0].explanation.contributions == {}


# --- merging several vector DBs -------------------------------------------------------------------


def test_lists_of_several_vector_dbs_are_merged_by_rank() -> None:
    """Only places count: an id's score is its reciprocal ranks over the best possible sum."""
    merged = merge_ranked([[("a", 0.99), ("b", 0.98)], [("c", 0.2), ("b", 0.1)]])
    assert [identifier for identifier, _ in merged] == ["b", "a", "c"]
    assert [score for _, score in merged] == pytest.approx([61 / 62, 0.5, 0.5])
    assert merge_ranked([[("b", 0.3), ("a", 0.3)]]) == [("a", 1.0), ("b", 1.0)]
    assert merge_ranked([]) == []
    assert merge_ranked([[], []]) == []


@given(st.lists(st.dictionaries(st.text(max_size=2), st.floats(0, 1)), max_size=4))
def test_merged_scores_stay_in_bounds_and_order(scores: list[dict[str, float]]) -> None:
    """Every id appears once, in (0, 1], best first, ties by id."""
    lists = [sorted(one.items(), key=lambda pair: -pair[1]) for one in scores]
    merged = merge_ranked(lists)
    assert {i for i, _ in merged} == {i for one in scores for i in one}
    assert all(0.0 < score <= 1.0 + 1e-12 for _, score in merged)
    assert merged == sorted(merged, key=lambda pair: (-pair[1], pair[0]))


def test_no_number_of_lists_makes_a_score_above_one() -> None:
    """An id that is first in every list scores 1 and nothing more, however the sum rounds."""
    for count in range(1, 60):
        [(_, score)] = merge_ranked([[("a", 0.5)]] * count)
        assert 1 - 1e-12 < score <= 1
