"""Standard tests: one scale for all scores, thresholds, and the same answer every time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from corral.api.rankers import LegName
from corral.api.testing.hybrid import filled
from corral.api.testing.indexes import PLAIN, Indexes, chunk, ids, scores
from corral.api.testing.suite import Suite, needs

QUERY = [1.0, 2.0, -1.0]
WORDS = "w1 w2 w7"


class ScoreTests(Suite):
    """Properties of scores in every mode."""

    def test_scores_are_in_bounds_and_fall(self, indexes: Indexes) -> None:
        """Every score is in [0, 1], finite, and never rises along the answer."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        for query in np.random.default_rng(9).normal(size=(10, 3)):
            for mode in self.capabilities.modes:
                scores = index.search(mode, query, WORDS, k=100).scores
                assert scores
                assert all(0.0 <= score <= 1.0 for score in scores)
                assert all(later <= earlier for earlier, later in pairwise(scores))

    def test_a_threshold_is_a_cut_through_the_answer(self, indexes: Indexes) -> None:
        """A threshold keeps exactly the hits of the full answer with score >= threshold.

        The bound is inclusive, and raising it never adds a hit. If this fails: it is applied to a
        leg or to another scale, or the engine's own threshold is rounded.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        for mode in self.capabilities.modes:
            everything = index.search(mode, QUERY, WORDS, k=20, score_threshold=None)
            for threshold in (0.0, 0.1, 0.5, *everything.scores, 1.0):
                response = index.search(mode, QUERY, WORDS, k=20, score_threshold=threshold)
                expected = {i: s for i, s in scores(everything).items() if s >= threshold}
                assert scores(response) == expected, f"{mode}, threshold {threshold}"

    @needs(lambda can: can.vector != "no")
    def test_a_threshold_keeps_the_same_hits_under_every_metric(self, indexes: Indexes) -> None:
        """Cosine, l2 and inner product of normalized embeddings: the same ids, the same scores.

        If this fails: a score is really a distance, and a threshold means something different on
        every backend.
        """
        answers = []
        for metric in ("cosine", "l2", "dot"):
            index = indexes.open(metric, dimension=3, metric=metric)
            filled(index)
            answers.append(
                [
                    scores(index.vector(QUERY, k=80, score_threshold=t))
                    for t in (0, 0.4, 0.6, 0.8, 0.95)
                ]
            )
        for other in answers[1:]:
            assert other == [pytest.approx(one, abs=1e-5) for one in answers[0]]
            assert [list(one) for one in other] == [list(one) for one in answers[0]]

    def test_the_same_question_has_the_same_answer(self, indexes: Indexes) -> None:
        """Ten queries, one by one and concurrent, return the same ids, order and scores.

        If this fails: the answer depends on the order of a set, of threads or of a cache.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        for mode in self.capabilities.modes:
            first = index.search(mode, QUERY, WORDS, k=30)
            again = [index.search(mode, QUERY, WORDS, k=30) for _ in range(5)]
            again += indexes.together(
                *[index.index.query(QUERY, WORDS, 30, mode=mode) for _ in range(5)]
            )
            for other in again:
                assert (ids(other), other.scores) == (ids(first), first.scores)

    @needs(lambda can: can.exact)
    def test_the_order_of_insertion_does_not_matter(self, indexes: Indexes) -> None:
        """The same chunks, added in another order and other calls, give the same ids in order."""
        rng = np.random.default_rng(10)
        chunks = [chunk(f"c{n:02}", f"w{n % 3} w{n % 5}") for n in range(40)]
        rows = rng.normal(size=(40, 3))
        rows[::4] = rows[0]
        one, other = (
            indexes.open("one", dimension=3, **PLAIN),
            indexes.open("two", dimension=3, **PLAIN),
        )
        one.add(chunks, rows)
        for place in rng.permutation(40):
            other.add([chunks[place]], rows[[place]])
        for mode in self.capabilities.modes:
            for k in (3, 12, 40):
                left, right = (i.search(mode, rows[0], "w0 w1", k=k) for i in (one, other))
                assert ids(left) == ids(right), f"{mode}, k={k}"
                assert left.scores == pytest.approx(right.scores, abs=1e-6)

    def test_the_explanation_is_that_of_the_hit(self, indexes: Indexes) -> None:
        """A single-leg hit explains its own score, and ranks count from 1 with ties sharing one."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        names: tuple[LegName, ...] = ("keyword", "vector")
        for mode in (name for name in names if name in self.capabilities.modes):
            hits = index.search(mode, QUERY, WORDS, k=30).hits
            legs = [hit.explanation.legs[mode] for hit in hits]
            assert [leg.score for leg in legs] == [hit.score for hit in hits]
            raws = [leg.raw_score for leg in legs]
            assert [leg.rank for leg in legs] == [1 + sum(r > raw for r in raws) for raw in raws]
