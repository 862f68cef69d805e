"""remote::pgvector: what its tables hold, and that keyword search follows it exactly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.filters import matches, parse_filter
from corral.api.hits import QueryChunksResponse
from corral.api.rankers import RRFRanker
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import chunk_terms
from corral.providers.vector_io.pgvector.engine import PgvectorEngine
from corral.providers.vector_io.pgvector.keyword.bm25 import Bm25
from corral.providers.vector_io.pgvector.records import Tables, Tuning

from ..engines import engine_of
from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from .conftest import Server
from .helpers import ask, embeddings, found, ids, opened, provider, some_chunks, vector_db


def raw_scores(answer: QueryChunksResponse) -> list[tuple[str, float]]:
    """Return the raw keyword score of each hit."""
    return [(hit.chunk.chunk_id, hit.explanation.legs["keyword"].raw_score) for hit in answer.hits]


def by_definition(query: str, chunks: list[Chunk]) -> dict[str, float]:
    """Return the BM25 of every chunk that holds a word of the query, as `bm25.py` defines it."""
    weights = {"content": 1.0, "title": 2.0}
    english = analyzer("english")
    entries = {one.chunk_id: chunk_terms(one, weights, english) for one in chunks}
    average = sum(entry.length for entry in entries.values()) / len(entries)
    scores: dict[str, float] = {}
    for term in english.terms(query):
        holding = [i for i, entry in entries.items() if term in entry.frequencies]
        for chunk_id in holding:
            entry = entries[chunk_id]
            weight = term_weight(entry.frequencies[term], entry.length, average)
            share = idf(len(holding), len(entries)) * weight
            scores[chunk_id] = scores.get(chunk_id, 0.0) + share
    return scores


async def test_keyword_scores_are_exact_across_blocks(server: Server) -> None:
    """With tiny blocks and statements, after upserts and deletes, BM25 is that of the definition.

    If this fails only here: postings of a block are lost, doubled or left behind.
    """
    tuning = Tuning(block_rows=4, statement_pieces=50)
    rng = np.random.default_rng(8)
    words = [f"word{n}" for n in range(30)]

    def some(numbers: list[int]) -> list[Chunk]:
        return [
            Chunk(
                content=" ".join(rng.choice(words, rng.integers(1, 25))),
                chunk_id=f"c{n:03}",
                metadata={"title": " ".join(rng.choice(words, 2))} if n % 3 else {},
            )
            for n in numbers
        ]

    async with opened(server, vector_db(), tuning=tuning) as index:
        stored: dict[str, Chunk] = {}
        for step in range(12):
            chunks = some(sorted(rng.choice(60, size=17, replace=False).tolist()))
            await index.add_chunks(chunks, embeddings(17))
            stored.update({one.chunk_id: one for one in chunks})
            gone = sorted(rng.choice(sorted(stored), size=5, replace=False).tolist())
            await index.delete_chunks(gone)
            for chunk_id in gone:
                del stored[chunk_id]
            query = " ".join([*rng.choice(words, 3), "word1 word1"])
            expected = by_definition(query, list(stored.values()))
            answer = raw_scores(await index.query(None, query, k=100, mode="keyword"))
            assert dict(answer) == pytest.approx(expected, abs=1e-6), step
        await index.delete_chunks(sorted(stored))
    for part in ("terms", "postings"):
        name = Tables(index.vector_db, "corral").name
        assert not ask(server, "SELECT * FROM pg_tables WHERE tablename = %s", f"{name}_{part}")


async def test_nothing_of_a_deleted_chunk_stays(server: Server) -> None:
    """Deleting removes text, terms and postings alike, and numbers are not used again."""

    db = vector_db()
    name = Tables(db, "corral").name
    async with opened(server, db) as index:
        await index.add_chunks(some_chunks(50), embeddings(50))
        await index.delete_chunks([one.chunk_id for one in some_chunks(50)])
        for part in ("", "_terms", "_postings"):
            assert ask(server, f'SELECT * FROM corral."{name}{part}"') == [], part
        [(count, length, rows)] = ask(
            server, f'SELECT count, length, next_row FROM corral."{name}_state"'
        )
        assert (count, length, rows) == (0, 0, 50)


async def test_scores_do_not_depend_on_the_order_of_adding(server: Server) -> None:
    """Equal texts have scores equal to the last bit, however PostgreSQL adds up their terms.

    If this fails: floating-point sums depend on the order of rows, so on the plan of the day, and
    ties come in another order after a VACUUM.
    """
    rng = np.random.default_rng(3)
    words = [f"w{n}" for n in range(60)]

    async with opened(server, vector_db(language="simple")) as index:
        for number in range(40):  # words of all frequencies, every text twice
            text = " ".join(rng.choice(words[: number + 3], 25))
            twins = [Chunk(content=text, chunk_id=f"{side}{number:02}") for side in "ab"]
            await index.add_chunks(twins, embeddings(2))
        first = raw_scores(await index.query(None, " ".join(words), k=100, mode="keyword"))
        scores = dict(first)
        assert len(scores) == 80
        assert all(scores[f"a{n:02}"] == scores[f"b{n:02}"] for n in range(40))
        for _ in range(5):
            query = " ".join(rng.permutation(words))
            again = raw_scores(await index.query(None, query, k=100, mode="keyword"))
            assert again == first
        ask(server, "ANALYZE")
        again = raw_scores(await index.query(None, " ".join(words), k=100, mode="keyword"))
        assert again == first


async def test_a_chunk_may_hold_any_number_of_terms(server: Server) -> None:
    """30,000 different words in one chunk, and 20,000 in a query: more than a sparsevec holds."""

    text = " ".join(f"word{n}" for n in range(30_000))
    async with opened(server, vector_db()) as index:
        await index.add_chunks(
            [Chunk(content=text, chunk_id="a"), Chunk(content="word1", chunk_id="b")],
            embeddings(2),
        )
        question = " ".join(f"word{n}" for n in range(0, 30_000, 2))
        assert ids(await index.query(None, question, k=5, mode="keyword")) == ["a"]
        assert ids(await index.query(None, "word1", k=5, mode="keyword")) == ["b", "a"]


async def test_hybrid_has_the_legs_of_the_single_modes(server: Server) -> None:
    """One statement brings both legs: the candidates, ranks, scores and terms that each mode gives.

    If this fails: hybrid search is another search than the two that it is made of.
    """

    async with opened(server, vector_db(), exact_below_rows=50) as index:
        await index.add_chunks(some_chunks(120), embeddings(120))
        query, text = embeddings(1, seed=3)[0], "number7 grazes number8"
        for only in (None, {"type": "lt", "key": "n", "value": 90}):
            whole = await index.query(
                query, text, k=20, mode="hybrid", filters=only, ranker=RRFRanker(candidates=40)
            )
            for leg in ("vector", "keyword"):
                single = await index.query(query, text, k=40, mode=leg, filters=only)
                expected = {h.chunk.chunk_id: h.explanation.legs[leg] for h in single.hits}
                for hit in whole.hits:
                    said = hit.explanation.legs.get(leg)
                    assert said == expected.get(hit.chunk.chunk_id)
                    assert hit.chunk.content
        no_words = await index.query(query, "?!", k=5, mode="hybrid")
        alone = await index.query(query, k=5, mode="vector")
        assert ids(no_words) == ids(alone)


NUMBERS: list[Any] = [
    2**62, float(2**62), 2**62 + 1, 2.0**53, 2**53 + 1, 10**19, 1e19, 1e23, 10**23, 0.1, 1e-7, -0.0,
    0, 1e300, 123456789012345.6, -5e-324,
]  # fmt: skip


async def test_numbers_compare_as_in_python(server: Server) -> None:
    """Large floats and integers, whose shortest decimals are not their values, are kept apart.

    If this fails: floats were stored as they are printed.
    """

    chunks = [
        Chunk(content="word", chunk_id=f"c{n:02}", metadata={"x": [value]})
        for n, value in enumerate(NUMBERS)
    ]
    async with opened(server, vector_db()) as index:
        await index.add_chunks(chunks, np.ones((len(chunks), 16)))
        for value in [one for one in NUMBERS if abs(one) < 2**63 or isinstance(one, float)]:
            for kind in ("eq", "ne", "lt", "gte"):
                data = {"type": kind, "key": "x", "value": value}
                parsed = parse_filter(data)
                right = [one.chunk_id for one in chunks if matches(parsed, one.metadata)]
                answer = await index.query(None, "word", k=50, mode="keyword", filters=data)
                assert sorted(ids(answer)) == right, data


async def test_long_values_are_stored_and_found(server: Server) -> None:
    """Values and document ids of 100,000 characters: longer than a B-tree of PostgreSQL holds."""
    long = "".join(map(chr, np.random.default_rng(0).integers(0x4E00, 0x9FFF, 100_000)))

    async with opened(server, vector_db()) as index:
        chunks = [
            Chunk(content="word", chunk_id=f"c{n}", metadata={"document_id": long + str(n)})
            for n in range(3)
        ]
        await index.add_chunks(chunks, embeddings(3))
        only = {"type": "eq", "key": "document_id", "value": long + "1"}
        assert ids(await index.query(None, "word", mode="keyword", filters=only)) == ["c1"]
        await index.add_chunks([], None, replace_documents={long + "1"})
        assert await index.count() == 2


async def test_the_table_can_be_read_by_people(server: Server) -> None:
    """Title, categories, text and the metadata as it came stand in columns of their own."""

    db = vector_db()
    metadata = {"title": "T", "categories": ["one", "two"], "n": 1.0, "a": {"b": None}}
    async with opened(server, db) as index:
        await index.add_chunks(
            [Chunk(content="text", chunk_id="a", metadata=metadata)], embeddings(1)
        )
        table = engine_of(index).tables.name
        query = f"SELECT title, categories, content, metadata::text FROM corral.{table}"
        assert ask(server, query) == [
            (
                "T",
                "one\ntwo",
                "text",
                '{"title": "T", "categories": ["one", "two"], "n": 1.0, "a": {"b": null}}',
            )
        ]


async def test_an_index_of_an_older_analyzer_is_made_anew(server: Server) -> None:
    """When the analyzer's version changes, the keyword index is rebuilt from the stored texts."""

    db = vector_db()
    name = Tables(db, "corral").name
    settings: dict[str, Any] = {"exact_below_rows": 20}
    async with opened(server, db, drop=False, **settings) as index:
        await index.add_chunks(some_chunks(40), embeddings(40))
        right = found(await index.query(None, "grazing", k=40, mode="keyword"))
    ask(
        server,
        f'UPDATE corral."{name}_state" SET analyzer = 0, length = 7;'
        f' DELETE FROM corral."{name}_postings"',
    )
    async with opened(server, db, tuning=Tuning(reindex_rows=7), **settings) as index:
        assert found(await index.query(None, "grazing", k=40, mode="keyword")) == right
        assert len(right) == 20
        await index.delete_chunks([one for one, _ in right])
        assert found(await index.query(None, "grazing", k=40, mode="keyword")) == []
        assert await index.count() == 20


async def test_a_failing_write_leaves_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle of a write undoes all of it, and the index goes on working."""

    async with opened(server, vector_db()) as index:
        await index.add_chunks(some_chunks(5), embeddings(5))

        async def explode(*_: object) -> int:
            raise RuntimeError("in the middle")

        with monkeypatch.context() as patched:
            patched.setattr(PgvectorEngine, "_count_up", explode)
            with pytest.raises(RuntimeError, match="in the middle"):
                await index.add_chunks(
                    some_chunks(9, "other"), embeddings(9), replace_documents={"d1"}
                )
        assert await index.count() == 5
        assert len((await index.query(None, "herd", k=50, mode="keyword")).hits) == 5
        await index.add_chunks(some_chunks(9, "other"), embeddings(9))
        assert await index.count() == 14


async def test_event_loops_do_not_share_connections(server: Server) -> None:
    """An index may be used by one event loop after another, as by commands in one process."""
    one = provider(server)
    db = vector_db()
    index = await one.open_index(db, create=True)
    await index.add_chunks(some_chunks(3), embeddings(3))
    assert await index.count() == 3
    await index.delete()


async def test_event_loops_beside_each_other_keep_their_connections(server: Server) -> None:
    """A call in the loop of another thread leaves the connections of this loop open.

    If this fails: two loops close each other's connections with every call.
    """
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'corral'"
    async with opened(server, vector_db()) as index:
        before = set(ask(server, asked))
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: asyncio.run(index.count())) == 0
        assert before
        assert before <= set(ask(server, asked))


def test_bm25_needs_a_term(server: Server) -> None:
    """A query of nothing but stop words and signs asks PostgreSQL nothing."""
    assert Bm25(Tables(vector_db(), "corral")).search("the of - ?!", None) is None


async def test_an_orphan_is_found_and_removed(server: Server) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    await check_orphans(provider(server))


async def test_installations_delete_only_their_own(server: Server, tmp_path: Path) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    config = server.config | {"schema_name": "two installations"}
    await check_installations(tmp_path, "remote::pgvector", config)
    await check_pruning_beside(tmp_path, "remote::pgvector", config)
