"""Overlap and rank-biased overlap, against values computed by hand."""

from __future__ import annotations

import pytest

from corral.bench.fidelity.measures import overlap, rank_biased_overlap, score_differences


def test_overlap_is_the_share_of_common_ids() -> None:
    """Among the first k of both; the longer list counts, and empty ones are alike."""
    assert overlap(["a", "b", "c"], ["c", "b", "d"], 3) == pytest.approx(2 / 3)
    assert overlap(["a", "b", "c"], ["c", "b", "d"], 2) == pytest.approx(1 / 2)
    assert overlap(["a"], ["a", "b"], 10) == pytest.approx(1 / 2)
    assert overlap([], [], 10) == 1.0
    assert overlap([], ["a"], 10) == 0.0


def test_rank_biased_overlap_of_equal_and_distinct_lists() -> None:
    """Equal lists have 1, distinct ones 0, whatever their length."""
    for length in (1, 3, 10):
        ids = [str(n) for n in range(length)]
        assert rank_biased_overlap(ids, ids) == pytest.approx(1)
        assert rank_biased_overlap(ids, [f"other {one}" for one in ids]) == pytest.approx(0)
    assert rank_biased_overlap([], []) == 1
    assert rank_biased_overlap([], ["a"]) == 0


def test_rank_biased_overlap_by_hand() -> None:
    """Equation 32 of Webber et al. for [a, b] and [b, a], p = 0.5: X_1 = 0, X_2 = 2.

    (1 - p) / p * (0 / 1 * p + 2 / 2 * p^2) + 2 / 2 * p^2 = 0.25 + 0.25. For [a] and [a, b], s = 1,
    l = 2, X_1 = X_2 = 1: the sum is 1 * 0.5 + 1 / 2 * 0.25 + 1 * (1 / 2) * 0.25 = 0.75, and the
    rest ((1 - 1) / 2 + 1) * 0.25 = 0.25.
    """
    assert rank_biased_overlap(["a", "b"], ["b", "a"], 0.5) == pytest.approx(0.5)
    assert rank_biased_overlap(["a"], ["a", "b"], 0.5) == pytest.approx(1.0)


def test_rank_biased_overlap_counts_the_first_ranks_most() -> None:
    """A swap at the top costs more than one at the bottom; the order of arguments costs nothing."""
    ids = list("abcdefgh")
    top, bottom = list("bacdefgh"), list("abcdefhg")
    assert rank_biased_overlap(ids, top) < rank_biased_overlap(ids, bottom) < 1
    assert rank_biased_overlap(ids, top) == rank_biased_overlap(top, ids)
    assert rank_biased_overlap(ids[:3], top) == rank_biased_overlap(top, ids[:3])


def test_scores_of_common_ids_are_compared() -> None:
    """Ids that only one has do not count."""
    first, second = [("a", 0.9), ("b", 0.5)], [("b", 0.4), ("c", 0.1)]
    assert score_differences(first, second) == [pytest.approx(0.1)]
