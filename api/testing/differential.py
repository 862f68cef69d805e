"""Standard tests: random questions with random filters, compared with brute force."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.testing.filters import operators, random_filter, varied
from corral.api.testing.indexes import PLAIN, Handle, Indexes, ids, raw_scores, registration
from corral.api.testing.oracle import Oracle
from corral.api.testing.suite import Suite, needs

CHUNKS, QUESTIONS, DIMENSION = 1000, 40, 8
TOLERANCE = 1e-4
"""Allowed error of a raw score, for engines that compute in single precision."""

VOCABULARY = [f"w{number}" for number in range(60)]


@cache
def data() -> tuple[list[Chunk], NDArray[np.float64]]:
    """Return 1,000 varied chunks and their embeddings, every tenth a duplicate."""
    rng = np.random.default_rng(21)
    rows = rng.normal(size=(CHUNKS, DIMENSION))
    rows[::10] = rows[0]
    chunks = [varied(rng, number) for number in rng.permutation(CHUNKS)]
    for one in chunks:
        one.content = " ".join(rng.choice(VOCABULARY, rng.integers(1, 12)))
    return chunks, rows


@cache
def reference() -> Oracle:
    """Return the reference over `data`, for vector DBs as `filled` opens them."""
    oracle = Oracle(registration("reference", dimension=DIMENSION, **PLAIN))
    oracle.add(*data())
    return oracle


def filled(indexes: Indexes) -> Handle:
    """Return an index with copies of the chunks, so that it shares no object with the reference."""
    index = indexes.open(dimension=DIMENSION, **PLAIN)
    chunks, rows = data()
    index.add([one.model_copy(deep=True) for one in chunks], rows.copy())
    return index


class Question:
    """A question and the reference's answers, computed once for all suites of a process."""

    def __init__(
        self, embedding: NDArray[np.float64], words: str, k: int, only: dict[str, Any] | None
    ) -> None:
        self.embedding, self.words, self.k, self.only = embedding, words, k, only

    @cached_property
    def passing(self) -> set[str]:
        """The ids of the chunks that pass the filter."""
        return reference().passing(self.only)

    @cached_property
    def vector(self) -> dict[str, float]:
        """The raw vector score of every chunk that passes."""
        return reference().vector(self.embedding, self.only)

    @cached_property
    def keyword(self) -> dict[str, float]:
        """The BM25 of every passing chunk that contains a word of the question."""
        return reference().keyword(self.words, self.only)


@cache
def questions(usable: frozenset[str]) -> list[Question]:
    """Return 40 random questions: every fourth without a filter.

    Args:
        usable: Filter operators; questions with any other operator are left out.
    """
    rng = np.random.default_rng(22)
    drawn = []
    for number in range(QUESTIONS):
        embedding, k = rng.normal(size=DIMENSION), int(rng.integers(1, 60))
        words = " ".join(rng.choice(VOCABULARY, 4, replace=False))
        only = random_filter(rng)
        filtered = number % 4 and operators(only) <= usable
        drawn.append(Question(embedding, words, k, only if filtered else None))
    return drawn


class DifferentialTests(Suite):
    """1,000 seeded chunks; the reference is `corral.api.testing.oracle`."""

    def questions(self) -> list[Question]:
        """Return the questions that the provider can answer."""
        return questions(frozenset(self.capabilities.filter_operators))

    @needs(lambda can: can.exact)
    def test_filtered_vector_search_equals_brute_force(self, indexes: Indexes) -> None:
        """40 random questions: the ids of brute force except for ties, raw scores within 1e-4."""
        index = filled(indexes)
        for number, one in enumerate(self.questions()):
            response = index.vector(one.embedding, k=one.k, filters=one.only)
            wrong = reference().complaint(response, one.vector, one.k, TOLERANCE)
            assert wrong == "", f"question {number}: {one.only}"

    @needs(lambda can: can.vector != "no" and not can.exact)
    def test_filtered_vector_search_is_near_brute_force(self, indexes: Indexes) -> None:
        """The same questions, k = 10: recall_vs_exact of `recall_floor`, scores within 1e-3.

        If this fails with filters only: the engine walks its graph first and filters afterwards.
        """
        index = filled(indexes)
        hits = possible = 0
        for one in self.questions():
            exact = one.vector
            raws = raw_scores(index.vector(one.embedding, k=10, filters=one.only))
            assert raws == pytest.approx({i: exact[i] for i in raws}, abs=1e-3)
            worst = sorted(exact.values(), reverse=True)[:10][-1:]
            hits += sum(exact[i] >= worst[0] - TOLERANCE for i in raws)
            possible += min(10, len(exact))
        assert hits / possible >= self.recall_floor

    @needs(lambda can: can.keyword != "no")
    def test_filtered_keyword_search_equals_the_definition(self, indexes: Indexes) -> None:
        """40 random questions: ids, order and scores of BM25, filtered."""
        index = filled(indexes)
        tolerance = max(TOLERANCE, self.bm25_tolerance)
        for number, one in enumerate(self.questions()):
            response = index.keyword(one.words, k=one.k, filters=one.only)
            wrong = reference().complaint(response, one.keyword, one.k, tolerance)
            assert wrong == "", f"question {number}: {one.words}, {one.only}"

    @needs(lambda can: can.hybrid != "no")
    def test_a_filtered_hybrid_answer_holds_only_what_its_legs_may(self, indexes: Indexes) -> None:
        """40 random questions: min(k, passing) hits at least, and every one passes the filter."""
        index = filled(indexes)
        for number, one in enumerate(self.questions()):
            hit_ids = ids(index.hybrid(one.embedding, one.words, k=one.k, filters=one.only))
            assert set(hit_ids) <= one.passing, f"question {number}: {one.only}"
            assert len(hit_ids) == min(one.k, len(one.passing)), f"question {number}: {one.only}"
