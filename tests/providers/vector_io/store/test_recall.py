"""The recall test of an approximate index: what is counted as found, under every metric."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.kit.exact import Nearest, nearest
from corral.providers.vector_io.store.matrix import EmbeddingBatch
from corral.providers.vector_io.store.recall import RecallTest, questions_from

ROWS = np.arange(1, 601)
EMBEDDINGS = np.random.default_rng(3).normal(2.0, 1.0, size=(600, 8)).astype(np.float32)


def prepared(metric: Metric, embeddings: NDArray[np.float32] = EMBEDDINGS) -> RecallTest:
    """Return a test that has read the embeddings in two batches."""
    test = RecallTest(questions_from(embeddings[:60]), metric)
    norms = (embeddings.astype(np.float64) ** 2).sum(axis=1)
    for part in (slice(0, 7), slice(7, None)):
        test.add(EmbeddingBatch(ROWS[part], norms[part], embeddings[part]))
    return test


@pytest.mark.parametrize("metric", list(Metric))
def test_recall_is_the_share_of_the_ten_nearest(metric: Metric) -> None:
    """A search that compares all has 1.0; without the two best of each question it has 0.8.

    If this fails: an index is used, or refused, by a recall that it does not have.
    """
    test = prepared(metric)

    def compared(query: NDArray[np.float32]) -> Nearest:
        return nearest(ROWS, EMBEDDINGS, query, 10, metric)

    def without_two(query: NDArray[np.float32]) -> Nearest:
        rest = np.setdiff1d(ROWS, compared(query).rows[:2])
        return nearest(rest, EMBEDDINGS[rest - 1], query, 10, metric)

    assert test.recall(compared) == 1.0
    assert test.recall(without_two) == pytest.approx(0.8)


@pytest.mark.parametrize("metric", list(Metric))
def test_chunks_that_tie_count_as_each_other(metric: Metric) -> None:
    """If thirty embeddings are equal, any ten of them are the ten nearest.

    If this fails: a vector DB with copies of a text never gets an index.
    """
    embeddings = np.tile(EMBEDDINGS[:20], (30, 1))
    test = prepared(metric, embeddings)

    def ten_of_them(query: NDArray[np.float32]) -> Nearest:
        best = nearest(ROWS, embeddings, query, 10, metric)
        return Nearest(best.rows[-10:], best.scores[-10:])

    assert test.recall(ten_of_them) == 1.0


def test_fewer_than_ten_embeddings_can_all_be_found() -> None:
    """The share is of the embeddings that exist; without any there is no recall to rely on."""
    few = EMBEDDINGS[:4]
    test = RecallTest(questions_from(EMBEDDINGS[:30]), Metric.L2)
    test.add(EmbeddingBatch(ROWS[:4], (few.astype(np.float64) ** 2).sum(axis=1), few))
    assert test.recall(lambda query: nearest(ROWS[:4], few, query, 10, Metric.L2)) == 1.0
    empty = RecallTest(questions_from(EMBEDDINGS[:0]), Metric.L2)
    assert empty.recall(lambda query: nearest(ROWS[:0], few[:0], query, 10, Metric.L2)) == 0.0


def test_questions_are_near_stored_embeddings_but_equal_to_none() -> None:
    """Each is half the length of its embedding away, in a direction in which the data vary.

    If this fails: the index is asked for embeddings that it holds, and finds them too easily.
    """
    flat = EMBEDDINGS * np.array([1, 1, 1, 1, 0, 0, 0, 0], dtype=np.float32)
    questions = questions_from(flat[:60])
    distances = np.linalg.norm(questions - flat[:20], axis=1)
    np.testing.assert_allclose(distances, 0.5 * np.linalg.norm(flat[:20], axis=1), rtol=1e-5)
    assert not questions[:, 4:].any()
