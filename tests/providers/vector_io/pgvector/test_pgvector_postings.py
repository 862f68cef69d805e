"""remote::pgvector: postings in segments, searched with MaxScore, give the scores of BM25."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.hits import QueryChunksResponse
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.keyword import maxscore, postings
from corral.providers.vector_io.pgvector.keyword.maxscore import Bm25Search
from corral.providers.vector_io.pgvector.records import Tables, Tuning

from .conftest import Server
from .helpers import ask, embeddings, ids, opened, vector_db
from .test_pgvector_storage import by_definition

WORDS = [f"w{n}" for n in range(60)]
SHARE = 1 / np.arange(1, 61) ** 1.2


def zipfian(rng: np.random.Generator, numbers: list[int], longest: int = 25) -> list[Chunk]:
    """Return chunks whose words are common and rare, as in a language; `half` is 0 or 1."""
    return [
        Chunk(
            content=" ".join(rng.choice(WORDS, rng.integers(1, longest), p=SHARE / SHARE.sum())),
            chunk_id=f"c{n:04}",
            metadata={"half": n % 2, "tenth": n % 10},
        )
        for n in numbers
    ]


def segments(server: Server, name: str) -> tuple[list[int], int]:
    """Return the segments of a vector DB, and how many are one block."""
    [(found, fresh)] = ask(server, f'SELECT segments, fresh FROM corral."{name}_state"')
    return found, fresh


async def test_segments_are_appended_to_merged_and_thinned(server: Server) -> None:
    """Writes of one chunk and of many, upserts and deletes over merges: BM25 of the definition.

    If this fails: a merge loses or doubles postings, or a row is taken out of the wrong segment.
    """
    tuning = Tuning(block_rows=8, statement_pieces=40, max_blocks=3, max_merged=2)
    rng = np.random.default_rng(2)
    stored: dict[str, Chunk] = {}
    db = vector_db(language="simple")
    async with opened(server, db, tuning=tuning) as index:
        for step in range(28):
            size = int(rng.choice([1, 1, 2, 20]))
            chunks = zipfian(rng, sorted(rng.choice(90, size=size, replace=False).tolist()))
            await index.add_chunks(chunks, embeddings(size))
            stored.update({one.chunk_id: one for one in chunks})
            gone = rng.choice(sorted(stored), size=int(rng.integers(0, 3)), replace=False).tolist()
            await index.delete_chunks(gone)
            for chunk_id in gone:
                del stored[chunk_id]
            if step % 4 == 3:
                query = " ".join(rng.choice(WORDS, 3))
                answer = await index.query(None, query, k=200, mode="keyword")
                expected = by_definition(query, list(stored.values()))
                assert scores_of(answer) == pytest.approx(expected, abs=1e-6), step
        found, fresh = segments(server, Tables(db, "corral").name)
        assert found == sorted(set(found))
        assert fresh <= 3
        assert len(found) <= 3 + 3


def scores_of(answer: QueryChunksResponse) -> dict[str, float]:
    """Return the raw keyword scores by chunk id."""
    return {h.chunk.chunk_id: h.explanation.legs["keyword"].raw_score for h in answer.hits}


FILTERS: list[dict[str, Any] | None] = [
    None,
    {"type": "eq", "key": "half", "value": 1},
    {"type": "eq", "key": "tenth", "value": 3},
    {"type": "eq", "key": "tenth", "value": 99},
]


@pytest.mark.parametrize(("rare", "few"), [(0, 0), (30, 20), (30, 1000), (300, 0)])
async def test_common_words_that_are_not_read_change_no_answer(
    server: Server, rare: int, few: int
) -> None:
    """However few postings the first statement brings, the k best are those of the definition.

    If this fails: a chunk that only common words lift into the answer is missed, or a filter is
    applied after the best were taken.
    """
    tuning = Tuning(rare_postings=rare, filtered_rows=few, max_looked_up=40, first_rows=25)
    rng = np.random.default_rng(4)
    chunks = zipfian(rng, list(range(300)))
    by_id = {one.chunk_id: one for one in chunks}
    async with opened(server, vector_db(language="simple"), tuning=tuning) as index:
        await index.add_chunks(chunks, embeddings(300))
        for _ in range(6):
            words = [*rng.choice(WORDS, rng.integers(1, 7)), "unheard"]
            query = " ".join(words[rng.integers(0, 2) :])
            expected = by_definition(query, chunks)
            for data in FILTERS:
                key, value = (data["key"], data["value"]) if data else ("", None)
                passing = {
                    one: round(score, 7)
                    for one, score in expected.items()
                    if data is None or by_id[one].metadata[key] == value
                }
                best = sorted(passing, key=lambda one: (-passing[one], one))
                answer = await index.query(None, query, k=7, mode="keyword", filters=data)
                assert ids(answer) == best[:7], (query, data)
                for one, score in scores_of(answer).items():
                    assert score == pytest.approx(passing[one], abs=1e-6)
                for hit in answer.hits:  # told by postings that were read, or by looking up
                    held = set(hit.chunk.content.split()) & set(query.split())
                    assert hit.explanation.matched_terms == tuple(sorted(held))


def postings_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets, whenever a search has read postings, how many it has by then."""
    read: list[int] = []
    whole = postings.read_pieces

    def counted(blocks: Any, data: Any, block_rows: int) -> Any:
        pieces = whole(blocks, data, block_rows)
        read.append(len(pieces.rows))
        return pieces

    monkeypatch.setattr(maxscore, "read_pieces", counted)
    return read


async def test_few_common_postings_are_read_for_a_rare_word(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare word beside one that every chunk holds: the postings of the common one stay unread.

    If this fails: every query costs what its most common word costs.
    """
    chunks = [
        Chunk(content="herd grazes" + " seldom" * (n < 20), chunk_id=f"c{n:04}") for n in range(600)
    ]
    async with opened(server, vector_db(), tuning=Tuning(rare_postings=50)) as index:
        await index.add_chunks(chunks, embeddings(600))
        read = postings_read(monkeypatch)
        answer = await index.query(None, "seldom herd", k=10, mode="keyword")
        assert read == [20]
        assert [hit.explanation.matched_terms for hit in answer.hits] == [("herd", "seldom")] * 10


@pytest.mark.parametrize(("most", "then"), [(300, []), (1, [600])])
async def test_the_commonest_of_common_words_stay_unread(
    server: Server, monkeypatch: pytest.MonkeyPatch, most: int, then: list[int]
) -> None:
    """Of common words, those that change little are looked up; all are read if many chunks can win.

    If this fails: questions of common words take several times as long as others.
    """
    tuning = Tuning(rare_postings=50, max_looked_up=most, postings_per_look=600)
    chunks = [
        Chunk(
            content="herd" + " grazes" * (n % 3 == 0) * (1 + n % 7) + " sleeps" * (n % 2),
            chunk_id=f"c{n:04}",
        )
        for n in range(600)
    ]
    expected = by_definition("herd grazes sleeps", chunks)
    best = sorted(expected, key=lambda one: (-round(expected[one], 7), one))
    async with opened(server, vector_db(), tuning=tuning) as index:
        await index.add_chunks(chunks, embeddings(600))
        read = postings_read(monkeypatch)
        answer = await index.query(None, "herd grazes sleeps", k=10, mode="keyword")
    assert read == [0, 500, *(500 + more for more in then)]
    assert ids(answer) == best[:10]
    assert [hit.explanation.matched_terms for hit in answer.hits] == [
        ("graze", "herd", "sleep")
    ] * 10


@pytest.mark.parametrize("last", [40, 5_000_000])
def test_postings_of_some_rows_are_found(last: int) -> None:
    """Their places ascend, in a table of few rows and in one of many, and no other row's come.

    If this fails: an answer names words that its chunk does not hold.
    """
    held = [[3, 7, 9], [7, last], [1, 3, last]]
    data = [np.array([(row, 1.0, 5) for row in rows], postings.POSTING).tobytes() for rows in held]
    pieces = postings.read_pieces([0, 0, 0], data, Tuning().block_rows)
    assert pieces.places(np.array([last, 7, 2, 2**33])).tolist() == [1, 3, 4, 7]
    assert pieces.places(np.array([], np.int64)).tolist() == []


async def test_the_server_searches_vectors_while_words_are_added_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the postings are here, PostgreSQL already has the statement of the vector leg.

    If this fails: a hybrid query takes as long as its legs one after the other.
    """
    running: list[str] = []
    made = Bm25Search.statement

    async def watched(
        self: Bm25Search, connection: Connection, parameters: Mapping[str, Any]
    ) -> Any:
        asked = "SELECT query FROM pg_stat_activity WHERE pid = %s"
        deadline = time.monotonic() + 5
        while not running and time.monotonic() < deadline:
            [(query,)] = ask(server, asked, connection.info.backend_pid)
            running.extend([query] if "near AS" in query else [])
        return await made(self, connection, parameters)

    monkeypatch.setattr(Bm25Search, "statement", watched)
    async with opened(server, vector_db(), exact_below_rows=5) as index:
        await index.add_chunks(zipfian(np.random.default_rng(1), list(range(20))), embeddings(20))
        answer = await index.query(embeddings(1)[0], "w1 w2", k=3, mode="hybrid")
    assert len(answer.hits) == 3
    assert running


async def test_a_search_sees_one_state(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that is replaced between the statements of a search is found as it was.

    If this fails: a search during a replacement finds neither version.
    """
    async with opened(server, vector_db()) as index, opened(server, index.vector_db) as other:
        await index.add_chunks([Chunk(content="first herd", chunk_id="a")], embeddings(1))
        made = Bm25Search.statement

        async def then_replaced(
            self: Bm25Search, connection: Connection, parameters: Mapping[str, Any]
        ) -> Any:
            found = await made(self, connection, parameters)
            await other.add_chunks([Chunk(content="second herd", chunk_id="a")], embeddings(1))
            return found

        monkeypatch.setattr(Bm25Search, "statement", then_replaced)
        for mode in ("keyword", "hybrid"):
            answer = await index.query(embeddings(1)[0], "herd", k=3, mode=mode)
            assert ids(answer) == ["a"]
