"""Scores: the one table that makes a threshold mean the same everywhere, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.api.errors import InvalidEmbedding
from corral.api.scoring import (
    LARGEST_COMPONENT,
    Metric,
    check_embeddings,
    competition_ranks,
    keyword_score,
    vector_score,
    whole_cosine,
)

finite = st.floats(allow_nan=False, allow_infinity=False)

# --- raw relevance to score -----------------------------------------------------------------------


COSINES = {1.0: 1.0, 0.0: 0.5, -1.0: 0.0, 0.5: 0.75, -0.5: 0.25, 0.6: 0.8, 0.354: 0.677}
DISTANCES = {0.0: 1.0, 1.0: 0.5, 3.0: 0.25, 0.25: 0.8, 99.0: 0.01}
LOG_3 = math.log(3.0)
PRODUCTS = {0.0: 0.5, LOG_3: 0.75, -LOG_3: 0.25, 2.0: 1 / (1 + math.exp(-2.0))}


@pytest.mark.parametrize(
    ("metric", "normalized", "raw", "score"),
    [
        *((metric, True, cosine, score) for metric in Metric for cosine, score in COSINES.items()),
        *((Metric.COSINE, False, cosine, score) for cosine, score in COSINES.items()),
        *((Metric.L2, False, -distance, score) for distance, score in DISTANCES.items()),
        *((Metric.DOT, False, product, score) for product, score in PRODUCTS.items()),
    ],
)
def test_vector_score(metric: Metric, normalized: bool, raw: float, score: float) -> None:
    """(1 + cos) / 2 if normalized, whatever the metric, and for cosine in any case.

    Else 1 / (1 + d), which is 1 at distance 0 and never 0, and the logistic function of the inner
    product, 0.5 at 0.
    """
    assert vector_score(raw, metric, normalized=normalized) == pytest.approx(score, abs=1e-12)


def test_a_cosine_that_rounding_keeps_from_1_is_1() -> None:
    """Within the error of a single-precision product of 1 it is 1; what is further off stays."""
    assert {whole_cosine(cosine) for cosine in (1.0, 1.0000002, 0.999999995, 0.99999)} == {1.0}
    assert whole_cosine(0.9999) == 0.9999


@pytest.mark.parametrize(
    ("bm25", "score"), [(0.0, 0.0), (1.0, 0.5), (3.0, 0.75), (0.25, 0.2), (9.0, 0.9)]
)
def test_keyword_score(bm25: float, score: float) -> None:
    """s / (1 + s): 0 at 0, a half at 1."""
    assert keyword_score(bm25) == pytest.approx(score, abs=1e-12)


ALL_VECTOR = [(metric, normalized) for metric in Metric for normalized in (True, False)]


@pytest.mark.parametrize(("metric", "normalized"), ALL_VECTOR)
@given(raws=st.lists(finite, min_size=2, max_size=6))
def test_vector_scores_never_fall_when_the_raw_score_rises(
    metric: Metric, normalized: bool, raws: list[float]
) -> None:
    """Better raw relevance is never a worse score, and every score is in [0, 1]."""
    scores = [vector_score(raw, metric, normalized=normalized) for raw in sorted(raws)]
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert all(later >= earlier for earlier, later in pairwise(scores))


@example(raws=[6004799503160661.0, 9007199254740994.0])
@given(raws=st.lists(st.floats(0, 1e308), min_size=2, max_size=6))
def test_keyword_scores_never_fall_when_bm25_rises(raws: list[float]) -> None:
    """The keyword score is monotone and in [0, 1], also where float64 ends."""
    raws = [*raws, *(math.nextafter(raw, math.inf) for raw in raws)]
    scores = [keyword_score(raw) for raw in sorted(raws)]
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert all(later >= earlier for earlier, later in pairwise(scores))


@pytest.mark.parametrize(("metric", "normalized"), ALL_VECTOR)
@pytest.mark.parametrize("raw", [-1.7e308, -1e4, -746.0, -709.0, 1e-300, 709.0, 1e4, 1.7e308])
def test_extreme_raw_scores_stay_in_bounds(metric: Metric, normalized: bool, raw: float) -> None:
    """No overflow, no NaN: the largest doubles still give a score in [0, 1]."""
    score = vector_score(raw, metric, normalized=normalized)
    assert 0.0 <= score <= 1.0


@given(
    st.lists(st.floats(-10, 10), min_size=3, max_size=3).filter(lambda v: np.linalg.norm(v) > 1e-3),
    st.lists(st.floats(-10, 10), min_size=3, max_size=3).filter(lambda v: np.linalg.norm(v) > 1e-3),
)
def test_the_three_metrics_agree_on_unit_vectors(a: list[float], b: list[float]) -> None:
    """(1 + cos) / 2, (1 + ip) / 2 and 1 - d^2 / 4 are one number when lengths are 1.

    If this fails: the same threshold keeps different hits under different metrics.
    """
    x, y = (np.array(v) / np.linalg.norm(v) for v in (a, b))
    cosine = float(x @ y)
    distance = float(np.linalg.norm(x - y))
    score = vector_score(cosine)
    assert score == pytest.approx((1 + cosine) / 2, abs=1e-9)
    assert score == pytest.approx(1 - distance**2 / 4, abs=1e-9)
    assert vector_score(cosine, Metric.DOT) == vector_score(cosine, Metric.L2) == score


# --- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "ranks"),
    [
        ([], []),
        ([0.5], [1]),
        ([3.0, 2.0, 1.0], [1, 2, 3]),
        ([3.0, 2.0, 2.0, 1.0], [1, 2, 2, 4]),
        ([1.0, 1.0, 1.0], [1, 1, 1]),
        ([2.0, 2.0, 1.0, 1.0, 0.0], [1, 1, 3, 3, 5]),
    ],
)
def test_equal_scores_share_a_rank(scores: list[float], ranks: list[int]) -> None:
    """Competition ranks, 1 2 2 4: a tie costs nobody a place by chance, and leaves a gap."""
    assert competition_ranks(scores) == ranks


@given(st.lists(st.integers(0, 5)))
def test_a_rank_counts_the_better_ones(scores: list[int]) -> None:
    """The rank of a score is one more than the number of strictly better scores."""
    ranked = sorted(map(float, scores), reverse=True)
    expected = [1 + sum(other > score for other in ranked) for score in ranked]
    assert competition_ranks(ranked) == expected


# --- embeddings that come in ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        [[float("nan"), 0.0, 1.0]],
        [[float("inf"), 0.0, 1.0]],
        [[0.0, -float("inf"), 1.0]],
        [[1e300, 0.0, 0.0]],
        [[1.1 * LARGEST_COMPONENT, 0.0, 0.0]],
        [[10**400, 0, 0]],
        [[1.0, 2.0]],
        [[1.0, 2.0, 3.0, 4.0]],
        [[1.0, 2.0, 3.0], [1.0, 2.0]],
        [],
        [[]],
        np.ones((2, 2, 3)),
        [["1", "2", "3"]],
        ["a", "b", "c"],
        "abc",
        None,
        [None, 1.0, 2.0],
        {"a": 1},
        [True, False, True],
        np.array([True, False, True]),
        np.array([1j, 1.0, 0.0]),
        [1j, 1.0, 0.0],
        object(),
    ],
)
def test_what_is_no_embedding_of_the_dimension_is_refused(bad: Any) -> None:
    """NaN, infinity, 1e300, the wrong shape, text, booleans: refused before an engine sees them."""
    with pytest.raises(InvalidEmbedding) as caught:
        check_embeddings(bad, dimension=3, field="chunks.embedding")
    assert caught.value.field == "chunks.embedding"
    assert str(caught.value)


DIRECTED = [(Metric.COSINE, True), (Metric.COSINE, False), (Metric.L2, True), (Metric.DOT, True)]


@pytest.mark.parametrize(("metric", "normalize"), DIRECTED)
@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
def test_a_zero_vector_is_refused_where_a_direction_is_needed(
    metric: Metric, normalize: bool, zero: float
) -> None:
    """Zero has no cosine and no unit vector; the message says which row and what to do."""
    rows = [[1.0, 0.0], [zero, 0.0]]
    with pytest.raises(InvalidEmbedding, match=r"Embedding 1 .*normalize: false"):
        check_embeddings(rows, dimension=2, metric=metric, normalize=normalize)


@pytest.mark.parametrize(("metric", "normalize"), DIRECTED)
@pytest.mark.parametrize("tiny", [5e-324, 1e-200, 1e-50, 1e-40])
def test_tiny_embeddings_are_never_stored_as_zero(
    metric: Metric, normalize: bool, tiny: float
) -> None:
    """What single precision cannot tell from zero is scaled up or refused.

    If this fails: an engine divides by a length of 0 and answers NaN.
    """
    try:
        rows = check_embeddings([tiny, 0.0], dimension=2, metric=metric, normalize=normalize)
    except InvalidEmbedding:
        return
    with np.errstate(under="ignore"):
        assert np.linalg.norm(rows[0]) > 0


@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT])
def test_a_zero_vector_is_a_point_like_any_other_otherwise(metric: Metric) -> None:
    """Without normalization, l2 and dot have a distance and a product to compute with zero."""
    rows = check_embeddings([[0.0, 0.0]], dimension=2, metric=metric, normalize=False)
    assert rows.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64])
def test_any_real_dtype_becomes_contiguous_float32(dtype: Any) -> None:
    """The answer is float32, C-contiguous, shape (n, dimension), and a copy."""
    given_rows = np.array([[3, 4], [0, 2]], dtype=dtype)
    before = given_rows.copy()
    rows = check_embeddings(given_rows, dimension=2)
    assert rows.dtype == np.float32
    assert rows.flags["C_CONTIGUOUS"]
    assert rows.shape == (2, 2)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)
    np.testing.assert_array_equal(given_rows, before)


def test_one_embedding_is_one_row() -> None:
    """A flat list of `dimension` numbers is a matrix of one row."""
    assert check_embeddings([3.0, 4.0], dimension=2).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)]
    ]


def test_without_normalization_lengths_are_kept() -> None:
    """`normalize: false` stores what was sent."""
    rows = check_embeddings([[3.0, 4.0]], dimension=2, metric=Metric.L2, normalize=False)
    assert rows.tolist() == [[3.0, 4.0]]


def test_the_largest_component_is_accepted() -> None:
    """The bound itself passes, scaled to length 1 or kept finite in float32."""
    assert check_embeddings([LARGEST_COMPONENT, 0.0], dimension=2).tolist() == [[1.0, 0.0]]
    rows = check_embeddings(
        [[LARGEST_COMPONENT, 0.0]], dimension=2, metric=Metric.DOT, normalize=False
    )
    assert np.isfinite(rows @ rows.T).all()


@given(st.lists(st.floats(-1e15, 1e15), min_size=4, max_size=4))
def test_normalized_rows_have_length_1(values: list[float]) -> None:
    """Whatever is not refused has length 1 within single precision."""
    try:
        rows = check_embeddings(values, dimension=4)
    except InvalidEmbedding:
        assert np.linalg.norm(values) < 1e-30
        return
    assert np.linalg.norm(rows[0]) == pytest.approx(1.0, abs=1e-6)
