"""inline::qdrant beyond the suite: its shard is an index over the chunk file, and no more."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
import qdrant_edge
from numpy.typing import NDArray
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound
from corral.api.testing.indexes import chunk, ids
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge.search import EdgeSearch
from corral.providers.vector_io.qdrant.edge.shard import errors
from corral.providers.vector_io.qdrant.provider import QdrantEdgeProvider, create
from corral.providers.vector_io.store.covered_rows import IndexFailed

from ..engines import engine_of
from .test_qdrant_edge_conformance import LocalProvider, LocalSearch

DIMENSION = 8
COUNT = 300


def registered(**settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB.model_validate(
        {
            "identifier": "notes",
            "provider_id": "edge",
            "provider_resource_id": "notes",
            "embedding_model": "none",
            "embedding_dimension": DIMENSION,
            "language": "simple",
            "created_at": 1.0,
            **settings,
        }
    )


def provider_of(folder: Path, **settings: Any) -> QdrantEdgeProvider:
    """Return a provider that makes a shard of 200 chunks and more."""
    return LocalProvider("edge", QdrantEdgeConfig(approximate_from=200, **settings), folder)


async def opened(folder: Path, **settings: Any) -> EngineIndex:
    """Open the vector DB, made if it is absent."""
    return await provider_of(folder, **settings).open_index(registered(), create=True)


def rows_of(count: int, seed: int = 0) -> NDArray[np.float64]:
    """Return random embeddings."""
    return np.random.default_rng(seed).normal(size=(count, DIMENSION))


def chunks_of(numbers: range) -> list[Chunk]:
    """Return chunks by their numbers."""
    return [chunk(f"c{n:04}", f"word{n % 7} zebra", part=n % 30) for n in numbers]


async def filled(folder: Path, **settings: Any) -> EngineIndex:
    """Open a vector DB of 300 chunks, all of them in the shard."""
    index = await opened(folder, **settings)
    await index.add_chunks(chunks_of(range(COUNT)), rows_of(COUNT))
    await index.settle()
    return index


def searcher_of(index: EngineIndex) -> EdgeSearch:
    """Return the searcher of an index."""
    searcher = engine_of(index).searcher
    assert isinstance(searcher, EdgeSearch)
    return searcher


async def answers(index: EngineIndex) -> list[list[tuple[str, float]]]:
    """Return the hits of vector queries with and without a filter, with scores."""
    filters = [
        None,
        {"type": "eq", "key": "part", "value": 3},
        {"type": "lt", "key": "part", "value": 20},
    ]
    responses = [
        await index.query(query, "", 10, mode="vector", filters=passing)
        for query in rows_of(5, seed=1)
        for passing in filters
    ]
    return [[(hit.chunk.chunk_id, hit.score) for hit in each.hits] for each in responses]


def shards(folder: Path) -> list[Path]:
    """Return the folders of shards."""
    return list(folder.glob("*.edge/index-*"))


async def test_deleting_the_shard_changes_no_answer(tmp_path: Path) -> None:
    """With a shard, after a restart, and without its files: the same hits and scores.

    If this fails: something is in the shard that the chunk file does not have.
    """
    index = await filled(tmp_path)
    assert searcher_of(index).covered == COUNT
    await index.delete_chunks(["c0007", "c0033"])
    await index.add_chunks(chunks_of(range(COUNT, COUNT + 20)), rows_of(20, seed=2))
    before = await answers(index)
    await index.close()
    index = await opened(tmp_path)
    assert searcher_of(index).covered == COUNT
    assert await answers(index) == before
    await index.close()
    for folder in tmp_path.glob("*.edge"):
        shutil.rmtree(folder)
    exact = await opened(tmp_path, exact=True)
    assert await answers(exact) == before
    await exact.close()
    index = await opened(tmp_path)
    await index.settle()
    assert searcher_of(index).covered == COUNT + 18
    assert await answers(index) == before
    await index.close()


async def test_a_person_who_opens_the_shard_finds_the_chunks(tmp_path: Path) -> None:
    """Another process makes the shard: points have the row as id, and chunk id, text and metadata.

    If this fails: the folder is of no use to Qdrant's own tools.
    """
    config = QdrantEdgeConfig(folder=tmp_path, approximate_from=200)
    index = await create("edge", config, tmp_path).open_index(registered(), create=True)
    chunks = [*chunks_of(range(COUNT)), chunk("odd", "huge", number=2**70, list=["a", "b"])]
    await index.add_chunks(chunks, rows_of(COUNT + 1))
    await index.settle()
    await index.close()
    [place] = shards(tmp_path)
    shard = qdrant_edge.EdgeShard.load(str(place))
    records = shard.retrieve(list(range(1, COUNT + 2)), True, True)
    info = shard.info()
    shard.close()
    payloads = {record.id: record.payload or {} for record in records}
    assert [payloads[n + 1]["chunk_id"] for n in range(COUNT + 1)] == [c.chunk_id for c in chunks]
    assert payloads[4] == {
        "chunk_id": "c0003",
        "content": "word3 zebra",
        "metadata": {"part": 3},
    }
    assert (info.points_count, info.indexed_vectors_count) == (COUNT + 1, COUNT + 1)


@pytest.mark.parametrize("walked", ["nearest", "filtered"])
async def test_a_search_asks_the_shard(tmp_path: Path, walked: str) -> None:
    """The shard proposes k chunks and a few more, with a filter only such as pass.

    If this fails: the shard is made, and every embedding is compared all the same.
    """
    index = await opened(tmp_path, hnsw_ef=1)
    await index.add_chunks(chunks_of(range(3000)), rows_of(3000))
    await index.settle()
    searcher = searcher_of(index)
    usable = None
    if walked == "filtered":
        usable = np.arange(3000) % 30 == 3
    base, _ = searcher._parts
    assert base is not None
    query = rows_of(1, seed=5)[0].astype(np.float32)
    places = base.places(apsw.Connection(":memory:"), query, 10, usable)
    assert 10 <= len(places) < 30
    assert usable is None or usable[places].all()
    await index.close()


async def test_equal_embeddings_are_all_in_reach(tmp_path: Path) -> None:
    """Of 1,500 equal embeddings a search for 1,000 has the first 1,000 ids.

    If this fails: a poorly linked graph, or the cut at k, hides some of those that tie.
    """
    index = await opened(tmp_path)
    names = [f"c{n:04}" for n in np.random.default_rng(3).permutation(1500)]
    await index.add_chunks([chunk(name) for name in names], np.ones((1500, DIMENSION)))
    await index.settle()
    assert searcher_of(index).covered == 1500
    response = await index.query(np.ones(DIMENSION), "", 1000, mode="vector")
    assert ids(response) == sorted(names)[:1000]
    await index.close()


async def test_a_second_process_sees_everything(tmp_path: Path) -> None:
    """A second process answers alike, finds what is written since, and its writes are found.

    If this fails: the engine's lock on the shard keeps other processes from the vector DB.
    """
    index = await filled(tmp_path)
    await index.add_chunks([chunk("late", "giraffe", part=3)], rows_of(1, seed=9))
    code = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from corral.api.testing.indexes import chunk, ids\n"
        "from corral.api.vector_dbs import VectorDB\n"
        "from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig\n"
        "from corral.providers.vector_io.qdrant.provider import create\n"
        "folder, query = Path(sys.argv[1]), json.loads(sys.argv[3])\n"
        "async def main():\n"
        "    config = QdrantEdgeConfig(folder=folder, approximate_from=200)\n"
        "    provider = create('edge', config, folder)\n"
        "    index = await provider.open_index(VectorDB.model_validate_json(sys.argv[2]))\n"
        "    print(json.dumps(ids(await index.query(query, '', 10, mode='vector'))))\n"
        "    await index.add_chunks([chunk('theirs', 'okapi')], [query])\n"
        "    await index.close()\n"
        "asyncio.run(main())\n"
    )
    query = rows_of(1, seed=9)[0]
    expected = ids(await index.query(query, "", 10, mode="vector"))
    assert expected[0] == "late"
    arguments = [str(tmp_path), registered().model_dump_json(), str(query.tolist())]
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert second.stdout.strip() == str(expected).replace("'", '"')
    assert set(ids(await index.query(query, "", 2, mode="vector"))) == {"late", "theirs"}
    assert len(shards(tmp_path)) == 1
    await index.close()


async def test_the_folder_passes_to_another_when_its_owner_closes(tmp_path: Path) -> None:
    """Of two that have a vector DB open one has the shard; both answer alike, then another has it.

    If this fails: the shard stays locked, or two write one folder.
    """
    first = await filled(tmp_path)
    second = await opened(tmp_path)
    assert (searcher_of(first).covered, searcher_of(second).covered) == (COUNT, 0)
    assert await answers(second) == await answers(first)
    await first.close()
    third = await opened(tmp_path)
    assert searcher_of(third).covered == COUNT
    assert await answers(third) == await answers(second)
    await second.close()
    await third.close()


def unmarked(folder: Path) -> None:
    """Lose the mark, as a process that is killed between the shard and its mark leaves it."""
    (folder / "current.json").unlink()


def torn_mark(folder: Path) -> None:
    """Leave half of the mark."""
    (folder / "current.json").write_text("{")


def torn_shard(folder: Path) -> None:
    """Lose the engine's configuration and a part of its files."""
    [place] = folder.glob("index-*")
    (place / "edge_config.json").write_text("{")


def torn_rows(folder: Path) -> None:
    """Lose the end of the list of rows."""
    [place] = folder.glob("index-*")
    path = place / "rows.npy"
    path.write_bytes(path.read_bytes()[:-100])


def half_made(folder: Path) -> None:
    """Leave the beginnings of another shard, as a killed process does."""
    (folder / "index-000000000000").mkdir()
    (folder / "index-000000000000" / "edge_config.json").write_text("{")


@pytest.mark.parametrize("harm", [unmarked, torn_mark, torn_shard, torn_rows, half_made])
async def test_damage_does_no_harm(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Whatever is left in the shard's folder, answers are the same, and one whole shard is left.

    If this fails: a crash between the engine's write and the mark loses chunks or leaves files.
    """
    index = await filled(tmp_path)
    before = await answers(index)
    await index.close()
    [folder] = tmp_path.glob("*.edge")
    harm(folder)
    index = await opened(tmp_path)
    assert await answers(index) == before
    await index.settle()
    assert searcher_of(index).covered == COUNT
    assert await answers(index) == before
    assert len(shards(tmp_path)) == 1
    await index.close()


async def test_a_shard_that_fails_is_searched_no_more(tmp_path: Path) -> None:
    """Its engine fails during a query: the answer is the same, and another shard is made.

    If this fails: a damaged index takes the vector DB with it.
    """
    index = await filled(tmp_path)
    before = await answers(index)
    base, _ = searcher_of(index)._parts
    assert base is not None
    base.shard.close()  # an engine that is gone
    assert await answers(index) == before
    await index.settle()
    assert searcher_of(index).covered == COUNT
    assert await answers(index) == before
    await index.close()


async def test_a_shard_of_another_file_is_not_used(tmp_path: Path) -> None:
    """A shard that was put beside another vector DB's file is made again.

    If this fails: hits are rows of another vector DB.
    """
    for name, seed in (("one", 0), ("two", 4)):
        index = await opened(tmp_path / name)
        await index.add_chunks(chunks_of(range(COUNT)), rows_of(COUNT, seed))
        await index.settle()
        before = await answers(index)
        await index.close()
    [theirs], [ours] = (list((tmp_path / name).glob("*.edge")) for name in ("one", "two"))
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    index = await opened(tmp_path / "two")
    assert await answers(index) == before
    await index.close()


async def test_growth_and_deletions_are_taken_into_the_shard(tmp_path: Path) -> None:
    """Newer chunks than the shard has are found at once; many of them make it anew.

    If this fails: all later chunks are compared one by one for ever, or are missed.
    """
    index = await filled(tmp_path)
    await index.add_chunks(chunks_of(range(COUNT, 1200)), rows_of(900, seed=2))
    assert searcher_of(index).covered == COUNT
    [hit] = ids(await index.query(rows_of(900, seed=2)[5], "", 1, mode="vector"))
    assert hit == f"c{COUNT + 5:04}"
    await index.add_chunks(chunks_of(range(1200, 1500)), rows_of(300, seed=3))
    await index.settle()
    assert searcher_of(index).covered == 1500
    await index.delete_chunks([f"c{n:04}" for n in range(600)])
    await answers(index)
    await index.settle()
    assert searcher_of(index).covered == 900
    assert len(shards(tmp_path)) == 1
    await index.close()


async def delete_all(folder: Path) -> None:
    """Delete the chunks by an index of its own."""
    index = await provider_of(folder, exact=True).open_index(registered())
    await index.delete_chunks([f"c{n:04}" for n in range(COUNT)])
    await index.close()


class OvertakenSearch(LocalSearch):
    """All chunks are deleted once a shard is due, before it is made."""

    def make_shard(self, place: Path) -> None:
        """Delete the chunks, as another process would, and make the shard."""
        asyncio.run(delete_all(self.file.parent))
        super().make_shard(place)


class OvertakenProvider(LocalProvider):
    """Opens indexes with such searchers."""

    searcher = OvertakenSearch


async def test_chunks_that_go_while_their_shard_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is empty by the time it is read makes no shard, quietly.

    If this fails: the thread that builds ends with an error, or an empty shard is searched.
    """
    provider = OvertakenProvider("edge", QdrantEdgeConfig(approximate_from=200), tmp_path)
    index = await provider.open_index(registered(), create=True)
    await index.add_chunks(chunks_of(range(COUNT)), rows_of(COUNT))
    await index.settle()
    assert (searcher_of(index).covered, shards(tmp_path)) == (0, [])
    assert "could not be built" not in caplog.text
    await index.close()


async def test_a_deleted_vector_db_leaves_nothing(tmp_path: Path) -> None:
    """Deleted while open or after it was closed, and while its shard is being made.

    If this fails: files of deleted vector DBs fill the disk, or a process outlives its vector DB.
    """
    index = await filled(tmp_path)
    await index.delete()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound):
        await index.count()
    provider = create("edge", QdrantEdgeConfig(folder=tmp_path, approximate_from=200), tmp_path)
    index = await provider.open_index(registered(), create=True)
    await index.add_chunks(chunks_of(range(COUNT)), rows_of(COUNT))
    await index.delete()
    assert list(tmp_path.iterdir()) == []


async def test_a_small_vector_db_has_no_shard(tmp_path: Path) -> None:
    """Fewer chunks than `approximate_from`, or `exact`, make no folder; so do raw inner products.

    If this fails: the folder is littered, or inner products are searched by a graph that misses.
    """
    raw = registered(metric="dot", normalize=False)
    for vector_db, settings in ((registered(), {"exact": True}), (raw, {})):
        provider = provider_of(tmp_path, **settings)
        index = await provider.open_index(vector_db, create=True)
        await index.add_chunks(chunks_of(range(COUNT)), rows_of(COUNT))
        await index.settle()
        await index.close()
    assert list(tmp_path.glob("*.edge")) == []


def test_a_setting_that_lost_its_meaning_is_refused() -> None:
    """Each write is durable now, so `flush_each_write` is unknown.

    If this fails: an operator's setting is ignored without a word.
    """
    with pytest.raises(ValidationError, match="flush_each_write"):
        QdrantEdgeConfig.model_validate({"flush_each_write": True})


def test_a_panic_of_the_engine_is_a_failed_index() -> None:
    """A panic is no `Exception` in Python and would pass every handler up to the server."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(IndexFailed) as caught, errors():
        raise panic("index out of bounds: secret")
    assert "secret" not in str(caught.value)
