"""BM25 by sparse vectors: keyword search on engines with inner products of sparse vectors.

    BM25(q, d) = sum over the terms of q of  idf(t) * term_weight(f, len, avg)        (see bm25.py)

The engine stores the term weights of a chunk as a sparse vector; the query vector has the idf of
the query's terms. This module corrects two deviations of the engine's scores from the definition:

* *The average length changes* with every write, but the stored weights do not. So each chunk
  records the average that its weights were computed with (`reference`, on a fixed grid), and the
  engine only proposes candidates: `best_matches` computes their scores again, from frequencies and
  lengths stored with the vector and from the current statistics. It bounds the error of a stored
  weight, and requests more candidates until no better chunk can be missing. Answers equal the
  definition, whatever the order of writes. Nothing is ever reindexed.
* *Terms become numbers.* A term's key is 53 bits of BLAKE2b (exact in JSON and in a double), and
  its dimension in the sparse vector is the key modulo 2^32 - 2 (the largest index in Milvus). Among
  a million terms about a hundred pairs share a dimension: a chunk is then proposed for a word that
  it does not contain, and dropped when its score is computed by keys. Two terms among a million
  share a key with a probability of 6e-5; then a search for one finds the other.

The engine counts the statistics on demand (chunks by length, chunks that contain a term); they are
never stored, so deletions, restarts and other writers cannot corrupt them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np

from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.providers.text.analyzer import Analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit.candidates import Proposals, best_candidates
from corral.providers.vector_io.kit.records import ReadFields

KEY_BITS = 53
"""Bits of a term's key: the maximum that a double, and so any JSON reader, represents exactly."""

DIMENSIONS = 2**32 - 2
"""Number of dimensions of the sparse vectors; indices are 0 to 2^32 - 3."""

REFERENCE_STEP = 1.02
"""Ratio of neighbors on the grid of average lengths; it adds at most 1 % error to a weight."""

BAND_WIDTH = 1.25
"""References within this ratio are searched together, which keeps the bound of each search tight:
a few chunks written when the average was very different must not loosen the bound of all chunks."""

SPARE = 2
"""Proposals beyond k + k/3. On SciFact, written with two references, they suffice for 299 of 300
questions at k = 10 and 297 at k = 100. Each further proposal takes 10 microseconds."""

_ROUNDING = 1.00001  # Engines add in float32; this is 100 times the measured error.


@lru_cache(maxsize=1 << 16)
def term_key(term: str) -> int:
    """Return the key of a term, in [0, 2^53): the same in every process and release."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - KEY_BITS)


def dimension_of(key: int) -> int:
    """Return the dimension of a term's weight in a sparse vector, in [0, 2^32 - 3]."""
    return key % DIMENSIONS


def reference_of(average: float) -> int:
    """Return the grid step nearest to an average length; 0 if the average is 0."""
    return round(math.log(average) / math.log(REFERENCE_STEP)) if average > 0 else 0


def reference_average(reference: int) -> float:
    """Return the average length at a grid step."""
    return float(REFERENCE_STEP**reference)


@dataclass(frozen=True, slots=True)
class SparseChunk:
    """The stored form of one chunk for keyword search.

    Attributes:
        keys: Keys of its terms, ascending, distinct.
        frequencies: Frequency of each term, above 0: the sum over the fields of weight times count.
        length: Number of its terms over all fields.
        reference: Grid step of the average length that `vector` uses.
    """

    keys: list[int]
    frequencies: list[float]
    length: int
    reference: int

    def vector(self) -> tuple[list[int], list[float]]:
        """Return the sparse vector: ascending distinct dimensions, and weights in (0, 2.2).

        If two terms share a dimension, their weights add up, so that the vector's score is never
        below the true score because of a missing term.
        """
        if not self.keys:
            return [], []
        weights = term_weight(
            np.array(self.frequencies), self.length, reference_average(self.reference)
        )
        total: dict[int, float] = {}
        for key, weight in zip(self.keys, weights.tolist(), strict=True):
            dimension = dimension_of(key)
            total[dimension] = total.get(dimension, 0.0) + weight
        return sorted(total), [total[dimension] for dimension in sorted(total)]


def sparse_chunk(terms: ChunkTerms, reference: int) -> SparseChunk:
    """Return the stored form of a chunk with these terms.

    Args:
        terms: From `fields.chunk_terms`.
        reference: `reference_of` the writer's average length of the vector DB. Any value gives
            right answers; an accurate value gives fast answers.
    """
    frequencies = {term_key(term): frequency for term, frequency in terms.frequencies.items()}
    keys = sorted(frequencies)
    return SparseChunk(keys, [frequencies[key] for key in keys], terms.length, reference)


@dataclass(frozen=True, slots=True)
class Statistics:
    """BM25 statistics of a vector DB, counted by its engine.

    Attributes:
        lengths: Number of chunks by length.
        references: Number of chunks by `SparseChunk.reference`.
    """

    lengths: Mapping[int, int]
    references: Mapping[int, int]

    @property
    def count(self) -> int:
        """The number of chunks."""
        return sum(self.lengths.values())

    @property
    def length(self) -> int:
        """The number of terms of all chunks."""
        return sum(length * number for length, number in self.lengths.items())

    @property
    def average(self) -> float:
        """The mean length of a chunk; 0 if no chunk has a term."""
        return self.length / self.count if self.count else 0.0

    def reference_with(self, lengths: Sequence[int]) -> int:
        """Return the reference for new chunks of these lengths."""
        total = self.length + sum(lengths)
        return reference_of(total / (self.count + len(lengths))) if lengths else 0


@dataclass(slots=True)  # Not frozen: a query makes hundreds, and freezing doubles the cost.
class Proposal:
    """A chunk that the engine proposes.

    Attributes:
        chunk_id: The chunk's id.
        score: The inner product as the engine computed it.
        keys, frequencies: Stored values of `SparseChunk`, in the form of `packed`.
        length: Stored value of `SparseChunk.length`.
        passes: False if it cannot be in the answer; for filters that an engine only narrows down.
        stored: Reads the chunk, if the engine returned it with the hit (`records.attach_chunks`).
    """

    chunk_id: str
    score: float
    keys: bytes
    frequencies: bytes
    length: int
    passes: bool = True
    stored: ReadFields | None = None


def packed(keys: Sequence[int], frequencies: Sequence[float]) -> tuple[bytes, bytes]:
    """Return the keys of a chunk's terms as bytes of int64, and the frequencies as float64.

    The bytes of hundreds of chunks can be joined and read in one call, four times as fast as one
    array per chunk.
    """
    return np.array(keys, "<i8").tobytes(), np.array(frequencies, "<f8").tobytes()


Fetch = Callable[[Sequence[int] | None, int], Awaitable[Sequence[Proposal]]]
"""Called with the references to search (None for all) and the maximum number of proposals."""


class SparseQuery:
    """The terms of a query; empty for a text without a word.

    Args:
        text: Any text. Its terms are joined by OR; a repeated term counts each time.
        analyzer: The analyzer of the vector DB's language.

    Attributes:
        times: By term, ascending, its number in the text.
        terms, keys: The terms in this order, and their keys.
    """

    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self._query = query = analyzer.query(text)
        self.times = dict(sorted(query.times.items()))
        self.terms = tuple(self.times)
        self.keys = tuple(term_key(term) for term in self.terms)
        self._by_key = dict(zip(self.keys, self.terms, strict=True))

    def statistics(self, corpus: Statistics, holding: Sequence[int]) -> TermStatistics:
        """Return a vector DB's statistics in the form that sums over several vector DBs.

        Args:
            corpus: The vector DB's statistics.
            holding: For each of `keys`, the number of chunks that contain it.
        """
        frequencies = dict(zip(self.terms, holding, strict=True))
        return TermStatistics(corpus.count, corpus.length, frequencies)

    def frequencies(self, by: TermStatistics, holding: Sequence[int]) -> list[int]:
        """Return, for each of `keys`, the number of chunks in several vector DBs that contain it.

        Args:
            by: The statistics of these vector DBs.
            holding: The numbers in the searched vector DB, in the order of `keys`.
        """
        pairs = zip(self.terms, holding, strict=True)
        return [by.frequency(term, number) for term, number in pairs]

    def weights(self, document_frequencies: Sequence[int], count: int) -> dict[int, float]:
        """Return the weight, idf times repetitions, by key for the terms that occur in a chunk.

        Args:
            document_frequencies: For each of `keys`, the number of chunks that contain it.
            count: The number of chunks. It caps the frequencies, because a write between the two
                counts can make a frequency larger.
        """
        rows = zip(self.keys, self.times.values(), document_frequencies, strict=True)
        return {
            key: idf(min(number, count), count) * weight
            for key, weight, number in rows
            if number > 0 and count > 0
        }

    def greatest(self, document_frequencies: Sequence[int], count: int) -> float:
        """Return the maximum possible score; arguments as for `weights`."""
        return self._query.greatest(dict(zip(self.terms, document_frequencies, strict=True)), count)

    def held(self, keys: Iterable[int]) -> tuple[str, ...]:
        """Return the query's terms with these keys, sorted."""
        terms = self._by_key
        return tuple(sorted([terms[key] for key in keys if key in terms]))


def query_vector(weights: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """Return the sparse vector of a query: ascending distinct dimensions, weights above 0.

    If two terms share a dimension, the larger weight counts, so that the engine's score is not
    below the true score.
    """
    largest: dict[int, float] = {}
    for key, weight in weights.items():
        dimension = dimension_of(key)
        largest[dimension] = max(weight, largest.get(dimension, 0.0))
    return sorted(largest), [largest[dimension] for dimension in sorted(largest)]


async def keyword_leg(
    query: SparseQuery,
    k: int,
    by: TermStatistics | None,
    count: Callable[[Sequence[int]], Awaitable[tuple[Statistics, Sequence[int]]]],
    fetch: Callable[
        [Mapping[int, float], Sequence[int] | None, int], Awaitable[Sequence[Proposal]]
    ],
) -> KeywordLeg:
    """Return an engine's k best chunks for a query, best first.

    Args:
        query: The terms of the query.
        k: Maximum number of candidates, >= 1.
        by: The statistics to rank by; None for the vector DB's own.
        count: Returns the statistics, and for each key the number of chunks that contain it.
        fetch: Like `Fetch`, but takes the weights of the query as first argument.
    """
    if not query.terms:
        return KeywordLeg([], 0.0)
    corpus, holding = await count(query.keys)
    by = by or query.statistics(corpus, holding)
    frequencies = query.frequencies(by, holding)
    weights = query.weights(frequencies, by.count)
    best = await best_matches(query, weights, corpus, k, partial(fetch, weights), by.average)
    return KeywordLeg(best, query.greatest(frequencies, by.count))


async def best_matches(
    query: SparseQuery,
    weights: Mapping[int, float],
    statistics: Statistics,
    k: int,
    fetch: Fetch,
    average: float | None = None,
) -> list[Candidate]:
    """Return an engine's k best chunks by the definition of BM25, ties by chunk_id.

    The true score of a chunk that was not fetched is at most `_most` of its band times the engine's
    score of the last fetched chunk.

    Args:
        query: The terms of the query.
        weights: From `query.weights`.
        statistics: The current statistics.
        k: Maximum number of candidates, >= 1.
        fetch: Searches the engine with `query_vector(weights)`; returns proposals best first.
        average: Mean length of a chunk to rank by, > 0; None: the mean of `statistics`.
    """
    mean = average or statistics.average
    if not weights or not statistics.average > 0:
        return []
    terms: dict[str, tuple[int, ...]] = {}

    async def propose(band: Sequence[int] | None, limit: int) -> Proposals:
        fetched = await fetch(band, limit)
        passing = [one for one in fetched if one.passes]
        bound = _most(band or statistics.references, mean)
        return Proposals(
            scored(weights, mean, passing, terms),
            fetched[-1].score * bound if len(fetched) == limit else None,
        )

    sources = [partial(propose, band) for band in bands(statistics, mean)]
    best = await best_candidates(k, *sources, margin=k // 3 + SPARE)
    held = cache(query.held)  # Many chunks contain the same terms.
    for one in best:
        one.matched_terms = held(terms[one.chunk_id])
    return best


def bands(statistics: Statistics, average: float) -> list[Sequence[int] | None]:
    """Return the references in use, grouped by distance from an average; [None] for one group."""
    now = math.log(average)
    groups: dict[int, list[int]] = {}
    for reference in sorted(statistics.references):
        distance = reference * math.log(REFERENCE_STEP) - now
        groups.setdefault(round(distance / math.log(BAND_WIDTH)), []).append(reference)
    return [None] if len(groups) <= 1 else list(groups.values())


def _most(references: Sequence[int] | Mapping[int, int], average: float) -> float:
    """Return the maximum ratio of a true score to the engine's score.

    With norm = 1 - b + b len / avg, the ratio of the true weight to the stored one is
    (f + k1 norm_stored) / (f + k1 norm_true) <= max(1, norm_stored / norm_true)
    <= max(1, avg_true / avg_stored).
    """
    lowest = min(references, default=reference_of(average))
    return max(1.0, average / reference_average(lowest)) * _ROUNDING


def scored(
    weights: Mapping[int, float],
    average: float,
    proposals: Sequence[Proposal],
    terms: dict[str, tuple[int, ...]],
) -> list[Candidate]:
    """Score the proposals that contain a term, and add the keys of their terms to `terms`.

    Scores are summed in the order of keys, so that chunks with equal terms have equal scores.

    Args:
        weights: From `SparseQuery.weights`.
        average: Mean length of a chunk, > 0.
        proposals: In any order.
        terms: Mutated; by chunk id.
    """
    if not proposals:
        return []
    term_keys = np.array(sorted(weights), "<i8")
    keys = np.frombuffer(b"".join([one.keys for one in proposals]), "<i8")
    ends = np.array([len(one.keys) // 8 for one in proposals], np.int64).cumsum()
    columns = term_keys.searchsorted(keys)
    places = (term_keys.take(columns, mode="clip") == keys).nonzero()[0]
    rows, columns = ends.searchsorted(places, "right"), columns[places]
    frequencies = np.frombuffer(b"".join([one.frequencies for one in proposals]), "<f8")[places]
    lengths = np.array([one.length for one in proposals], np.int64)[rows]
    factors = np.array([weights[key] for key in term_keys.tolist()])[columns]
    parts = term_weight(frequencies, lengths, average) * factors
    totals = np.bincount(rows, weights=parts, minlength=len(proposals)).tolist()
    bounds = rows.searchsorted(np.arange(len(proposals) + 1)).tolist()
    held = tuple(term_keys[columns].tolist())
    for one, start, end in zip(proposals, bounds, bounds[1:], strict=False):
        terms[one.chunk_id] = held[start:end]
    pairs = zip(proposals, totals, strict=True)
    return [Candidate(one.chunk_id, total) for one, total in pairs if total > 0]
