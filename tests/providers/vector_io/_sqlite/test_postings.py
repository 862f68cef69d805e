"""The keyword index: FTS5 stores, the scores are Corral's BM25."""

from __future__ import annotations

from collections import Counter

import apsw
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.providers.ranking.bm25 import idf, term_weight
from corral.providers.ranking.rows import RowSet
from corral.providers.ranking.text import analyzer
from corral.providers.vector_io._sqlite.postings import KeywordHit, KeywordIndex

WORDS = [f"word{number}" for number in range(40)]


class Herd:
    """A keyword index in memory with seeded texts, and the definition to hold it against."""

    def __init__(self, count: int, *, memory_mib: float = 64, title_weight: float = 2.0) -> None:
        rng = np.random.default_rng(7)
        share = 1.0 / np.arange(1, len(WORDS) + 1)
        self.weights = {"content": 1.0, "title": title_weight}
        self.chunks = {
            row: Chunk(
                content=" ".join(rng.choice(WORDS, rng.integers(3, 30), p=share / share.sum())),
                metadata={"title": " ".join(rng.choice(WORDS, rng.integers(1, 4)))},
            )
            for row in range(1, count + 1)
        }
        self.index = KeywordIndex(self.weights, "simple", memory_mib=memory_mib)
        self.connection = apsw.Connection(":memory:")
        self.index.create(self.connection)
        self.version = 0
        self.add(self.chunks)

    def add(self, chunks: dict[int, Chunk]) -> None:
        """Index chunks."""
        rows = [(row, self.index.analyze(chunk)) for row, chunk in chunks.items()]
        self.index.add(self.connection, rows)
        self.chunks.update(chunks)
        self.version += 1

    def delete(self, rows: list[int]) -> None:
        """Remove chunks."""
        self.index.delete(self.connection, rows)
        for row in rows:
            del self.chunks[row]
        self.version += 1

    def search(self, query: str, k: int, allowed: RowSet | None = None) -> list[KeywordHit]:
        """Search the index."""
        hits, _ = self.index.search(
            self.connection,
            query,
            k,
            count=len(self.chunks),
            version=self.version,
            allowed=allowed,
        )
        return hits

    def defined(self, query: str) -> dict[int, float]:
        """Return every row's score by the definition of BM25, computed without FTS5."""
        terms = analyzer("simple").terms
        fields = {
            row: {
                "content": Counter(terms(c.content)),
                "title": Counter(terms(c.metadata["title"])),
            }
            for row, c in self.chunks.items()
        }
        lengths = {row: sum(f.total() for f in found.values()) for row, found in fields.items()}
        average = sum(lengths.values()) / len(lengths)
        scores = {}
        for row, found in fields.items():
            score = 0.0
            for term, times in Counter(terms(query)).items():
                holding = sum(any(term in f for f in fields[r].values()) for r in fields)
                frequency = sum(self.weights[name] * f[term] for name, f in found.items())
                weight = term_weight(frequency, lengths[row], average)
                score += times * idf(holding, len(fields)) * weight
            if score > 0:
                scores[row] = score
        return scores


@pytest.mark.parametrize("count", [1, 2, 3, 60])
@pytest.mark.parametrize(
    "query", ["word0", "word0 word1 word2", "word39 word5 word5 nothing", "nothing", ""]
)
def test_scores_equal_the_definition(count: int, query: str) -> None:
    """Scores are BM25 with Lucene's idf, field weights and repeated words, to 9 digits.

    If this fails: FTS5's own idf, which is next to nothing for common words, shows through.
    """
    herd = Herd(count)
    expected = herd.defined(query)
    hits = herd.search(query, 1000)
    assert {hit.row: hit.score for hit in hits} == pytest.approx(expected, rel=1e-9)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_scores_follow_additions_and_deletions() -> None:
    """Statistics are those of what is stored now; nothing of a deleted chunk counts."""
    herd = Herd(30)
    before = herd.search("word0 word7", 100)
    herd.delete([2, 3, 5, 8, 13, 21])
    herd.add({100: Chunk(content="word7 word7 word0", metadata={"title": "word1"})})
    hits = herd.search("word0 word7", 100)
    assert {h.row: h.score for h in hits} == pytest.approx(herd.defined("word0 word7"), rel=1e-9)
    assert [h.row for h in hits] != [h.row for h in before]


def test_the_memory_of_postings_changes_nothing() -> None:
    """With no memory, with a little and with enough, the same query has the same answer."""
    queries = ["word0 word3", "word1 word2 word39", "word0 word0"]
    answers = []
    for memory_mib in (0.0, 0.001, 64.0):
        herd = Herd(60, memory_mib=memory_mib)
        answers.append([herd.search(query, 10) for query in queries * 2])
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][:3] == answers[0][3:]


def test_only_allowed_rows_are_returned_and_the_top_k_is_taken_of_them() -> None:
    """A filter narrows before the top k, and does not change the scores."""
    herd = Herd(60)
    everything = {hit.row: hit.score for hit in herd.search("word0", 1000)}
    allowed = RowSet(np.array(sorted(everything)[-5:], dtype=np.int64))
    hits = herd.search("word0", 5, allowed)
    assert {hit.row for hit in hits} == set(allowed.rows.tolist())
    assert all(hit.score == everything[hit.row] for hit in hits)


def test_hits_say_which_terms_matched() -> None:
    """Matched terms are the query's terms that the row holds, no others."""
    herd = Herd(1)
    herd.add({7: Chunk(content="grass grows", metadata={"title": "green"})})
    (hit,) = herd.search("green grass withers", 5)
    assert (hit.row, hit.terms) == (7, ("grass", "green"))


def test_sparse_and_dense_sums_agree() -> None:
    """Row numbers far beyond the number of postings give the same scores as small ones."""
    herd = Herd(20)
    herd.add({10**6 + row: chunk for row, chunk in list(herd.chunks.items())})
    hits = herd.search("word4 word9", 1000)
    expected = herd.defined("word4 word9")
    assert {hit.row: hit.score for hit in hits} == pytest.approx(expected, rel=1e-9)
