"""Sets of rows behave as Python's sets; the best rows are the best, ties and all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.providers.vector_io.kit.rows import RowSet, best_rows, greatest_places

UNIVERSE = 12
sets = st.builds(
    lambda rows, negated: RowSet(np.array(sorted(rows), dtype=np.int64), negated),
    st.sets(st.integers(0, UNIVERSE - 1)),
    st.booleans(),
)


def members(rows: RowSet) -> set[int]:
    """Return the rows of a small universe that are in a set."""
    everything = np.arange(UNIVERSE, dtype=np.int64)
    return set(everything[rows.mask(everything)].tolist())


@given(sets, sets)
def test_row_sets_combine_as_sets(a: RowSet, b: RowSet) -> None:
    """And, or, not equal intersection, union and complement, negated sets included."""
    assert members(a & b) == members(a) & members(b)
    assert members(a | b) == members(a) | members(b)
    assert members(~a) == set(range(UNIVERSE)) - members(a)
    for combined in (a & b, a | b):
        assert (np.diff(combined.rows) > 0).all()


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)), st.booleans())
@example(set(range(0, 400, 3)), {5, 6}, False)  # many of few
@example({5, 6}, set(range(0, 400, 3)), True)  # few of many
@example({2, 4000}, {1, 2, 3}, False)  # far apart
def test_a_mask_names_the_members(rows: set[int], others: set[int], negated: bool) -> None:
    """Of any ascending rows the mask is true for those in the set, however many either has.

    If this fails: one of the two ways, by a search or by a table, is wrong at an end.
    """
    asked = np.array(sorted(others), dtype=np.int64)
    mask = RowSet(np.array(sorted(rows), dtype=np.int64), negated).mask(asked)
    assert mask.tolist() == [(row in rows) != negated for row in asked.tolist()]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 50))
def test_best_rows_are_the_k_best_and_all_their_ties(values: list[int], k: int) -> None:
    """What is returned is every place whose score is at least the k-th best, best first."""
    scores = np.array(values, dtype=np.float64)
    places = best_rows(scores, k)
    last = sorted(values, reverse=True)[min(k, len(values)) - 1]
    assert set(places.tolist()) == {n for n, value in enumerate(values) if value >= last}
    assert [(-values[n], n) for n in places] == sorted((-values[n], n) for n in places)


def test_slack_keeps_scores_within_rounding_error_of_the_last() -> None:
    """With slack, a score just below the k-th best stays for the exact computation to judge."""
    scores = np.array([1.0, 0.5, 0.5 - 1e-7, 0.4])
    assert best_rows(scores, 2).tolist() == [0, 1]
    assert best_rows(scores, 2, slack=1e-6).tolist() == [0, 1, 2]


def test_best_rows_of_nothing_are_nothing() -> None:
    """No scores, no places."""
    assert best_rows(np.empty(0), 3).tolist() == []


@pytest.mark.parametrize("negated", [False, True])
def test_an_empty_set_masks_nothing_and_its_complement_everything(negated: bool) -> None:
    """The empty set is no special case for the caller."""
    mask = RowSet(np.empty(0, dtype=np.int64), negated).mask(np.arange(3))
    assert mask.tolist() == [negated] * 3


@settings(max_examples=100)
@given(
    count=st.integers(1, 5000),
    distinct=st.sampled_from([1, 3, 100, 10**6]),
    unusable=st.sampled_from([0.0, 0.5, 0.98, 1.0]),
    ascending=st.booleans(),
    share=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_greatest_places_hold_the_greatest_scores(
    count: int, distinct: int, unusable: float, ascending: bool, share: float, seed: int
) -> None:
    """k places, each once, with the k greatest scores, however many tie or are minus infinity.

    If this fails: vector search misses a chunk, or reads and compares more than it needs.
    """
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, distinct, count).astype(np.float32)
    scores[rng.random(count) < unusable] = -np.inf
    scores = np.sort(scores) if ascending else scores
    k = 1 + int(share**4 * (count - 1))  # few of many, mostly
    places = greatest_places(scores, k)
    assert len(set(places.tolist())) == k
    assert np.sort(scores[places]).tolist() == np.sort(scores)[count - k :].tolist()
