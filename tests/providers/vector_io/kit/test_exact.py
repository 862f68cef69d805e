"""Exact raw scores, by hand, and equal for equal rows wherever they lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric, exact_scores


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (Metric.DOT, [11.0, 10.0, -11.0]),
        (Metric.COSINE, [11 / (5 * math.sqrt(5)), 1.0, -11 / (5 * math.sqrt(5))]),
        (Metric.L2, [-math.sqrt(8), -math.sqrt(5), -math.sqrt(52)]),
    ],
)
def test_raw_scores_by_hand(metric: Metric, expected: list[float]) -> None:
    """[3, 4], [2, 4] and [-3, -4] against [1, 2]: inner product, cosine, minus the distance."""
    matrix = np.array([[3, 4], [2, 4], [-3, -4]], dtype=np.float32)
    found = exact_scores(matrix, np.array([1, 2], dtype=np.float32), metric)
    assert found.dtype == np.float64
    assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("dimension", [1, 3, 384, 1000])
def test_equal_rows_have_equal_scores_to_the_last_bit(metric: Metric, dimension: int) -> None:
    """Rows repeated across blocks of the computation, and alone, score the same.

    If this fails: ties depend on where a chunk is stored, and change with every write.
    """
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, dimension)).astype(np.float32)
    query = rng.normal(size=dimension).astype(np.float32)
    alone = [float(exact_scores(row[None], query, metric)[0]) for row in rows]
    many = exact_scores(np.tile(rows, (200, 1)), query, metric)
    assert many.reshape(200, 7).tolist() == [alone] * 200


def test_no_rows_have_no_scores() -> None:
    """An empty matrix gives an empty array."""
    empty = np.empty((0, 3), dtype=np.float32)
    assert exact_scores(empty, np.ones(3, dtype=np.float32), Metric.L2).shape == (0,)


def test_on_unit_vectors_every_metric_is_the_inner_product() -> None:
    """Normalized registrations rank by the product; the others by their own metric."""
    for metric in Metric:
        for normalize in (True, False):
            vector_db = VectorDB(
                identifier="db", provider_id="p", provider_resource_id="db", embedding_model="m",
                embedding_dimension=2, metric=metric, normalize=normalize,
            )  # fmt: skip
            expected = Metric.DOT if normalize else metric
            assert effective_metric(vector_db) is expected
