"""remote::pgvector with many chunks: HNSW is near to exact search, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corral.api.engine_index import EngineIndex
from corral.api.filters import matches, parse_filter
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import Debouncer
from corral.providers.vector_io.pgvector.records import Tables, Tuning

from ..engines import engine_of
from ..recall import ENOUGH, QUERIES, fill, recalls, registered
from .conftest import Server
from .helpers import (
    ask,
    embeddings,
    found,
    hnsw_index,
    ids,
    opened,
    some_chunks,
    vector_db,
)

REFUSE = """
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_start
    WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION refuse();
"""


def times_searched(server: Server, db: VectorDB, expected: int) -> int:
    """Return how often the HNSW index of a closed vector DB was searched.

    A session reports now and then, and the rest when it ends, which is after its client has left.
    """
    query = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s"
    deadline = time.monotonic() + 30
    while True:
        [(times,)] = ask(server, query, f"{Tables(db, '').name}_hnsw")
        if times >= expected or time.monotonic() > deadline:
            return int(times)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("metric", "normalize"),
    [("cosine", True), ("cosine", False), ("l2", False), ("dot", False)],
)
async def test_hnsw_is_near_to_exact_search(server: Server, metric: str, normalize: bool) -> None:
    """2,500 chunks under every operator: recall_vs_exact@10 of 0.95, and exact scores.

    If this fails for one metric: its operator class is not that of the query, so no index is used,
    or another one.
    """

    db = vector_db(metric=metric, normalize=normalize)
    queries = embeddings(40, seed=1)
    async with opened(server, db, drop=False, exact_below_rows=1000) as index:
        await index.add_chunks(some_chunks(2500), embeddings(2500))
    assert "hnsw" in hnsw_index(server, db)
    ask(server, "VACUUM ANALYZE")  # which autovacuum does at any time
    async with opened(server, db, drop=False, exact_below_rows=1000) as near:
        answers = [found(await near.query(q, k=10, mode="vector")) for q in queries]
    assert times_searched(server, db, len(queries)) == len(queries)
    hits = 0
    async with opened(server, db, exact_below_rows=10_000) as exact:
        for query, answer in zip(queries, answers, strict=True):
            right = dict(found(await exact.query(query, k=10, mode="vector")))
            hits += len(set(right) & {one for one, _ in answer})
            assert all(abs(right.get(one, score) - score) < 1e-6 for one, score in answer)
            assert [score for _, score in answer] == sorted(dict(answer).values(), reverse=True)
    assert hits >= 0.95 * 10 * len(queries)


async def test_recall(server: Server) -> None:
    """recall_vs_exact@10 >= 0.95 through HNSW with the defaults, under every filter.

    Chunks come topic by topic, which is harder than any mixture of them. If this fails: the scan
    takes the first chunks that pass, beyond many near ones that do not, for the nearest.
    """

    db = registered("pgvector")
    async with opened(server, db, drop=False) as index:
        await fill(index, by_topic=True)
        found = await recalls(index, by_topic=True)
    assert min(found.values()) >= ENOUGH, found
    assert times_searched(server, db, QUERIES) >= QUERIES
    async with opened(server, db):
        pass


async def test_the_index_appears_with_the_number_of_chunks(server: Server) -> None:
    """No HNSW index up to `exact_below_rows`, one beyond, also when an older vector DB is opened.

    If this fails: large vector DBs are searched row by row.
    """

    db = vector_db()
    async with opened(server, db, drop=False, exact_below_rows=50) as index:
        await index.add_chunks(some_chunks(50), embeddings(50))
        assert hnsw_index(server, db) == ""
        await index.add_chunks(some_chunks(1, "d"), embeddings(1))
        assert "vector_ip_ops" in hnsw_index(server, db)
    other = vector_db()
    async with opened(server, other, drop=False) as index:
        await index.add_chunks(some_chunks(60), embeddings(60))
        assert hnsw_index(server, other) == ""
    settings: dict[str, Any] = {"exact_below_rows": 50, "hnsw_m": 8, "hnsw_ef_construction": 32}
    async with opened(server, other, **settings):
        assert "m='8', ef_construction='32'" in hnsw_index(server, other)
    async with opened(server, db):
        pass


@pytest.mark.parametrize(
    ("dimension", "settings", "kind"),
    [
        (127, {}, "embedding vector_ip_ops"),
        (128, {}, "::halfvec(128)) halfvec_ip_ops"),
        (2000, {"normalize": False}, "embedding vector_cosine_ops"),
        (2001, {}, "::halfvec(2001)) halfvec_ip_ops"),
        (4000, {"normalize": False}, "l2_normalize(embedding))::halfvec(4000)) halfvec_ip_ops"),
        (4000, {"normalize": False, "metric": "l2"}, ""),
        (4001, {}, ""),
    ],
)
async def test_large_embeddings_are_indexed_in_half_precision_as_far_as_that_goes(
    server: Server, dimension: int, settings: dict[str, Any], kind: str
) -> None:
    """Half from 128 dimensions for unit vectors, from 2,001 to 4,000 where lengths do not count.

    Float below that, and an exact scan beyond.

    Scores are exact in each case, and a component of 1e9, which half precision cannot hold, is no
    error.
    """

    db = vector_db(dimension, **settings)
    matrix = embeddings(30, dimension) * 1e9
    async with (
        opened(server, db, exact_below_rows=10) as index,
        opened(server, vector_db(dimension, **settings)) as exact,
    ):
        for one in (index, exact):
            await one.add_chunks(some_chunks(30), matrix)
        definition = hnsw_index(server, db)
        assert kind in definition if kind else definition == ""
        for query in embeddings(3, dimension, seed=2):
            assert found(await index.query(query, k=5, mode="vector")) == found(
                await exact.query(query, k=5, mode="vector")
            )


async def test_a_filter_never_costs_hits(server: Server) -> None:
    """Under HNSW, filters of every selectivity find k chunks where so many pass, all passing.

    If this fails: the scan of the index ended before it had enough.
    """
    filters: list[dict[str, Any]] = [
        {"type": "eq", "key": "hundredth", "value": 7},  # 25 pass: compared one by one
        {"type": "eq", "key": "odd", "value": True},  # 1,250 pass: the index is searched
        {"type": "gte", "key": "n", "value": 2400},
        {"type": "ne", "key": "n", "value": 3},
        {"type": "eq", "key": "n", "value": 4},
        {"type": "eq", "key": "n", "value": -1},
    ]

    db = vector_db()
    few: dict[str, Any] = {
        "exact_below_rows": 100,
        "hnsw_ef_search": 10,
        "hnsw_max_scan_tuples": 30,
    }
    async with opened(server, db, **few) as index:
        chunks = some_chunks(2500)
        await index.add_chunks(chunks, embeddings(2500))
        for data in filters:
            parsed = parse_filter(data)
            passing = {one.chunk_id for one in chunks if matches(parsed, one.metadata)}
            for k in (1, 20, 300):
                answer = await index.query(
                    embeddings(1, seed=5)[0], k=k, mode="vector", filters=data
                )
                assert len(answer.hits) == min(k, len(passing)), data
                assert set(ids(answer)) <= passing


async def test_a_scan_that_ends_early_is_not_taken_for_an_answer(server: Server) -> None:
    """Where the scan of the index ends with k chunks but fewer than it was asked for, all compare.

    If this fails: a filter whose chunks are all far is answered with the few that the scan met.
    """
    db = vector_db()
    early: dict[str, Any] = {
        "exact_below_rows": 50,
        "hnsw_ef_search": 10,
        "hnsw_max_scan_tuples": 30,
    }
    last = {"type": "gte", "key": "n", "value": 2400}
    queries = embeddings(20, seed=6)
    async with opened(server, db, drop=False, **early) as index:
        await index.add_chunks(some_chunks(2500), embeddings(2500))
    ask(server, "VACUUM ANALYZE")
    async with opened(server, db, drop=False, **early) as index:
        answers = [found(await index.query(q, k=1, mode="vector", filters=last)) for q in queries]
    assert times_searched(server, db, len(queries)) == len(queries)
    async with opened(server, db, exact_below_rows=10_000) as exact:
        for query, answer in zip(queries, answers, strict=True):
            assert answer == found(await exact.query(query, k=1, mode="vector", filters=last))


async def test_few_passing_chunks_are_compared_exactly(server: Server) -> None:
    """Where no more than `exact_below_rows` chunks pass, the answer is that of exact search."""

    db = vector_db()
    matrix = embeddings(1500)
    matrix[::100] = matrix[0]  # ties, at the cut, too
    only = {"type": "eq", "key": "odd", "value": False}
    async with opened(server, db, exact_below_rows=800) as index:
        await index.add_chunks(some_chunks(1500), matrix)
        unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        for query in (matrix[0], *embeddings(5, seed=6)):
            cosines = unit @ (query / np.linalg.norm(query))
            best = sorted(range(0, 1500, 2), key=lambda n: (-round(cosines[n], 9), n))
            answer = await index.query(query, k=9, mode="vector", filters=only)
            assert ids(answer) == [f"c{n:05}" for n in best[:9]]


@pytest.mark.parametrize("filters", [None, {"type": "ne", "key": "n", "value": -1}])
async def test_the_first_of_many_equal_chunks_are_found(server: Server, filters: Any) -> None:
    """Where more chunks tie at the cut than the index is asked for, the first ids are found."""

    matrix = embeddings(600)
    matrix[np.random.default_rng(3).permutation(600)[:300]] = matrix[0]
    same = np.flatnonzero((matrix == matrix[0]).all(axis=1))
    async with opened(server, vector_db(), exact_below_rows=100) as index:
        for start in (300, 0):
            await index.add_chunks(
                some_chunks(600)[start : start + 300], matrix[start : start + 300]
            )
        answer = await index.query(matrix[0], k=10, mode="vector", filters=filters)
        assert ids(answer) == [f"c{n:05}" for n in same[:10]]


async def test_shrinking_makes_search_exact_again(server: Server) -> None:
    """With the chunks gone that made it large, a vector DB orders ties and cuts exactly."""

    async with opened(server, vector_db(metric=Metric.L2), exact_below_rows=100) as index:
        await index.add_chunks(some_chunks(300), np.ones((300, 16)))
        await index.delete_chunks([f"c{n:05}" for n in range(0, 300, 3)])
        await index.delete_chunks([f"c{n:05}" for n in range(1, 300, 3)])
        answer = await index.query(np.ones(16), k=7, mode="vector")
        assert ids(answer) == [f"c{n:05}" for n in range(2, 23, 3)]


async def test_an_index_that_cannot_be_built_costs_time_only(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """When PostgreSQL refuses to build it, the write stands, answers are exact, the log says so.

    If this fails with an error: a caller believes that nothing was stored.
    """

    async with opened(server, vector_db(), exact_below_rows=10) as index:
        ask(server, REFUSE)
        try:
            await index.add_chunks(some_chunks(20), embeddings(20))
        finally:
            ask(server, "DROP FUNCTION refuse CASCADE")
        answer = await index.query(embeddings(20)[3], k=3, mode="vector")
        assert ids(answer)[0] == "c00003"
        assert len(answer.hits) == 3
    assert "No HNSW index" in caplog.text


async def test_an_index_whose_build_was_cancelled_is_built_by_the_next_write(
    server: Server,
) -> None:
    """A build that the server's restart or its administrator has ended is tried again.

    If this fails: a server searches row by row until it is started anew.
    """
    db = vector_db()
    async with opened(server, db, exact_below_rows=10) as index:
        ask(server, REFUSE.replace("'no'", "'no' USING ERRCODE = 'query_canceled'"))
        try:
            await index.add_chunks(some_chunks(20), embeddings(20))
        finally:
            ask(server, "DROP FUNCTION refuse CASCADE")
        assert hnsw_index(server, db) == ""
        await index.add_chunks(some_chunks(1, "d"), embeddings(1))
        assert "hnsw" in hnsw_index(server, db)


LARGE = 48


async def filled(server: Server, db: VectorDB, index: EngineIndex) -> None:
    """Store 60 chunks, of which an index is built, and 120 of a load, of which none is yet."""
    await index.add_chunks(some_chunks(60), embeddings(60, LARGE))
    assert "hnsw" in hnsw_index(server, db)
    await index.add_chunks(some_chunks(120, "new"), embeddings(120, LARGE, seed=7))


def below(server: Server, db: VectorDB) -> tuple[int, int]:
    """Return the row that the index of a vector DB ends below, and the chunks of loads beyond."""
    name = Tables(db, "").name
    [(row, loaded)] = ask(server, f'SELECT hnsw_below, loaded FROM corral."{name}_state"')
    return row, loaded


DEAR = Tuning(cheap_numbers=0)
"""Every index counts as one that takes long to build."""


async def test_what_a_load_has_written_is_found_before_the_index_holds_it(server: Server) -> None:
    """New chunks of a load stay out of the index, are compared one by one, and nothing is missed.

    If this fails: a search while a load runs misses what was acknowledged.
    """
    db, other = vector_db(LARGE), vector_db(LARGE)
    async with (
        opened(server, db, tuning=DEAR, exact_below_rows=50) as index,
        opened(server, other, tuning=DEAR, exact_below_rows=10_000) as exact,
    ):
        await filled(server, db, index)
        await index.add_chunks(some_chunks(9, "one"), embeddings(9, LARGE, seed=8))
        assert below(server, db) == (60, 120)
        await exact.add_chunks(some_chunks(60), embeddings(60, LARGE))
        await exact.add_chunks(some_chunks(120, "new"), embeddings(120, LARGE, seed=7))
        await exact.add_chunks(some_chunks(9, "one"), embeddings(9, LARGE, seed=8))
        for one in (index, exact):
            await one.delete_chunks(["new00003", "c00004", "one00001"])
        only = {"type": "eq", "key": "odd", "value": True}
        for query in embeddings(6, LARGE, seed=9):
            for data in (None, only):
                assert found(await index.query(query, k=20, mode="vector", filters=data)) == found(
                    await exact.query(query, k=20, mode="vector", filters=data)
                )


@pytest.mark.parametrize("built", [False, True])
async def test_what_another_process_loads_is_found_by_a_kept_plan(
    server: Server, built: bool
) -> None:
    """Where a search thinks that the index holds all, it notices a load, and an index of one.

    If this fails: a process never finds what others write after its first search.
    """
    db = vector_db(LARGE)
    slow = replace(DEAR, quiet_seconds=60.0)
    settings: dict[str, Any] = {"exact_below_rows": 50, "tuning": slow}
    query = embeddings(1, LARGE, seed=3)
    async with (
        opened(server, db, drop=False, **settings) as reader,
        opened(server, db, drop=False, **settings) as writer,
    ):
        await writer.add_chunks(some_chunks(60), embeddings(60, LARGE))
        for _ in range(3):
            await reader.query(query[0], k=3, mode="vector")
        assert engine_of(reader).hnsw.holds_all
        near = np.concatenate([query, embeddings(119, LARGE, seed=7)])
        await writer.add_chunks(some_chunks(120, "new"), near)
        if built:
            await engine_of(writer).hnsw.renewal.flush()
        for mode in ("vector", "hybrid"):
            answer = await reader.query(query[0], "grazing", k=3, mode=mode)
            assert "new00000" in ids(answer)
        assert engine_of(reader).hnsw.holds_all == built
    async with opened(server, db, **settings):
        pass


async def test_the_index_is_built_anew_when_a_load_is_over(server: Server) -> None:
    """Once writes pause, or the index is closed, it holds all chunks; another process notices.

    If this fails: after a load each search compares the loaded chunks one by one for ever.
    """
    db = vector_db(LARGE)
    quick, slow = replace(DEAR, quiet_seconds=0.05), replace(DEAR, quiet_seconds=60.0)
    settings: dict[str, Any] = {"exact_below_rows": 50, "tuning": quick}
    query = embeddings(1, LARGE)[0]
    async with (
        opened(server, db, drop=False, **settings) as index,
        opened(server, db, drop=False, **settings) as reader,
    ):
        await filled(server, db, index)
        await reader.query(query, k=3, mode="vector")
        while below(server, db)[1]:  # noqa: ASYNC110 - in a table
            await asyncio.sleep(0.02)
        assert below(server, db)[0] >= 180
        assert "new_hnsw" not in hnsw_index(server, db)
        answer = ids(await reader.query(query, k=3, mode="vector"))
        assert answer == ids(await index.query(query, k=3, mode="vector"))
        assert engine_of(reader).hnsw.below == below(server, db)[0]
    async with opened(server, db, drop=False, exact_below_rows=50, tuning=slow) as index:
        await index.add_chunks(some_chunks(150, "more"), embeddings(150, LARGE, seed=3))
        assert below(server, db)[1] == 150
    assert below(server, db)[1] == 0
    async with opened(server, db, **settings):
        pass


async def test_a_load_is_not_over_while_one_of_its_writes_is_under_way() -> None:
    """A write that takes longer than a pause between writes does not end the load.

    If this fails: the index is built in the middle of a load, and its writes wait for that.
    """
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    debouncer = Debouncer(work, quiet_seconds=0.02)
    debouncer.schedule()
    with debouncer.hold():
        await asyncio.sleep(0.3)
        assert not done.is_set()
    async with asyncio.timeout(30):
        await done.wait()


async def test_a_load_that_never_pauses_does_not_grow_without_bound(server: Server) -> None:
    """Beyond `max_loaded` chunks, and four times those in the index, it is built in the write.

    If this fails: a stream of writes makes searches slower and slower.
    """
    db = vector_db(LARGE)
    settings: dict[str, Any] = {"exact_below_rows": 50, "max_connections": 1}
    async with opened(server, db, tuning=replace(DEAR, max_loaded=200), **settings) as index:
        await filled(server, db, index)
        for step in range(3):
            await index.add_chunks(some_chunks(100, f"s{step}"), embeddings(100, LARGE))
        assert below(server, db)[1] < 300


async def test_an_index_is_built_without_workers_where_memory_is_not_shared(
    server: Server,
) -> None:
    """A container without room for the memory that workers share builds the index all the same."""
    ask(
        server,
        "CREATE FUNCTION no_room() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF position('USING hnsw' IN current_query()) > 0"
        " AND current_setting('max_parallel_maintenance_workers') <> '0' THEN"
        " RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; END $$;"
        " CREATE EVENT TRIGGER no_room ON ddl_command_start WHEN TAG IN ('CREATE INDEX')"
        " EXECUTE FUNCTION no_room()",
    )
    db = vector_db()
    try:
        async with opened(server, db, exact_below_rows=10) as index:
            await index.add_chunks(some_chunks(20), embeddings(20))
            assert "hnsw" in hnsw_index(server, db)
            assert ask(server, "SHOW max_parallel_maintenance_workers") != [("0",)]
    finally:
        ask(server, "DROP EVENT TRIGGER no_room; DROP FUNCTION no_room")
