"""The recall of an approximate index, measured on questions made from the stored embeddings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.concurrency import at_low_priority
from corral.providers.vector_io.kit.exact import Nearest, rounding_slack
from corral.providers.vector_io.store.connections import transaction
from corral.providers.vector_io.store.matrix import EmbeddingBatch, read_embeddings, read_rows

QUESTIONS = 256
K = 10
READ_ROWS = 16_384
"""Rows that are read in one transaction."""
DISTANCE = 0.5
"""Distance of a question from a stored embedding, in lengths of that embedding: a cosine of about
0.89, as between a question and the passage that answers it."""


@dataclass(frozen=True, slots=True)
class LowRecall:
    """The result of a build that is not used.

    Attributes:
        recall: Recall@10 of the index with the greatest effort.
        chunks: Number of chunks in the index.
    """

    recall: float
    chunks: int


def questions_from(sample: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return questions, shape (n // 3, dimension): embeddings moved by differences of two others.

    Differences of stored embeddings vary as the data do. Random noise would vary mostly in
    directions in which the data do not, and so leave the order of the neighbors as it is.

    Args:
        sample: Different stored embeddings, shape (n, dimension).
    """
    size = len(sample) // 3
    start, one, other = sample[: 3 * size].reshape(3, size, sample.shape[1])
    moves = one - other
    lengths = np.linalg.norm(start, axis=1) / np.maximum(np.linalg.norm(moves, axis=1), 1e-9)
    questions: NDArray[np.float32] = start + DISTANCE * lengths[:, None] * moves
    return questions


class RecallTest:
    """Questions and the scores of their nearest embeddings, found by comparing all.

    Args:
        questions: Shape (n, dimension).
        metric: How embeddings are compared.
    """

    def __init__(self, questions: NDArray[np.float32], metric: Metric) -> None:
        self.questions = questions
        self._metric = metric
        self._best = np.full((len(questions), K), -np.inf, dtype=np.float32)
        self._squared_lengths = np.linalg.norm(questions.astype(np.float64), axis=1) ** 2
        self._largest = 0.0

    @classmethod
    def of(
        cls,
        connection: apsw.Connection,
        rows: NDArray[np.int64],
        dimension: int,
        metric: Metric,
        check: Callable[[], None],
    ) -> RecallTest:
        """Return a test for an index over these rows of a chunk file.

        Args:
            connection: Outside a transaction; a long one would prevent SQLite from truncating its
                log.
            rows: Ascending, shape (n,).
            check: Called between reads; raises to stop.
        """
        size = min(len(rows), 3 * QUESTIONS)
        chosen = np.random.default_rng(0).choice(rows, size, replace=False)
        with transaction(connection, "DEFERRED"):
            test = cls(questions_from(read_rows(connection, chosen, dimension)), metric)
        row, last = 0, int(rows[-1])
        while row < last:
            check()
            with transaction(connection, "DEFERRED"):
                at_most = min(READ_ROWS, last - row)
                batches = list(read_embeddings(connection, row, at_most=at_most))
            for batch in batches:
                test.add(batch)
            row = int(batches[-1].rows[-1]) if batches else last
        return test

    def add(self, batch: EmbeddingBatch) -> None:
        """Compare the questions with more stored embeddings."""
        self._largest = max(self._largest, float(batch.squared_norms.max()))
        scores = at_low_priority(np.matmul, self.questions, batch.matrix.T)
        if self._metric is Metric.L2:
            scores = 2 * scores - batch.squared_norms.astype(np.float32)
        elif self._metric is Metric.COSINE:
            scores = scores / np.sqrt(batch.squared_norms).astype(np.float32)
        both = np.concatenate([self._best, scores], axis=1)
        self._best = at_low_priority(np.partition, both, -K, axis=1)[:, -K:]

    def recall(self, search: Callable[[NDArray[np.float32]], Nearest]) -> float:
        """Return the mean share of the ten nearest embeddings that a search returns, in [0, 1].

        Any embedding that scores as high as the tenth counts, so ties are no loss.

        Args:
            search: Returns the ten nearest of a question, with raw scores, and those that tie.
        """
        hits = possible = 0
        norms = np.array([self._largest])
        for question, best, squared in zip(
            self.questions, self._best, self._squared_lengths, strict=True
        ):
            scores = search(question).scores
            if self._metric is Metric.L2:
                scores = squared - scores**2
            elif self._metric is Metric.COSINE:
                scores = scores * squared**0.5
            least = float(best.min()) - rounding_slack(norms, question, self._metric)
            reachable = min(K, int(np.isfinite(best).sum()))
            hits += min(reachable, int(np.count_nonzero(scores >= least)))
            possible += reachable
        return hits / possible if possible else 0.0
