"""Standard tests: vector search against scores computed by hand and against brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corral.api.testing.indexes import Handle, Indexes, chunk, ids, scores
from corral.api.testing.oracle import Oracle
from corral.api.testing.suite import Suite, needs

HALF = math.sqrt(0.5)

# By angle to [1, 0]: 0, 45, 90, 135 and 180 degrees; lengths differ on purpose.
COMPASS = {"a": [2.0, 0.0], "b": [3.0, 3.0], "c": [0.0, 0.5], "d": [-1.0, 1.0], "e": [-4.0, 0.0]}
COMPASS_SCORES = {"a": 1.0, "b": (1 + HALF) / 2, "c": 0.5, "d": (1 - HALF) / 2, "e": 0.0}


def seeded(index: Handle, count: int, seed: int, **metadata: Any) -> Oracle:
    """Fill an index with random chunks, every eighth a duplicate vector; return the reference."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, index.vector_db.embedding_dimension))
    rows[::8] = rows[0]
    names = [f"c{number:05}" for number in rng.permutation(count)]
    chunks = [chunk(name, **metadata) for name in names]
    oracle = Oracle(index.vector_db)
    index.add(chunks, rows)
    oracle.add(chunks, rows)
    return oracle


def differences(index: Handle, oracle: Oracle) -> list[str]:
    """Run 25 random queries and return the differences from brute force."""
    rng = np.random.default_rng(3)
    wrong = []
    for number in range(25):
        query = rng.normal(size=5) * 10 ** rng.uniform(-2, 2)
        k = int(rng.integers(1, 60))
        tolerance = 1e-5 * max(1.0, float(np.linalg.norm(query)))
        complaint = oracle.complaint(index.vector(query, k=k), oracle.vector(query), k, tolerance)
        wrong += [f"query {number}: {complaint}"] if complaint else []
    return wrong


def itself(index: Handle) -> list[float]:
    """Query each of 24 chunks by its own embedding, at threshold 1; return the scores."""
    rows = np.random.default_rng(21).normal(size=(24, index.vector_db.embedding_dimension))
    names = [f"c{number:02}" for number in range(24)]
    index.add([chunk(name) for name in names], rows)
    scores_by_row = [scores(index.vector(row, k=3, score_threshold=1.0)) for row in rows]
    return [
        scores_of_row.get(name, 0.0)
        for scores_of_row, name in zip(scores_by_row, names, strict=True)
    ]


@needs(lambda can: can.vector != "no")
class VectorTests(Suite):
    """Vector mode."""

    @pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
    def test_normalized_embeddings_score_by_their_angle(
        self, indexes: Indexes, metric: str
    ) -> None:
        """(1 + cos) / 2 under every metric: identical 1, orthogonal 0.5, opposite 0.

        If this fails: the raw score is a distance, its inverse or its square, or hits are sorted
        by ascending distance.
        """
        index = indexes.open(metric=metric)
        index.add_vectors(COMPASS)
        response = index.vector([10, 0])
        assert ids(response) == ["a", "b", "c", "d", "e"]
        assert scores(response) == pytest.approx(COMPASS_SCORES, abs=1e-6)

    def test_in_three_dimensions(self, indexes: Indexes) -> None:
        """Cosines 1, 8/9, 1/3 and -1 of [1, 2, 2], whatever its length."""
        index = indexes.open(dimension=3)
        index.add_vectors({"a": [2, 4, 4], "b": [2, 1, 2], "c": [1, 0, 0], "d": [-1, -2, -2]})
        expected = {"a": 1.0, "b": 17 / 18, "c": 2 / 3, "d": 0.0}
        for query in ([1, 2, 2], [10, 20, 20], [0.1, 0.2, 0.2]):
            response = index.vector(query)
            assert ids(response) == ["a", "b", "c", "d"], query
            assert scores(response) == pytest.approx(expected, abs=1e-6), query

    @pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
    def test_an_embedding_finds_itself_with_score_1(self, indexes: Indexes, metric: str) -> None:
        """A chunk's own embedding as the query: score 1.0, which passes score_threshold 1.0.

        Float32 gives most of these embeddings a length a little off 1. If this fails: the raw score
        of equal embeddings is further from 1 than rounding explains.
        """
        assert itself(indexes.open(dimension=64, metric=metric)) == [1.0] * 24

    @needs(lambda can: "cosine" in can.metrics)
    def test_a_raw_embedding_finds_itself_with_score_1(self, indexes: Indexes) -> None:
        """The same with `normalize: false`, by cosine."""
        assert itself(indexes.open(dimension=64, metric="cosine", normalize=False)) == [1.0] * 24

    @needs(lambda can: "l2" in can.metrics)
    def test_l2_of_raw_embeddings(self, indexes: Indexes) -> None:
        """1 / (1 + distance): distances 0, 1, 5 score 1, 1/2, 1/6; the zero vector is valid.

        If this fails: the distance is squared, or embeddings were normalized.
        """
        index = indexes.open(metric="l2", normalize=False)
        index.add_vectors({"far": [3, 4], "here": [0, 0], "near": [0, -1]})
        response = index.vector([0, 0])
        assert ids(response) == ["here", "near", "far"]
        assert response.scores == pytest.approx([1.0, 1 / 2, 1 / 6], abs=1e-5)
        assert ids(index.vector([3, 3])) == ["far", "here", "near"]

    @needs(lambda can: "dot" in can.metrics)
    def test_dot_of_raw_embeddings(self, indexes: Indexes) -> None:
        """1 / (1 + exp(-ip)): products ln 9, ln 3, 0 and -ln 3 score 0.9, 0.75, 0.5, 0.25.

        If this fails: the raw score has the sign of a distance, or embeddings lost their lengths.
        """
        index = indexes.open(metric="dot", normalize=False)
        index.add_vectors({"minus": [-1, 0], "none": [0, 0], "one": [1, 9], "two": [2, 0]})
        response = index.vector([math.log(3), 0])
        assert ids(response) == ["two", "one", "none", "minus"]
        assert response.scores == pytest.approx([0.9, 0.75, 0.5, 0.25], abs=1e-5)

    @needs(lambda can: "dot" in can.metrics)
    def test_large_inner_products_keep_their_order(self, indexes: Indexes) -> None:
        """If every score rounds to 1.0, the larger product still comes first."""
        index = indexes.open(metric="dot", normalize=False)
        index.add_vectors({"a": [100, 0], "b": [300, 0], "c": [200, 0]})
        assert ids(index.vector([1, 0])) == ["b", "c", "a"]

    @needs(lambda can: "dot" in can.metrics)
    def test_small_inner_products_keep_their_order(self, indexes: Indexes) -> None:
        """Of 60 products below 1e-10 the three largest come first.

        If this fails: the engine's distance is 1 - product, which single precision rounds to 1.
        """
        index = indexes.open(metric="dot", normalize=False)
        index.add_vectors({f"c{n:02}": [(n * 37 % 60) * 1e-12, 0] for n in range(60)})
        assert ids(index.vector([1, 0], k=3)) == ["c47", "c34", "c21"]

    @needs(lambda can: "cosine" in can.metrics)
    def test_cosine_of_raw_embeddings(self, indexes: Indexes) -> None:
        """Lengths are stored but do not count: the same scores as with normalized embeddings."""
        index = indexes.open(metric="cosine", normalize=False)
        index.add_vectors(COMPASS)
        response = index.vector([10, 0])
        assert ids(response) == ["a", "b", "c", "d", "e"]
        assert scores(response) == pytest.approx(COMPASS_SCORES, abs=1e-5)

    @needs(lambda can: can.exact)
    def test_equal_distances_come_in_the_order_of_ids(self, indexes: Indexes) -> None:
        """20 duplicates, inserted out of order: ids ascend, and the cut at k keeps the first ids.

        If this fails: ties come in the order of insertion, or the engine cuts before they are
        ordered; request all ties with the last hit from it, too.
        """
        index = indexes.open(dimension=8)
        rng = np.random.default_rng(7)
        near, far = rng.normal(size=8), rng.normal(size=(20, 8))
        names = [f"c{number:02}" for number in rng.permutation(40)]
        duplicates = sorted(names[::2])
        index.add_vectors({n: near if p % 2 == 0 else far[p // 2] for p, n in enumerate(names)})
        for k in (1, 7, 10, 30):
            response = index.vector(near, k=k)
            assert ids(response)[:20] == duplicates[: min(k, 20)], f"k={k}"
            assert response.scores[: min(k, 20)] == pytest.approx([1.0] * min(k, 20), abs=1e-6)
            assert len(set(response.scores[:20])) == 1, f"k={k}"

    @needs(lambda can: can.exact)
    def test_k_is_the_number_of_hits_and_a_prefix_of_more(self, indexes: Indexes) -> None:
        """For every k from 1 to beyond n: exactly min(k, n) hits, and a prefix of the full answer.

        If this fails: k is off by one, or the search depends on k.
        """
        index = indexes.open(dimension=4)
        oracle = seeded(index, 20, seed=1)
        query = [1.0, -1.0, 0.5, 0.0]
        everything = ids(index.vector(query, k=100))
        assert sorted(everything) == sorted(oracle.chunks)
        for k in range(1, 23):
            assert ids(index.vector(query, k=k)) == everything[:k], f"k={k}"

    @needs(lambda can: can.exact)
    @pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
    def test_exact_search_equals_brute_force(self, indexes: Indexes, metric: str) -> None:
        """300 chunks with duplicates, 25 random queries: ids, order and raw scores of brute force.

        If this fails only for one metric: look at the sign and the square of its distance.
        """
        index = indexes.open(dimension=5, metric=metric)
        assert differences(index, seeded(index, 300, seed=2)) == []

    @needs(lambda can: can.exact and bool(can.metrics))
    def test_exact_search_equals_brute_force_on_raw_embeddings(self, indexes: Indexes) -> None:
        """The same with `normalize: false`, for each metric that the provider supports with it."""
        for metric in self.capabilities.metrics:
            index = indexes.open(metric, dimension=5, metric=metric, normalize=False)
            assert differences(index, seeded(index, 300, seed=2)) == [], metric

    @needs(lambda can: not can.exact)
    def test_approximate_search_is_near_brute_force(self, indexes: Indexes) -> None:
        """2,000 chunks, 50 queries: recall_vs_exact@10 of at least `recall_floor`, exact scores."""
        index = indexes.open(dimension=8)
        rng = np.random.default_rng(4)
        rows = rng.normal(size=(2000, 8))
        chunks = [chunk(f"c{number:04}") for number in range(2000)]
        oracle = Oracle(index.vector_db)
        index.add(chunks, rows)
        oracle.add(chunks, rows)
        hits = 0
        for query in rng.normal(size=(50, 8)):
            exact = oracle.vector(query)
            best = sorted(exact, key=lambda i: -exact[i])[:10]
            response = index.vector(query, k=10)
            hits += len(set(best) & set(ids(response)))
            for hit in response.hits:
                raw = hit.explanation.legs["vector"].raw_score
                assert raw == pytest.approx(exact[hit.chunk.chunk_id], abs=1e-3)
        assert hits / 500 >= self.recall_floor

    @needs(lambda can: not can.exact and bool(can.metrics))
    def test_approximate_search_is_near_brute_force_on_raw_embeddings(
        self, indexes: Indexes
    ) -> None:
        """The same with `normalize: false` for each metric, 300 chunks in 20 calls, 20 queries.

        If this fails for l2 only: the provider's internal rows lie near the origin, and are nearer
        to each chunk than the chunks are to each other.
        """
        rng = np.random.default_rng(5)
        names = [f"c{number:03}" for number in range(300)]
        rows = rng.normal(size=(300, 64))
        queries = rng.normal(size=(20, 64))
        for metric in self.capabilities.metrics:
            index = indexes.open(metric, dimension=64, metric=metric, normalize=False)
            for start in range(0, 300, 15):
                part = slice(start, start + 15)
                index.add([chunk(name) for name in names[part]], rows[part])
            oracle = Oracle(index.vector_db)
            oracle.add([chunk(name) for name in names], rows)
            hits = 0
            for query in queries:
                exact = oracle.vector(query)
                best = sorted(exact, key=lambda i: -exact[i])[:10]
                hits += len(set(best) & set(ids(index.vector(query, k=10))))
            assert hits / 200 >= self.recall_floor, metric

    def test_any_array_asks_the_same_question(self, indexes: Indexes) -> None:
        """Lists, tuples and arrays of any real dtype give one answer, and are not changed."""
        index = indexes.open()
        index.add_vectors(COMPASS)
        query = np.array([3.0, 4.0])
        expected = index.vector([3.0, 4.0])
        for same in (query, query.astype(np.float32), (3, 4), query.astype(int), query[None, :]):
            response = index.vector(same)
            assert (ids(response), response.scores) == (ids(expected), expected.scores)
        assert query.tolist() == [3.0, 4.0]

    def test_very_large_and_very_small_embeddings(self, indexes: Indexes) -> None:
        """Embeddings with components of 1e15 and of 1e-15 have a valid direction."""
        index = indexes.open()
        index.add_vectors({"a": [1e15, 1e15], "b": [1e-15, 0.0], "c": [0.0, -1e15]})
        response = index.vector([1e-15, 1e-15])
        assert ids(response) == ["a", "b", "c"]
        assert response.scores == pytest.approx([1.0, (1 + HALF) / 2, (1 - HALF) / 2], abs=1e-6)
