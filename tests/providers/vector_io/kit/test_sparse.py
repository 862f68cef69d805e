"""BM25 by sparse vectors: what is stored, and answers that are right whatever was stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from corral.api.hits import Candidate
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit.sparse import (
    DIMENSIONS,
    KEY_BITS,
    Proposal,
    SparseChunk,
    SparseQuery,
    Statistics,
    best_matches,
    dimension_of,
    packed,
    query_vector,
    reference_average,
    reference_of,
    sparse_chunk,
    term_key,
)

WORDS = [f"w{number}" for number in range(30)]


class Engine:
    """Sparse inner products by brute force, over chunks stored with any references."""

    def __init__(self, chunks: dict[str, SparseChunk]) -> None:
        self.chunks = chunks
        self.fetched = 0
        self.hidden: set[str] = set()
        self._vectors: dict[str, dict[int, float]] = {}

    @property
    def statistics(self) -> Statistics:
        stored = self.chunks.values()
        return Statistics(
            Counter(one.length for one in stored), Counter(one.reference for one in stored)
        )

    def holding(self, key: int) -> int:
        return sum(key in one.keys for one in self.chunks.values())

    def vector(self, chunk_id: str) -> dict[int, float]:
        if chunk_id not in self._vectors:
            self._vectors[chunk_id] = dict(zip(*self.chunks[chunk_id].vector(), strict=True))
        return self._vectors[chunk_id]

    async def search(self, text: str, k: int) -> list[Candidate]:
        query = SparseQuery(text, analyzer("simple"))
        weights = query.weights([self.holding(key) for key in query.keys], len(self.chunks))
        asked = dict(zip(*query_vector(weights), strict=True))

        async def fetch(references: Sequence[int] | None, limit: int) -> list[Proposal]:
            found = []
            for chunk_id, one in self.chunks.items():
                vector = self.vector(chunk_id)
                score = sum(vector.get(place, 0.0) * weight for place, weight in asked.items())
                if score > 0 and (references is None or one.reference in references):
                    passes = chunk_id not in self.hidden
                    found.append(
                        Proposal(
                            chunk_id,
                            float(np.float32(score)),
                            *packed(one.keys, one.frequencies),
                            one.length,
                            passes,
                        )
                    )
            found.sort(key=lambda proposal: -proposal.score)
            self.fetched += min(limit, len(found))
            return found[:limit]

        return await best_matches(query, weights, self.statistics, k, fetch)

    def exact(self, text: str) -> list[tuple[str, float]]:
        """Every chunk with a term, by the definition, best first."""
        count, average = len(self.chunks), self.statistics.average
        total = Counter[str]()
        for term, times in Counter(text.split()).items():
            key = term_key(term)
            for chunk_id, one in self.chunks.items():
                if key in one.keys and chunk_id not in self.hidden:
                    frequency = one.frequencies[one.keys.index(key)]
                    weight = term_weight(frequency, one.length, average)
                    total[chunk_id] += idf(self.holding(key), count) * weight * times  # type: ignore[assignment]
        return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))


def stored(text: str, reference: int = 0) -> SparseChunk:
    """Return a text as it is stored."""
    words = text.split()
    frequencies = {word: float(times) for word, times in Counter(words).items()}
    return sparse_chunk(ChunkTerms(frequencies, len(words)), reference)


def engine(count: int, references: Sequence[int], *, seed: int, longest: int = 60) -> Engine:
    """Return an engine with random texts, each stored with one of these references."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, 31)
    chances /= chances.sum()
    return Engine(
        {
            f"c{number:04}": stored(
                " ".join(rng.choice(WORDS, rng.integers(1, longest), p=chances)),
                int(rng.choice(references)),
            )
            for number in range(count)
        }
    )


def test_keys_are_the_same_for_ever() -> None:
    """A term's key is stored, so it may never change; these were computed once.

    If this fails: every stored index has to be made anew.
    """
    assert [term_key(term) for term in ("zebra", "天气", "")] == [
        8265146537649722, 5522988556418738, 8044937785282358
    ]  # fmt: skip
    assert all(0 <= term_key(word) < 2**KEY_BITS for word in WORDS)
    assert float(2**KEY_BITS - 1) == 2**KEY_BITS - 1


def test_dimensions_fit_every_engine() -> None:
    """Indices are 32-bit numbers below the largest two, which Milvus does not take."""
    assert dimension_of(DIMENSIONS - 1) == 2**32 - 3
    assert dimension_of(DIMENSIONS) == 0
    assert max(dimension_of(2**KEY_BITS - number) for number in range(1, 100)) < DIMENSIONS


def test_a_vector_holds_the_weights_at_its_reference() -> None:
    """Ascending distinct dimensions; the weight of each term as bm25.py defines it."""
    chunk = stored("a a b c", reference_of(4.0))
    dimensions, weights = chunk.vector()
    average = reference_average(chunk.reference)
    assert dimensions == sorted(set(dimensions))
    assert average == pytest.approx(4.0, rel=0.01)
    found = dict(zip(dimensions, weights, strict=True))
    for term, frequency in {"a": 2, "b": 1, "c": 1}.items():
        place = dimension_of(term_key(term))
        assert found[place] == pytest.approx(term_weight(frequency, 4, average))


def test_no_terms_no_vector() -> None:
    """A chunk without a term has an empty vector, and its reference is a number all the same."""
    chunk = sparse_chunk(ChunkTerms({}, 0), Statistics({}, {}).reference_with([0]))
    assert chunk == SparseChunk([], [], 0, 0)
    assert chunk.vector() == ([], [])


def test_shared_dimensions_never_lower_a_score() -> None:
    """Weights of a chunk add up there, and of a query the larger one counts."""
    low, high = 7, 7 + DIMENSIONS
    assert dimension_of(low) == dimension_of(high)
    [place], [weight] = SparseChunk([low, high], [1.0, 1.0], 2, reference_of(2)).vector()
    assert place == 7
    assert weight == pytest.approx(2.0, rel=0.02)
    assert query_vector({low: 1.5, high: 0.5, 3: 1.0}) == ([3, 7], [1.0, 1.5])


def test_the_average_counts_every_chunk() -> None:
    """(2 x 3 + 1 x 9 + 1 x 0) / 4; with chunks to come, these too."""
    statistics = Statistics({3: 2, 9: 1, 0: 1}, {5: 4})
    assert (statistics.count, statistics.average) == (4, 15 / 4)
    assert statistics.reference_with([35, 2]) == reference_of(52 / 6)
    assert Statistics({}, {}).average == 0.0


def test_terms_are_packed_exactly() -> None:
    """53-bit keys and fractional frequencies, and none at all.

    If this fails: every keyword score from stored terms is wrong, or chunks that are stored have
    to be written anew.
    """
    keys, frequencies = [0, 5, 2**53 - 1], [1.0, 0.1 + 0.2, 100.0]
    first, second = packed(keys, frequencies)
    assert np.frombuffer(first, "<i8").tolist() == keys
    assert np.frombuffer(second, "<f8").tolist() == frequencies
    assert packed([], []) == (b"", b"")


def test_query_weights_are_idf_times_repetitions() -> None:
    """Terms that no chunk holds have none; a count that a write overtook is taken as all."""
    query = SparseQuery("Zebra lion zebra okapi quagga", analyzer("simple"))
    frequency = {"lion": 3, "okapi": 0, "quagga": 12, "zebra": 1}
    weights = query.weights([frequency[term] for term in query.terms], 10)
    assert weights == {
        term_key("zebra"): pytest.approx(2 * math.log(1 + 9.5 / 1.5)),
        term_key("lion"): pytest.approx(math.log(1 + 7.5 / 3.5)),
        term_key("quagga"): pytest.approx(math.log(1 + 0.5 / 10.5)),
    }
    assert query.held({term_key("zebra"), 5}) == ("zebra",)


@pytest.mark.parametrize("references", [[150], [170, 171], [0, 60, 150, 300], [-50, 400]])
@pytest.mark.parametrize("k", [1, 7, 40])
async def test_answers_are_bm25_whatever_the_stored_average(references: list[int], k: int) -> None:
    """150 chunks stored with right, old and absurd averages: ids, order and scores of the truth.

    If this fails: a chunk whose stored weights are too small is not proposed, and missing.
    """
    one = engine(150, references, seed=k)
    for text in ("w0", "w29", "w3 w17 w25", "w1 w1 w28 nothing", " ".join(WORDS)):
        found, expected = await one.search(text, k), one.exact(text)[:k]
        assert [match.chunk_id for match in found] == [chunk_id for chunk_id, _ in expected]
        assert [match.raw_score for match in found] == pytest.approx(
            [score for _, score in expected]
        )


async def test_a_few_old_chunks_do_not_make_every_query_slow() -> None:
    """1,000 chunks with today's average, 10 from when it was a fiftieth of it: few are fetched.

    If this fails: the bound of the oldest chunk is the bound of all, and all are fetched.
    """
    one = engine(1000, [reference_of(30)], seed=1)
    rest = engine(10, [reference_of(0.6)], seed=2).chunks
    one.chunks |= {f"old{number}": old for number, old in enumerate(rest.values())}
    found, expected = await one.search("w7 w20 w29", 10), one.exact("w7 w20 w29")[:10]
    assert [match.chunk_id for match in found] == [chunk_id for chunk_id, _ in expected]
    assert one.fetched < 300


async def test_ties_beyond_the_margin_come_in_the_order_of_ids() -> None:
    """500 equal texts stored in any order: the first ids by name, scores equal to the last bit."""
    names = [f"c{number:03}" for number in np.random.default_rng(3).permutation(500)]
    one = Engine({name: stored("w1 w2", 35) for name in names} | {"x": stored("w3", 35)})
    found = await one.search("w1 w2", 5)
    assert [match.chunk_id for match in found] == [f"c{number:03}" for number in range(5)]
    assert len({match.raw_score for match in found}) == 1
    assert found[0].matched_terms == ("w1", "w2")


async def test_proposals_that_do_not_pass_are_replaced() -> None:
    """Nine in ten are hidden: the answer is the best of the rest, k of them."""
    one = engine(400, [150], seed=4)
    one.hidden = {chunk_id for chunk_id in one.chunks if not chunk_id.endswith("7")}
    found = await one.search("w0 w5", 12)
    assert [match.chunk_id for match in found] == [i for i, _ in one.exact("w0 w5")[:12]]


async def test_a_chunk_proposed_for_a_shared_dimension_is_dropped() -> None:
    """It holds another term of the same dimension, and none of the query."""
    key = term_key("w1")
    other = key + DIMENSIONS if key + DIMENSIONS < 2**KEY_BITS else key - DIMENSIONS
    one = Engine(
        {"right": stored("w1 w2"), "wrong": SparseChunk([other], [1.0], 1, reference_of(2))}
    )
    assert [match.chunk_id for match in await one.search("w1", 5)] == ["right"]


async def test_nothing_to_find() -> None:
    """An empty index, a query without a word, and unknown words have no matches."""
    assert await Engine({}).search("w1", 5) == []
    assert await Engine({"a": stored("w1")}).search("?!", 5) == []
    assert await Engine({"a": stored("w1")}).search("unheard", 5) == []
    assert await Engine({"a": stored("")}).search("w1", 5) == []
