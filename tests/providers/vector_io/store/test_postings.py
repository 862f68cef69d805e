"""The keyword index: FTS5 stores, the scores are Corral's BM25."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import apsw
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.cached_postings import CachedPostings, term_frequency
from corral.providers.vector_io.store.changes import StaleRead
from corral.providers.vector_io.store.connections import connect, transaction
from corral.providers.vector_io.store.postings import KeywordHit, KeywordIndex
from corral.providers.vector_io.store.rows import count_up
from corral.providers.vector_io.store.schema import prepare

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
        self.connection.register_fts5_function("term_frequency", term_frequency)
        prepare(self.connection, self.index)
        self.add(self.chunks)

    def add(self, chunks: dict[int, Chunk]) -> None:
        """Index chunks."""
        self.connection.executemany(
            "INSERT INTO chunks(row, chunk_id, content, metadata) VALUES (?, ?, '', '')",
            [(row, str(row)) for row in chunks],
        )
        rows = [(row, self.index.analyze(chunk)) for row, chunk in chunks.items()]
        self.index.add(self.connection, rows)
        self.chunks.update(chunks)
        count_up(self.connection, len(chunks))

    def delete(self, rows: list[int]) -> None:
        """Remove chunks."""
        self.index.delete(self.connection, rows)
        for row in rows:
            del self.chunks[row]
            self.connection.execute("DELETE FROM chunks WHERE row = ?", (row,))
            self.connection.execute("INSERT INTO deletions(row) VALUES (?)", (row,))
        count_up(self.connection, -len(rows))

    def search(self, query: str, k: int, allowed: RowSet | None = None) -> list[KeywordHit]:
        """Search the index."""
        return self.index.search(self.connection, query, k, allowed=allowed)[0]

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


def test_scores_follow_additions_and_deletions() -> None:
    """Statistics are those of what is stored now; nothing of a deleted chunk counts."""
    herd = Herd(30)
    before = herd.search("word0 word7", 100)
    herd.delete([2, 3, 5, 8, 13, 21])
    herd.add({100: Chunk(content="word7 word7 word0", metadata={"title": "word1"})})
    hits = herd.search("word0 word7", 100)
    assert {h.row: h.score for h in hits} == pytest.approx(herd.defined("word0 word7"), rel=1e-9)
    assert [h.row for h in hits] != [h.row for h in before]


@pytest.mark.parametrize("title_weight", [2.0, 0.1])
def test_what_memory_follows_equals_what_is_read_anew(title_weight: float) -> None:
    """After every write, postings in memory give the answers of an index that just began, bit for
    bit: rows come and go, lengths take one byte or two, a word appears and vanishes.

    If this fails: a change of the file is missed, or counted twice.
    """
    rng = np.random.default_rng(3)
    herd = Herd(30, title_weight=title_weight)
    for step in range(40):
        if step % 3 == 2:
            herd.delete(rng.choice(sorted(herd.chunks), 1 + step % 5, replace=False).tolist())
        else:
            words = " ".join(rng.choice(WORDS, int(rng.integers(1, 300))))
            chunk = Chunk(content=words, metadata={"title": "rare" if step == 4 else "word1"})
            herd.add({100 + step: chunk})
        for query in ("word0 word3 word39 word3", "rare word1")[step % 2 :]:
            kept, _ = herd.index.search(herd.connection, query, 12)
            fresh = KeywordIndex(herd.weights, "simple")
            assert kept == fresh.search(herd.connection, query, 12)[0]


def test_a_transaction_that_was_overtaken_is_refused(tmp_path: Path) -> None:
    """Postings are never newer than the transaction that reads them."""
    path = tmp_path / "x.db"
    path.touch()
    index, one, other = KeywordIndex({"content": 1.0}, "simple"), connect(path, 1), connect(path, 1)
    prepare(one, index)

    def write(row: int) -> None:
        with transaction(other):
            other.execute(
                "INSERT INTO chunks(row, chunk_id, content, metadata) VALUES (?, ?, '', '')",
                (row, str(row)),
            )
            index.add(other, [(row, ("word", ""))])
            count_up(other, 1)

    write(1)
    with transaction(one, "DEFERRED"):
        assert [hit.row for hit in index.search(one, "word", 5)[0]] == [1]
        write(2)
        assert [hit.row for hit in index.search(other, "word", 5)[0]] == [1, 2]
        with pytest.raises(StaleRead):
            index.search(one, "word", 5)
    assert [hit.row for hit in index.search(one, "word", 5)[0]] == [1, 2]
    one.close()
    other.close()


def test_a_snapshot_is_left_alone_by_later_states() -> None:
    """What a search weighs with does not change under it.

    If this fails: a query that runs beside a deletion misses chunks that it began with.
    """
    herd = Herd(10)
    cache = CachedPostings((1.0, 2.0, 0.5, 1.0), 2**20)
    before = cache.follow(herd.connection)
    lengths = before.lengths[:11].tolist()
    assert all(lengths[1:])
    herd.delete([3, 4])
    after = cache.follow(herd.connection)
    assert before.lengths[:11].tolist() == lengths
    assert after.lengths[3:5].tolist() == [0, 0]


def test_the_memory_of_postings_changes_nothing() -> None:
    """With no memory, with a little and with enough, the same query has the same answer."""
    queries = ["word0 word3", "word1 word2 word39", "word0 word0"]
    answers = []
    for memory_mib in (0.0, 0.001, 64.0):
        herd = Herd(60, memory_mib=memory_mib)
        answers.append([herd.search(query, 10) for query in queries * 2])
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][:3] == answers[0][3:]


def test_sparse_and_dense_sums_agree() -> None:
    """Row numbers far beyond the number of postings give the same scores as small ones."""
    herd = Herd(20)
    herd.add({10**6 + row: chunk for row, chunk in list(herd.chunks.items())})
    hits = herd.search("word4 word9", 1000)
    expected = herd.defined("word4 word9")
    assert {hit.row: hit.score for hit in hits} == pytest.approx(expected, rel=1e-9)


def test_a_word_is_read_once_for_all_who_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight threads that ask for a word nobody has asked for yet read its postings once.

    If this fails: after a start, many users read the same common words side by side.
    """
    path = tmp_path / "x.db"
    path.touch()
    index, reads = KeywordIndex({"content": 1.0}, "simple"), []
    all_of, start = CachedPostings._all, Barrier(8)

    def counted(self: CachedPostings, connection: apsw.Connection, term: str) -> Any:
        reads.append(term)
        time.sleep(0.05)  # as long as a common word takes
        return all_of(self, connection, term)

    def ask() -> list[KeywordHit]:
        connection = connect(path, 1)
        start.wait(60)
        with transaction(connection, "DEFERRED"):
            hits, _ = index.search(connection, "word", 5)
        connection.close()
        return hits

    with closing(connect(path, 1)) as connection:
        prepare(connection, index)
        with transaction(connection):
            connection.execute("INSERT INTO chunks(chunk_id, content, metadata) VALUES (1, '', '')")
            index.add(connection, [(1, ("word word", ""))])
            count_up(connection, 1)
    monkeypatch.setattr(CachedPostings, "_all", counted)
    with ThreadPoolExecutor(8) as pool:
        found = [each.result() for each in [pool.submit(ask) for _ in range(8)]]
    assert reads == ["word"]
    assert found == [found[0]] * 8
    assert [hit.row for hit in found[0]] == [1]
