"""inline::lancedb beyond the suite: its table is an index over the chunk file, and no more."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lancedb
import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.testing.indexes import chunk, ids
from corral.providers.vector_io.lancedb.config import LanceDBConfig
from corral.providers.vector_io.lancedb.provider import create
from corral.providers.vector_io.lancedb.search import LanceDBSearch
from corral.providers.vector_io.lancedb.table import TABLE, TAG

from ..engines import engine_of
from ..registrations import registration

DIMENSION = 8
COUNT = 300
DB = registration("lancedb", embedding_dimension=DIMENSION, language="simple", created_at=1.0)


async def opened(folder: Path, approximate_from: int = 200) -> EngineIndex:
    """Open the vector DB, made if it is absent."""
    config = LanceDBConfig(folder=folder, approximate_from=approximate_from)
    return await create("lancedb", config, folder).open_index(DB, create=True)


def embeddings(count: int, seed: int = 0) -> NDArray[np.float64]:
    """Return random embeddings."""
    return np.random.default_rng(seed).normal(size=(count, DIMENSION))


def numbered(numbers: range) -> list[Chunk]:
    """Return chunks by their numbers."""
    return [chunk(f"c{n:04}", f"word{n % 7} zebra", part=n % 30) for n in numbers]


async def filled(folder: Path) -> EngineIndex:
    """Open a vector DB of 300 chunks, all of them in the table."""
    index = await opened(folder)
    await index.add_chunks(numbered(range(COUNT)), embeddings(COUNT))
    await index.settle()
    assert covered(index) == COUNT
    return index


def covered(index: EngineIndex) -> int:
    """Return the number of chunks in the table that an index searches."""
    searcher = engine_of(index).searcher
    assert isinstance(searcher, LanceDBSearch)
    return searcher.covered


async def answers(index: EngineIndex) -> list[list[tuple[str, float]]]:
    """Return the hits of vector queries with and without a filter, with scores."""
    filters = [
        None,
        {"type": "eq", "key": "part", "value": 3},
        {"type": "lt", "key": "part", "value": 20},
    ]
    responses = [
        await index.query(query, "", 10, mode="vector", filters=passing)
        for query in embeddings(5, seed=1)
        for passing in filters
    ]
    return [[(hit.chunk.chunk_id, hit.score) for hit in each.hits] for each in responses]


def tables(folder: Path) -> list[Path]:
    """Return the folders of tables."""
    return list(folder.glob("*.lancedb/index-*"))


async def test_deleting_the_table_changes_no_answer(tmp_path: Path) -> None:
    """With a table, after a restart, and without its files: the same hits and scores.

    If this fails: something is in the table that the chunk file does not have.
    """
    index = await filled(tmp_path)
    await index.delete_chunks(["c0007", "c0033"])
    await index.add_chunks(numbered(range(COUNT, COUNT + 20)), embeddings(20, seed=2))
    before = await answers(index)
    await index.close()
    index = await opened(tmp_path)
    assert covered(index) == COUNT
    assert await answers(index) == before
    await index.close()
    for folder in tmp_path.glob("*.lancedb"):
        shutil.rmtree(folder)
    exact = await opened(tmp_path, approximate_from=10_000)
    assert await answers(exact) == before
    assert tables(tmp_path) == []
    await exact.close()


async def test_a_person_who_opens_the_table_finds_the_chunks(tmp_path: Path) -> None:
    """LanceDB alone reads the chunks: row, id, text, metadata and embedding.

    If this fails: the folder is of no use to LanceDB's own tools.
    """
    index = await filled(tmp_path)
    await index.close()
    [place] = tables(tmp_path)
    table = lancedb.connect(str(place)).open_table(TABLE)
    [row] = table.search().where("chunk_id = 'c0003'").to_list()
    assert (row["row"], row["content"], row["metadata"]) == (4, "word3 zebra", '{"part": 3}')
    expected = embeddings(COUNT)[3] / np.linalg.norm(embeddings(COUNT)[3])
    assert np.allclose(row["embedding"], expected, atol=1e-6)


async def test_equal_embeddings_are_all_in_reach(tmp_path: Path) -> None:
    """Of 1,500 equal embeddings a search for 1,000 has the first 1,000 ids.

    If this fails: the cut at k hides some of those that tie.
    """
    index = await opened(tmp_path)
    names = [f"c{n:04}" for n in np.random.default_rng(3).permutation(1500)]
    await index.add_chunks([chunk(name) for name in names], np.ones((1500, DIMENSION)))
    await index.settle()
    assert covered(index) == 1500
    response = await index.query(np.ones(DIMENSION), "", 1000, mode="vector")
    assert ids(response) == sorted(names)[:1000]
    await index.close()


async def test_growth_adds_a_version_and_deletions_make_a_table(tmp_path: Path) -> None:
    """Many new chunks become a version of the same table; when a third is deleted, another is made.

    If this fails: later chunks are compared one by one for ever, or every build writes everything.
    """
    index = await filled(tmp_path)
    before = tables(tmp_path)
    await index.add_chunks(numbered(range(COUNT, 1500)), embeddings(1200, seed=2))
    await index.settle()
    assert covered(index) == 1500
    assert tables(tmp_path) == before
    hits = await index.query(embeddings(1200, seed=2)[5], "", 1, mode="vector")
    assert ids(hits) == [f"c{COUNT + 5:04}"]
    await index.delete_chunks([f"c{n:04}" for n in range(600)])
    await answers(index)
    await index.settle()
    assert covered(index) == 900
    assert len(tables(tmp_path)) == 1
    assert tables(tmp_path) != before
    await index.close()


async def test_two_processes_search_one_table(tmp_path: Path) -> None:
    """A second process searches the table that the first has open, and its writes are found.

    If this fails: only one process is fast, or a build in one breaks searches in the other.
    """
    index = await filled(tmp_path)
    code = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from tests.providers.vector_io.lancedb import test_lancedb as t\n"
        "async def main():\n"
        "    index = await t.opened(Path(sys.argv[1]))\n"
        "    print(json.dumps([t.covered(index), await t.answers(index)]))\n"
        "    more = t.numbered(range(t.COUNT, 1500))\n"
        "    await index.add_chunks(more, t.embeddings(1200, seed=2))\n"
        "    await index.settle()\n"
        "    await index.close()\n"
        "asyncio.run(main())\n"
    )
    before = await answers(index)
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(second.stdout) == json.loads(json.dumps([COUNT, before]))
    [place] = tables(tmp_path)
    table = lancedb.connect(str(place)).open_table(TABLE)
    table.checkout(TAG)
    assert table.count_rows() == 1500
    after = await answers(index)
    assert after != before
    await index.settle()
    assert await answers(index) == after
    assert covered(index) == 1500
    await index.close()


def unmarked(folder: Path) -> None:
    """Lose the mark, as a process that is killed between the table and its mark leaves it."""
    (folder / "current.json").unlink()


def torn_mark(folder: Path) -> None:
    """Leave half of the mark."""
    (folder / "current.json").write_text("{")


def torn_table(folder: Path) -> None:
    """Lose the ends of the data files."""
    for path in folder.glob("index-*/*.lance/data/*"):
        path.write_bytes(path.read_bytes()[:-100])


def no_index(folder: Path) -> None:
    """Lose the index's files: opening the table succeeds, and the first search fails."""
    for path in folder.glob("index-*/*.lance/_indices"):
        shutil.rmtree(path)


def half_made(folder: Path) -> None:
    """Leave the beginnings of another table, as a killed process does."""
    (folder / "index-000000000000").mkdir()


def half_extended(folder: Path) -> None:
    """Leave rows after the tagged version, as a killed process does."""
    [place] = folder.glob("index-*")
    table = lancedb.connect(str(place)).open_table(TABLE)
    table.add(table.search().limit(20).to_arrow())


@pytest.mark.parametrize(
    "harm", [unmarked, torn_mark, torn_table, no_index, half_made, half_extended]
)
async def test_damage_does_no_harm(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Whatever is left in the folder, answers are the same, and one whole table results.

    If this fails: a crash during a build loses chunks, finds some twice, or leaves files.
    """
    index = await filled(tmp_path)
    await index.close()
    [folder] = tmp_path.glob("*.lancedb")
    harm(folder)
    index = await opened(tmp_path)
    exact = await opened(tmp_path / "exact", approximate_from=10_000)
    await exact.add_chunks(numbered(range(COUNT)), embeddings(COUNT))
    assert await answers(index) == await answers(exact)
    await index.settle()
    for each in (index, exact):
        await each.add_chunks(numbered(range(COUNT, 1500)), embeddings(1200, seed=2))
        await each.settle()
    assert covered(exact) == 0
    assert covered(index) == 1500
    assert await answers(index) == await answers(exact)
    assert len(tables(tmp_path)) == 1
    await index.close()
    await exact.close()


async def test_a_deleted_vector_db_leaves_nothing(tmp_path: Path) -> None:
    """Deleting a vector DB deletes its table too.

    If this fails: files of deleted vector DBs fill the disk.
    """
    index = await filled(tmp_path)
    await index.delete()
    assert list(tmp_path.iterdir()) == []
