"""Standard tests: hybrid answers are our own fusion of the provider's two legs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from corral.api.checks import AnyRanker
from corral.api.fusion import Leg, fuse
from corral.api.hits import QueryChunksResponse
from corral.api.rankers import LegName, LegWeights, MaxRanker, RRFRanker, WeightedRanker
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk, ids, scores
from corral.api.testing.suite import Suite, needs

RANKERS: list[AnyRanker] = [
    RRFRanker(),
    RRFRanker(rank_constant=1, weights=LegWeights(vector=1, keyword=3)),
    RRFRanker(candidates=5),
    WeightedRanker(alpha=0.3),
    WeightedRanker(alpha=0.7, normalization="raw"),
    WeightedRanker(normalization="min_max"),
    MaxRanker(),
]

VECTOR_OFF = [
    WeightedRanker(alpha=0),
    WeightedRanker(alpha=0, normalization="raw"),
    WeightedRanker(alpha=0, normalization="min_max"),
    RRFRanker(weights=LegWeights(vector=0)),
    MaxRanker(weights=LegWeights(vector=0)),
]
KEYWORD_OFF = [
    WeightedRanker(alpha=1),
    WeightedRanker(alpha=1, normalization="raw"),
    WeightedRanker(alpha=1, normalization="min_max"),
    RRFRanker(weights=LegWeights(keyword=0)),
    MaxRanker(weights=LegWeights(keyword=0)),
]


def filled(index: Handle, count: int = 80) -> None:
    """Fill an index with random vectors and texts of three words out of ten."""
    rng = np.random.default_rng(8)
    words = [f"w{number}" for number in range(10)]
    chunks = [chunk(f"c{n:02}", " ".join(rng.choice(words, 3)), part=n % 4) for n in range(count)]
    index.add(chunks, rng.normal(size=(count, index.vector_db.embedding_dimension)))


def as_leg(response: QueryChunksResponse, name: Any) -> Leg:
    """Return a single-leg answer in the form that fusion takes."""
    return [
        (hit.chunk.chunk_id, hit.score, hit.explanation.legs[name].raw_score)
        for hit in response.hits
    ]


@needs(lambda can: can.hybrid != "no")
class HybridTests(Suite):
    """Hybrid mode."""

    def test_hybrid_is_the_fusion_of_both_legs(self, indexes: Indexes) -> None:
        """Ids, scores and explanations equal the fusion of the two single-mode answers.

        If this fails: a native hybrid search uses other ranks or weights than `fuse`.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        for ranker, k in product(RANKERS, (1, 10, 30)):
            size = ranker.leg_size(k)
            legs: dict[LegName, Leg] = {
                "vector": as_leg(index.vector([1, 2, -1], k=size), "vector"),
                "keyword": as_leg(index.keyword("w1 w2 w7", k=size), "keyword"),
            }
            expected = fuse(ranker, legs)[:k]
            response = index.hybrid([1, 2, -1], "w1 w2 w7", k=k, ranker=ranker)
            label = f"{ranker!r}, k={k}"
            assert ids(response) == [hit.chunk_id for hit in expected], label
            right = pytest.approx([hit.score for hit in expected], abs=1e-6)
            assert response.scores == right, label
            assert [set(h.explanation.legs) for h in response.hits] == [
                set(h.explanation.legs) for h in expected
            ], label

    def test_first_in_both_legs_scores_1(self, indexes: Indexes) -> None:
        """The chunk that is best by vector and by words scores 1.0, alone or not."""
        index = indexes.open(**PLAIN)
        index.add([chunk("a", "zebra"), chunk("b", "lion")], [[1, 0], [0, 1]])
        assert index.hybrid([1, 0], "zebra", k=1).scores == [pytest.approx(1.0, abs=1e-9)]
        response = index.hybrid([1, 0], "zebra", ranker=RRFRanker())
        assert ids(response) == ["a", "b"]
        assert response.scores[0] == pytest.approx(1.0, abs=1e-9)
        assert response.scores[1] == pytest.approx(61 / 62 / 2, abs=1e-9)

    def test_what_one_leg_finds_is_in_the_answer(self, indexes: Indexes) -> None:
        """The answer has both a far chunk with the word and a near chunk without it.

        If this fails: hybrid intersects its legs, or drops the keyword leg.
        """
        index = indexes.open(**PLAIN)
        crowd = {f"x{n:03}": [1.0, 0.001 * n] for n in range(100)}
        index.add_vectors(crowd)
        index.add([chunk("word", "zebra")], [[-1, 0]])
        response = index.hybrid([1, 0], "zebra", k=2)
        assert sorted(ids(response)) == ["word", "x000"]
        legs = {hit.chunk.chunk_id: set(hit.explanation.legs) for hit in response.hits}
        assert legs == {"word": {"keyword"}, "x000": {"vector"}}

    def test_a_query_without_words_is_ranked_by_the_vector_leg(self, indexes: Indexes) -> None:
        """A blank text, or words that occur nowhere: the vector leg alone, and no error.

        Under RRF no score is then above 0.5, because one of two equal legs is empty.
        """
        index = indexes.open(dimension=3)
        filled(index)
        for text in ("", "?!", "unheardof"):
            expected = ids(index.vector([1, 2, -1], k=10))
            assert ids(index.hybrid([1, 2, -1], text, k=10)) == expected
            response = index.hybrid([1, 2, -1], text, k=10, ranker=RRFRanker())
            assert ids(response) == expected
            assert max(response.scores) <= 0.5, "half of the evidence is missing"

    def test_a_small_threshold_does_not_empty_the_answer(self, indexes: Indexes) -> None:
        """Thresholds 0.1 and 0 keep the same hits: raw RRF sums near 0.03 are not compared.

        If this fails: the threshold was applied to a leg, or to the fused score before scaling.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        rrf = RRFRanker()
        everything = index.hybrid([1, 2, -1], "w1 w2", k=10, ranker=rrf)
        assert len(everything.hits) == 10
        response = index.hybrid([1, 2, -1], "w1 w2", k=10, ranker=rrf, score_threshold=0.1)
        assert ids(response) == ids(everything)

    def test_alpha_1_is_the_vector_leg_and_0_the_keyword_leg(self, indexes: Indexes) -> None:
        """The answer has the order of the only leg that counts.

        If this fails: alpha is inverted.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        vector = ids(index.vector([1, 2, -1], k=5))
        keyword = ids(index.keyword("w1 w2", k=5))
        ranker = {"type": "weighted", "normalization": "raw"}
        answers = [
            ids(index.hybrid([1, 2, -1], "w1 w2", k=5, ranker={**ranker, "alpha": alpha}))
            for alpha in (1, 0)
        ]
        assert answers == [vector, keyword]

    def test_weight_0_switches_a_leg_off(self, indexes: Indexes) -> None:
        """The answer is exactly the other leg, in its order; empty if that leg is empty.

        If this fails: chunks with score 0 come from the leg that is switched off, or a native
        hybrid search still searches it.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        index.add([chunk("rare", "zebra")], [[-1, -2, 1]])
        queries = (("zebra", 10), ("w1 w2", 10), ("unheardof", 5))
        rankers: list[Any] = [*VECTOR_OFF, *KEYWORD_OFF]
        for ranker, (text, k) in product(rankers, queries):
            name: Any = "keyword" if ranker in VECTOR_OFF else "vector"
            size = ranker.leg_size(k)
            answers = (
                index.keyword(text, k=size) if name == "keyword" else index.vector([1, 2, -1], size)
            )
            expected = fuse(ranker, {name: as_leg(answers, name)})[:k]
            response = index.hybrid([1, 2, -1], text, k=k, ranker=ranker)
            assert ids(response) == [hit.chunk_id for hit in expected], f"{ranker!r}, {text}"
            assert response.scores == pytest.approx([hit.score for hit in expected], abs=1e-6)

    def test_the_registered_ranker_is_used_and_a_query_overrides_it(self, indexes: Indexes) -> None:
        """Precedence: the request's ranker, then the registration's."""
        index = indexes.open(
            ranker={"type": "weighted", "alpha": 1, "normalization": "raw"}, **PLAIN
        )
        index.add([chunk("v", "lion"), chunk("k", "zebra")], [[1, 0], [0, 1]])
        assert scores(index.hybrid([1, 0], "zebra")) == pytest.approx(
            {"v": 1.0, "k": 0.5}, abs=1e-6
        )
        keyword_only = {"type": "weighted", "alpha": 0, "normalization": "raw"}
        assert ids(index.hybrid([1, 0], "zebra", ranker=keyword_only)) == ["k"]

    def test_a_filter_holds_in_both_legs(self, indexes: Indexes) -> None:
        """No leg adds a chunk that fails the filter."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        only = {"type": "eq", "key": "part", "value": 2}
        response = index.hybrid([1, 2, -1], "w1 w2 w3", k=50, filters=only)
        assert {hit.metadata["part"] for hit in response.chunks} == {2}
        assert len(response.hits) == 20

    def test_the_registered_mode_is_the_default(self, indexes: Indexes) -> None:
        """A query without a mode uses the registered mode."""
        for mode in self.capabilities.modes:
            index = indexes.open(mode, dimension=3, search_mode=mode, **PLAIN)
            filled(index)
            named = index.search(mode, [1, 2, -1], "w1 w2")
            plain = indexes.run(index.index.query([1, 2, -1], "w1 w2", k=10))
            assert (ids(plain), plain.scores) == (ids(named), named.scores)
