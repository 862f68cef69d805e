"""Standard tests: random questions with random filters, compared with brute force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.testing.filters import operators, random_filter, varied
from corral.api.testing.indexes import PLAIN, Handle, Indexes, ids, raw_scores
from corral.api.testing.oracle import Oracle
from corral.api.testing.suite import Suite, needs

CHUNKS, QUESTIONS, DIMENSION = 1000, 40, 8
TOLERANCE = 1e-4
"""Allowed error of a raw score: that of an engine which computes in single precision."""

VOCABULARY = [f"w{number}" for number in range(60)]


def collection(index: Handle) -> Oracle:
    """Fill an index with 1,000 varied chunks, every tenth embedding a duplicate."""
    rng = np.random.default_rng(21)
    rows = rng.normal(size=(CHUNKS, DIMENSION))
    rows[::10] = rows[0]
    chunks = [varied(rng, number) for number in rng.permutation(CHUNKS)]
    for one in chunks:
        one.content = " ".join(rng.choice(VOCABULARY, rng.integers(1, 12)))
    oracle = Oracle(index.vector_db)
    index.add(chunks, rows)
    oracle.add(chunks, rows)
    return oracle


class DifferentialTests(Suite):
    """1,000 seeded chunks; the reference is `corral.api.testing.oracle`."""

    def questions(self) -> Iterator[tuple[NDArray[np.float64], str, int, dict[str, Any] | None]]:
        """Yield (embedding, words, k, filter): every fourth without a filter."""
        rng = np.random.default_rng(22)
        for number in range(QUESTIONS):
            embedding, k = rng.normal(size=DIMENSION), int(rng.integers(1, 60))
            words = " ".join(rng.choice(VOCABULARY, 4, replace=False))
            only = random_filter(rng)
            usable = operators(only) <= set(self.capabilities.filter_operators)
            yield embedding, words, k, only if usable and number % 4 else None

    @needs(lambda can: can.exact)
    def test_filtered_vector_search_equals_brute_force(self, indexes: Indexes) -> None:
        """40 random questions: the ids of brute force but for ties, raw scores within 1e-4."""
        index = indexes.open(dimension=DIMENSION, **PLAIN)
        oracle = collection(index)
        for number, (embedding, _, k, only) in enumerate(self.questions()):
            response = index.vector(embedding, k=k, filters=only)
            wrong = oracle.complaint(response, oracle.vector(embedding, only), k, TOLERANCE)
            assert wrong == "", f"question {number}: {only}"

    @needs(lambda can: can.vector != "no" and not can.exact)
    def test_filtered_vector_search_is_near_brute_force(self, indexes: Indexes) -> None:
        """The same questions, k = 10: recall_vs_exact of `recall_floor`, scores within 1e-3.

        If this fails with filters only: the engine walks its graph first and filters afterwards.
        """
        index = indexes.open(dimension=DIMENSION, **PLAIN)
        oracle = collection(index)
        found = wanted = 0
        for embedding, _, _, only in self.questions():
            exact = oracle.vector(embedding, only)
            raws = raw_scores(index.vector(embedding, k=10, filters=only))
            assert raws == pytest.approx({i: exact[i] for i in raws}, abs=1e-3)
            worst = sorted(exact.values(), reverse=True)[:10][-1:]
            found += sum(exact[i] >= worst[0] - TOLERANCE for i in raws)
            wanted += min(10, len(exact))
        assert found / wanted >= self.recall_floor

    @needs(lambda can: can.keyword != "no")
    def test_filtered_keyword_search_equals_the_definition(self, indexes: Indexes) -> None:
        """40 random questions: ids, order and scores of BM25, filtered."""
        index = indexes.open(dimension=DIMENSION, **PLAIN)
        oracle = collection(index)
        for number, (_, words, k, only) in enumerate(self.questions()):
            response = index.keyword(words, k=k, filters=only)
            expected = oracle.keyword(words, only)
            wrong = oracle.complaint(response, expected, k, max(TOLERANCE, self.bm25_tolerance))
            assert wrong == "", f"question {number}: {words}, {only}"

    @needs(lambda can: can.hybrid != "no")
    def test_a_filtered_hybrid_answer_holds_only_what_its_legs_may(self, indexes: Indexes) -> None:
        """40 random questions: min(k, passing) hits at least, and every one passes the filter."""
        index = indexes.open(dimension=DIMENSION, **PLAIN)
        oracle = collection(index)
        for number, (embedding, words, k, only) in enumerate(self.questions()):
            passing = oracle.passing(only)
            found = ids(index.hybrid(embedding, words, k=k, filters=only))
            assert set(found) <= passing, f"question {number}: {only}"
            assert len(found) == min(k, len(passing)), f"question {number}: {only}"
