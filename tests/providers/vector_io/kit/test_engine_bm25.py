"""Keyword search over an engine with a BM25 of its own that deviates from the definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import TermStatistics
from corral.api.testing.oracle import bm25
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.engine_bm25 import Keywords, Matches, engine_terms
from corral.providers.vector_io.kit.sparse import Proposal, SparseQuery, packed, sparse_chunk

from ..registrations import registration

FIELDS = {"content": 1.0}


class RoughIndex:
    """Ranks like the definition, but rounds lengths down to a power of two.

    Attributes:
        limits: The limits of all requests.
    """

    def __init__(self, texts: dict[str, str]) -> None:
        words = analyzer("simple")
        chunks = {i: Chunk(chunk_id=i, content=text) for i, text in texts.items()}
        self._terms = {i: chunk_terms(chunk, FIELDS, words) for i, chunk in chunks.items()}
        self.limits: list[int] = []

    async def statistics(self) -> TermStatistics:
        """Return the counts."""
        return TermStatistics(len(self._terms), sum(one.length for one in self._terms.values()))

    async def holding(self, terms: Sequence[str]) -> list[int]:
        """Return the number of chunks with each term."""
        return [sum(term in one.frequencies for one in self._terms.values()) for term in terms]

    async def matching(self, query: SparseQuery, limit: int, filters: Filter | None) -> Matches:
        """Return the best chunks by rounded lengths."""
        self.limits.append(limit)
        numbers = dict(zip(query.terms, await self.holding(query.terms), strict=True))
        average = (await self.statistics()).average
        proposals = []
        for chunk_id, terms in self._terms.items():
            length = 2.0 ** int(np.log2(terms.length))
            score = sum(
                idf(numbers[term], len(self._terms)) * term_weight(frequency, length, average)
                for term, frequency in terms.frequencies.items()
                if term in numbers
            )
            if score:
                words = sparse_chunk(terms, 0)
                data = packed(words.keys, words.frequencies)
                proposals.append(Proposal(chunk_id, score, *data, terms.length))
        proposals.sort(key=lambda one: (-one.score, one.chunk_id))
        return Matches.best(proposals[:limit], limit)


def texts() -> dict[str, str]:
    """Return 300 texts of a few common words and one that is rare."""
    rng = np.random.default_rng(8)
    words = ["zebra", "lion", "tiger", *(f"w{n}" for n in range(30))]
    return {
        f"c{n:03d}": " ".join(rng.choice(words, size=int(rng.integers(3, 40)))) for n in range(300)
    }


@pytest.mark.parametrize("k", [1, 10, 50])
async def test_the_answer_is_that_of_the_definition(k: int) -> None:
    """The engine's order deviates; the scores and the order of the answer do not.

    If this fails: a chunk is missing because the engine ranks it too low, or keeps its score.
    """
    corpus = texts()
    index = RoughIndex(corpus)
    keywords = Keywords(registration("p", language="simple", field_weights=FIELDS), index, 1_000, 5)
    expected = bm25("zebra lion", {i: {"content": text} for i, text in corpus.items()}, FIELDS)
    best = sorted(expected, key=lambda i: (-expected[i], i))[:k]
    hits = await keywords.search("zebra lion", k, None)
    assert [hit.chunk_id for hit in hits] == best
    assert [hit.raw_score for hit in hits] == pytest.approx([expected[i] for i in best])
    rough = (await index.matching(SparseQuery("zebra lion", analyzer("simple")), k, None)).proposals
    assert k == 1 or [one.chunk_id for one in rough] != best


async def test_an_engine_that_returns_too_few_is_asked_again() -> None:
    """Equal scores beyond the first request make it larger, until the last tie is there.

    If this fails: of equal chunks those with the smallest ids are not in the answer.
    """
    index = RoughIndex({f"c{n:03d}": "zebra" for n in range(200)})
    keywords = Keywords(registration("p", language="simple", field_weights=FIELDS), index, 1_000, 5)
    hits = await keywords.search("zebra", 3, None)
    assert [hit.chunk_id for hit in hits] == ["c000", "c001", "c002"]
    assert len(index.limits) > 1
    assert index.limits[-1] >= 200


def test_words_are_repeated_as_often_as_they_count() -> None:
    """At least once and at most eight times, whatever their field weighs."""
    terms = ChunkTerms({"a": 0.5, "b": 2.0, "c": 40.0}, 3)
    assert list(engine_terms(terms)) == ["a", "b", "b", *8 * ["c"]]
