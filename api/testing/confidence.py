"""Standard tests: the confidence of an answer is the same on every backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corral.api.confidence import Evidence
from corral.api.hits import QueryChunksResponse
from corral.api.testing.hybrid import filled
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk
from corral.api.testing.oracle import Oracle, greatest_bm25
from corral.api.testing.suite import Suite, needs

QUERY = [1.0, 2.0, -1.0]


def expected(index: Handle, text: str, filters: Any) -> dict[str, float | None]:
    """Return the confidence in each mode, by brute force over all chunks that `filled` adds."""
    oracle = Oracle(index.vector_db)
    stored = index.get(*index.chunk_ids(), include_embeddings=True)
    oracle.add(stored, [one.embedding or [] for one in stored])
    words = oracle.keyword(text, filters)
    share = max(words.values(), default=0.0) / greatest_bm25(text, oracle.chunks.values())
    cosine = max(oracle.vector(QUERY, filters).values(), default=0.0)
    legs = {"vector": (cosine, None), "keyword": (None, share), "hybrid": (cosine, share)}
    return {mode: Evidence(*leg).confidence for mode, leg in legs.items()}


def told(index: Handle, mode: str, text: str, **options: Any) -> QueryChunksResponse:
    """Query with the embedding of these tests."""
    return index.search(mode, QUERY, text, **options)


@needs(lambda can: can.keyword != "no" and can.hybrid != "no")
class ConfidenceTests(Suite):
    """The probability that the hits contain an answer."""

    def test_confidence_is_that_of_the_definition(self, indexes: Indexes) -> None:
        """In each mode the confidence follows from the best cosine and the share of the best BM25.

        The share's denominator is (k1 + 1) times the sum of the idf of all terms, including terms
        that no chunk contains. If this fails: `search_keyword` returns no `KeywordLeg`, or its
        `greatest` leaves out terms.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        tolerance = max(1e-6, self.bm25_tolerance)
        for text in ("w1", "w1 w2 w7", "w1 nowhere", "nowhere"):
            for filters in (None, {"type": "eq", "key": "part", "value": 2}):
                right = expected(index, text, filters)
                for mode in self.capabilities.modes:
                    confidence = told(index, mode, text, filters=filters).confidence
                    assert confidence == pytest.approx(right[mode], abs=tolerance), (
                        f"{mode}, {text}"
                    )

    def test_confidence_depends_on_no_number_of_hits(self, indexes: Indexes) -> None:
        """k, the threshold and the ranker change the answer, but not its confidence."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        first = told(index, "hybrid", "w1 w2").confidence
        for options in ({"k": 1}, {"k": 80}, {"score_threshold": 1.0}, {"ranker": {"type": "rrf"}}):
            again = told(index, "hybrid", "w1 w2", **options).confidence
            assert again == pytest.approx(first, abs=1e-6), options

    def test_only_the_legs_that_run_count(self, indexes: Indexes) -> None:
        """A leg of weight 0 does not count, nor does the keyword leg if the query has no word."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        ranker = {"type": "weighted"}
        for alpha, mode in ((1, "vector"), (0, "keyword")):
            one = told(index, "hybrid", "w1 nowhere", ranker={**ranker, "alpha": alpha})
            assert one.confidence == pytest.approx(told(index, mode, "w1 nowhere").confidence)
        vector = told(index, "vector", "").confidence
        assert told(index, "hybrid", "?!").confidence == pytest.approx(vector)

    def test_nothing_stored_and_nothing_found(self, indexes: Indexes) -> None:
        """An empty vector DB, or a filter that no chunk passes, gives the minimum confidence."""
        index = indexes.open(dimension=3, **PLAIN)
        none = {mode: told(index, mode, "w1").confidence for mode in self.capabilities.modes}
        filled(index)
        nothing = {"type": "eq", "key": "part", "value": "absent"}
        for mode, empty in none.items():
            assert empty is not None
            assert empty < 0.1
            assert told(index, mode, "w1", filters=nothing).confidence == pytest.approx(empty)

    def test_a_cosine_whatever_the_metric(self, indexes: Indexes) -> None:
        """With `normalize: false` the evidence is the cosine of the best chunk, too.

        If this fails: a distance or an inner product is taken for a cosine.
        """
        for metric in self.capabilities.metrics:
            index = indexes.open(metric, dimension=2, metric=metric, normalize=False)
            index.add([chunk("a", "zebra")], [[3.0, 3.0]])
            confidence = index.vector([2.0, 0.0]).confidence
            assert confidence == pytest.approx(Evidence(math.sqrt(0.5)).confidence, abs=1e-6), (
                metric
            )

    def test_what_unrelated_texts_have_counts_as_nothing(self, indexes: Indexes) -> None:
        """A cosine of the registration's `unrelated_cosine` or less counts as 0."""
        index = indexes.open(dimension=2, unrelated_cosine=0.6)
        index.add([chunk("a", "zebra")], [[0.8, 0.6]])
        confidence = index.vector(np.array([1.0, 0.0])).confidence
        assert confidence == pytest.approx(Evidence(0.5).confidence, abs=1e-6)
