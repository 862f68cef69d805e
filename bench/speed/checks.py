"""Checks that fast answers are right: the share of the relevant chunks in an answer, 0 to 1.

* vector: recall_vs_exact@k. A chunk that ties with the k-th nearest counts as one of them.
* keyword: the sum of the hits' BM25 scores over the highest sum of k hits.
* hybrid: the share of hits that are among the best `LEG` of an exact leg, the vector leg or the
  BM25 leg; fusions may differ.

Hits that do not pass the filter, or were never stored, count 0. An approximate index loses a little
and another formula for keywords somewhat more; below `LEAST` the answer is a different one, and its
speed is not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import Corpus
from corral.bench.truth import among_best, findable

LEAST = 0.9
LEG = 100
CHECKED = 50
"""Number of questions to check, from the first."""


class SpeedChecks:
    """The right answers to the first questions of a corpus.

    Args:
        corpus: The stored chunks, and the questions.
        k: Hits per query.
    """

    def __init__(self, corpus: Corpus, k: int) -> None:
        self._corpus = corpus
        self._k = k
        self.number = min(CHECKED, len(corpus.questions))
        self._truth = corpus.truth(self.number)

    def right(
        self, mode: SearchMode, selectivity: float | None, answers: Sequence[Sequence[str]]
    ) -> float:
        """Return the mean over the questions; 1.0 if nothing can be found.

        Args:
            mode: The mode of the queries.
            selectivity: The filter's selectivity.
            answers: Chunk ids for each of the first questions.
        """
        passing = self._corpus.passing(selectivity)
        shares = [
            self._share(self._gains(mode, number, passing), found)
            for number, found in enumerate(answers)
        ]
        return float(np.mean(shares)) if shares else 1.0

    def _share(self, gains: NDArray[np.float64], found: Sequence[str]) -> float:
        highest = np.partition(gains, -self._k)[-self._k :] if len(gains) > self._k else gains
        possible = float(highest.sum())
        rows = {self._corpus.rows[one] for one in found if one in self._corpus.rows}
        reached = sum(sorted((float(gains[row]) for row in rows), reverse=True)[: self._k])
        return reached / possible if possible > 0 else 1.0

    def _gains(
        self, mode: SearchMode, number: int, passing: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the relevance of each chunk to a question, shape (n,)."""
        if mode is SearchMode.KEYWORD:
            return np.where(passing, self._truth.of(mode, number), 0.0)
        if mode is SearchMode.VECTOR:
            return self._best(mode, number, passing, self._k).astype(np.float64)
        legs = (SearchMode.VECTOR, SearchMode.KEYWORD)
        vector, keyword = (self._best(leg, number, passing, LEG) for leg in legs)
        return (vector | keyword).astype(np.float64)

    def _best(
        self, mode: SearchMode, number: int, passing: NDArray[np.bool_], k: int
    ) -> NDArray[np.bool_]:
        return among_best(findable(self._truth.of(mode, number), mode, passing), k)
