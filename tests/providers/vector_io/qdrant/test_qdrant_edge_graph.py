"""inline::qdrant's HNSW graph: built beside the shard, in another process, while all goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ProviderError
from corral.api.testing.indexes import chunk, ids, raw_scores
from corral.api.testing.oracle import bm25
from corral.api.vector_dbs import VectorDB
from corral.providers import concurrency
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge import client as engine
from corral.providers.vector_io.qdrant.edge import collection as edge
from corral.providers.vector_io.qdrant.edge import graph
from corral.providers.vector_io.qdrant.provider import create

from ..engines import engine_of

DIMENSION, COUNT = 64, 1500
ROWS: NDArray[np.float32] = (
    np.random.default_rng(3).normal(size=(2 * COUNT, DIMENSION)).astype("f4")
)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
QUERIES = np.random.default_rng(4).normal(size=(40, DIMENSION)).astype("f4")

DB = VectorDB.model_validate(
    {
        "identifier": "notes",
        "provider_id": "edge",
        "provider_resource_id": "notes",
        "embedding_model": "none",
        "embedding_dimension": DIMENSION,
        "language": "simple",
        "field_weights": {"content": 1.0},
        "created_at": 1.0,
    }
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build a graph of a thousand points at once, and search it however few they are."""
    monkeypatch.setattr(concurrency, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(graph, "GRAPH_FROM_KB", 4 * DIMENSION * 1000 / 1024)
    monkeypatch.setattr(engine, "FULL_SCAN_KB", 1)


def text(number: int) -> str:
    """Return the words of a chunk."""
    return f"zebra w{number % 7} " + "filler " * (number % 3)


def chunks(numbers: range) -> list[Chunk]:
    """Return chunks by their numbers, which name their rows, too; ten make a document."""
    return [chunk(f"c{n:04}", text(n), document_id=f"d{n // 10}", tenth=n % 10) for n in numbers]


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[EngineIndex]:
    """Open the vector DB, made where it is absent, and close it."""
    provider = create("edge", QdrantEdgeConfig(folder=folder, **settings), folder)
    index = await provider.open_index(DB, create=True)
    try:
        yield index
    finally:
        await index.close()


def builder(index: EngineIndex) -> graph.GraphBuilder:
    """Return what builds an index's graph."""
    collection = engine_of(index)._collection
    assert isinstance(collection, edge.EdgeCollection)
    assert collection._graph
    return collection._graph


def places(folder: Path) -> list[str]:
    """Return what lies in the folder of the vector DB, `complete` left out."""
    [home] = folder.iterdir()
    return sorted(path.name for path in home.iterdir() if path.name != "complete")


async def check(index: EngineIndex, held: dict[str, int]) -> None:
    """Check that an index has these chunks, by their rows: ids, words, counts, neighbors."""
    found: list[str] = []
    while page := await index.chunk_ids(found[-1] if found else "", 1000):
        found += page
    assert found == sorted(held)
    texts = {name: {"content": text(int(name[1:]))} for name in held}
    by_words = raw_scores(await index.query(None, "w3 zebra", 20, mode="keyword"))
    expected = bm25("w3 zebra", texts, {"content": 1.0})
    best = sorted(expected, key=lambda name: (-expected[name], name))[:20]
    assert by_words == pytest.approx({name: expected[name] for name in best}, abs=1e-6)
    names = np.array(sorted(held))
    rows = ROWS[[held[name] for name in sorted(held)]]
    shared = 0
    for query in QUERIES:
        nearest = names[np.argsort(-(rows @ query))[:10]]
        shared += len({*nearest} & {*ids(await index.query(query, "", 10, mode="vector"))})
    assert shared >= 0.97 * 10 * len(QUERIES)


async def test_a_graph_takes_the_shards_place(tmp_path: Path) -> None:
    """After a load the graph is there, and serves, also when opened again; one copy is left.

    If this fails: searches compare every embedding for ever, a graph is lost at a restart, or the
    files of the old shard stay.
    """
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        assert builder(index).graphed == COUNT
        [place] = places(tmp_path)
        await check(index, {f"c{n:04}": n for n in range(COUNT)})
    async with opened(tmp_path) as index:
        assert builder(index).graphed == COUNT
        await index.settle()
        assert places(tmp_path) == [place]  # it is not built again
        await check(index, {f"c{n:04}": n for n in range(COUNT)})


async def walks(index: EngineIndex, first: int = 0) -> bool:
    """Return True if a graph is walked that keeps one candidate: it misses the nearest of some."""
    found = [ids(await index.query(query, "", 1, mode="vector")) for query in QUERIES]
    nearest = np.argmax(QUERIES @ ROWS[first:COUNT].T, axis=1) + first
    return found != [[f"c{n:04}"] for n in nearest]


async def test_a_search_walks_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is a graph it is asked, after writes, many deletions and a restart, too.

    If this fails: the graph is built and never asked, or lost when deleted points are cleared out.
    """
    monkeypatch.setattr(edge, "VACUUM_AFTER", 100)
    async with opened(tmp_path, hnsw_ef=1) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        assert not await walks(index)
        await index.settle()
        assert await walks(index)
        await index.add_chunks(chunks(range(COUNT - 50, COUNT)), ROWS[COUNT - 50 : COUNT])
    async with opened(tmp_path, hnsw_ef=1) as index:
        assert await walks(index)
        await index.delete_chunks([f"c{n:04}" for n in range(800)])
        assert await walks(index, 800)


async def test_exact_compares_every_embedding(tmp_path: Path) -> None:
    """With `exact` a graph is not asked, and without it again, one is built anew.

    If this fails: `exact` is not, or a vector DB that once was is searched without a graph.
    """
    async with opened(tmp_path, hnsw_ef=1) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        assert await walks(index)
    for _ in range(2):  # the second opening clears out what the first one wrote anew
        async with opened(tmp_path, exact=True) as index:
            await index.settle()
            assert not await walks(index)
            await index.add_chunks(chunks(range(700)), ROWS[:700])
    async with opened(tmp_path, hnsw_ef=1) as index:
        await index.settle()
        assert await walks(index)


async def test_few_that_pass_are_compared_one_by_one(tmp_path: Path) -> None:
    """A filter that a tenth passes finds all neighbors, although the graph keeps one candidate.

    If this fails: answers for a tenant or a document miss chunks that a search of all finds.
    """
    async with opened(tmp_path, hnsw_ef=1) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        tenth = {"type": "eq", "key": "tenth", "value": 4}
        for query in QUERIES:
            best = np.argsort(-(ROWS[4:COUNT:10] @ query))[:10] * 10 + 4
            found = await index.query(query, "", 10, mode="vector", filters=tenth)
            assert ids(found) == [f"c{n:04}" for n in best]


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Hold the building up; return what is set when a copy is made, and what to set to go on."""
    real: Callable[..., None] = graph.GraphBuilder._build_at
    copied, go_on = threading.Event(), threading.Event()

    def waiting(self: graph.GraphBuilder, place: Path) -> None:
        copied.set()
        assert go_on.wait(60)
        real(self, place)

    monkeypatch.setattr(graph.GraphBuilder, "_build_at", waiting)
    return copied, go_on


async def test_what_is_written_meanwhile_is_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that are added, replaced and deleted while the graph is built are as they should be.

    If this fails: acknowledged chunks are lost, or deleted ones come back, when the copy takes the
    shard's place.
    """
    copied, go_on = held_up(monkeypatch)
    monkeypatch.setattr(graph, "BATCH", 20)
    held = {f"c{n:04}": n for n in range(COUNT)}
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        assert await asyncio.to_thread(copied.wait, 60)
        await index.add_chunks(chunks(range(COUNT, COUNT + 60)), ROWS[COUNT : COUNT + 60])
        held |= {f"c{n:04}": n for n in range(COUNT, COUNT + 60)}
        await index.add_chunks(chunks(range(50)), ROWS[2000:2050])
        held |= {f"c{n:04}": n + 2000 for n in range(50)}
        await index.add_chunks(chunks(range(3)), ROWS[:3], replace_documents={"d0", "d9"})
        held = {name: n for name, n in held.items() if name[1:4] not in {"000", "009"}}
        held |= {f"c{n:04}": n for n in range(3)}
        gone = [f"c{n:04}" for n in range(700, 760)]
        await index.delete_chunks(gone)
        held = {name: n for name, n in held.items() if name not in gone}
        await check(index, held)
        go_on.set()
        await index.settle()
        assert builder(index).graphed == len(held)
        await check(index, held)
    async with opened(tmp_path) as index:
        await check(index, held)


@pytest.mark.parametrize("drop", [False, True])
async def test_nobody_waits_for_a_graph_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drop: bool
) -> None:
    """Closed or dropped while it is built, the process ends and nothing of the copy is left.

    If this fails: a server takes minutes to stop, or a killed copy stays on the disk.
    """
    copied, go_on = held_up(monkeypatch)
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        assert await asyncio.to_thread(copied.wait, 60)
        ending = asyncio.create_task(index.delete() if drop else index.close())
        await asyncio.to_thread(builder(index)._stopping.wait, 60)
        go_on.set()
        await ending
        assert builder(index)._process is None
        if drop:
            assert list(tmp_path.iterdir()) == []
            return
        assert not [name for name in places(tmp_path) if name.startswith("shard-")]
    monkeypatch.undo()
    async with opened(tmp_path) as index:
        await check(index, {f"c{n:04}": n for n in range(COUNT)})


async def test_a_graph_that_cannot_be_built_is_told_and_searched_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that fails leaves the shard as it is, a warning, and no second try at once.

    If this fails: answers are lost with the process, or a full disk is filled again and again.
    """
    real = edge.EdgeCollection.copy_to

    def torn(self: edge.EdgeCollection, place: Path) -> int:
        count = real(self, place)
        (place / "edge_config.json").write_text("{")
        return count

    monkeypatch.setattr(edge.EdgeCollection, "copy_to", torn)
    caplog.set_level(logging.WARNING)
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        assert [r.getMessage() for r in caplog.records] == [
            "No HNSW graph for 'notes': The process that builds it ended with 1."
        ]
        await check(index, {f"c{n:04}": n for n in range(COUNT)})
        await index.settle()
        assert len(caplog.records) == 1
        assert not [name for name in places(tmp_path) if name.startswith("shard-")]
        monkeypatch.setattr(edge.EdgeCollection, "copy_to", real)
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        assert builder(index).graphed == COUNT


async def test_a_write_that_fails_half_way_spoils_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next step undoes in the shard, nobody undoes in the copy: it is given up.

    If this fails: a document's old version is found again once the graph is there.
    """
    copied, go_on = held_up(monkeypatch)
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        assert await asyncio.to_thread(copied.wait, 60)
        real = engine.delete

        def broken(*_: object) -> None:
            raise Exception("as an engine whose disk is full")

        monkeypatch.setattr(engine, "delete", broken)
        with pytest.raises(ProviderError):
            await index.add_chunks(chunks(range(1)), ROWS[:1], replace_documents={"d0"})
        monkeypatch.setattr(engine, "delete", real)
        held = {f"c{n:04}": n for n in range(COUNT) if not 0 < n < 10}
        assert await index.count() == len(held)
        go_on.set()
        await index.settle()
        assert builder(index).graphed == 0
        await check(index, held)


async def test_a_killed_processs_copy_is_cleared_out(tmp_path: Path) -> None:
    """Opened again, a vector DB has no half-made copy, and all of its chunks.

    If this fails: every kill while a graph is built leaves a copy of the shard on the disk.
    """
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(100)), ROWS[:100])
    [home] = tmp_path.iterdir()
    before = places(tmp_path)
    (home / "shard-0123").mkdir()
    (home / "shard-0123" / "edge_config.json").write_text("{")
    (home / "complete.new").write_text('{"fold')
    async with opened(tmp_path) as index:
        assert places(tmp_path) == before
        await check(index, {f"c{n:04}": n for n in range(100)})


async def test_one_graph_is_built_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a graph is built, a load in another event loop asks for the next one: nothing is lost.

    If this fails: two copies take the shard's place, and the second one misses chunks.
    """
    monkeypatch.setattr(graph, "GRAPH_FROM_KB", 0.001)
    copied, go_on = held_up(monkeypatch)
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(200)), ROWS[:200])
        assert await asyncio.to_thread(copied.wait, 60)
        copied.clear()

        async def load() -> None:
            await index.add_chunks(chunks(range(200, 400)), ROWS[200:400])
            await index.settle()

        other = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(load())))
        assert not await asyncio.to_thread(copied.wait, 0.5)
        go_on.set()
        await other
        assert copied.is_set()
        await index.settle()
        await check(index, {f"c{n:04}": n for n in range(400)})


async def test_a_graph_that_is_due_when_another_is_built_is_built_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single chunks written during a build make the next graph due, and `settle` waits for it, too.

    If this fails: a vector DB that grows chunk by chunk never has another graph.
    """
    monkeypatch.setattr(graph, "GRAPH_FROM_KB", 0.001)
    copied, go_on = held_up(monkeypatch)
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(200)), ROWS[:200])
        assert await asyncio.to_thread(copied.wait, 60)
        for n in range(200, 230):
            await index.add_chunks(chunks(range(n, n + 1)), ROWS[n : n + 1])
        go_on.set()
        await index.settle()
        assert builder(index).graphed == 230


async def test_a_twentieth_more_is_worth_another_graph(tmp_path: Path) -> None:
    """A few more chunks build no graph, a twentieth does, and `settle` waits for one with all.

    If this fails: every chunk that is added costs a new graph, or a measurement compares thousands.
    """
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), ROWS[:COUNT])
        await index.settle()
        await index.add_chunks(chunks(range(COUNT, COUNT + 70)), ROWS[COUNT : COUNT + 70])
        await builder(index)._renewal.flush()
        assert builder(index).graphed == COUNT
        await index.add_chunks(chunks(range(COUNT + 70, 1580)), ROWS[COUNT + 70 : 1580])
        await builder(index)._renewal.flush()
        assert builder(index).graphed == 1580
        await index.add_chunks(chunks(range(1580, 1590)), ROWS[1580:1590])
        await index.settle()
        assert builder(index).graphed == 1590


async def test_equal_embeddings_are_all_found(tmp_path: Path) -> None:
    """Of 1,500 equal embeddings a search for 1,000 finds 1,000.

    If this fails: the graph, whose links between equal points lead nowhere, ends the search.
    """
    async with opened(tmp_path) as index:
        await index.add_chunks(chunks(range(COUNT)), np.tile(ROWS[:1], (COUNT, 1)))
        await index.settle()
        assert builder(index).graphed == COUNT
        assert len(set(ids(await index.query(ROWS[0], "", 1000, mode="vector")))) == 1000
