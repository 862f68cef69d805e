"""inline::chroma after a kill that fell into the writing of a graph (RFC 0012)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import ProviderError
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.embedded.files import (
    BLOCKS,
    FILES,
    HEADER,
    ID_MAP,
    LENGTHS,
    LINKS,
)
from corral.providers.vector_io.chroma.embedded.graph import NOTE
from corral.providers.vector_io.chroma.provider import create

from ..registrations import registration

DIMENSION = 8
QUESTIONS = np.random.default_rng(1).normal(size=(20, DIMENSION))
PERSISTED = "SELECT segment_id, seq_id FROM max_seq_id"

Seen = tuple[dict[str, tuple[str, list[float]]], list[list[str]]]
Damage = Callable[["Folders", Path], None]


def registered(metric: str = "cosine") -> VectorDB:
    """Return a registration; of another metric its embeddings keep their lengths."""
    return registration(
        "pet", embedding_dimension=DIMENSION, metric=metric, normalize=metric == "cosine"
    )


async def opened(folder: Path, vector_db: VectorDB, *, create_it: bool = False) -> EngineIndex:
    """Return the index, which asks for as many candidates as there are: what it finds is exact."""
    config = ChromaConfig(folder=folder, ef_search=3000, max_neighbors=24)
    return await create("pet", config, folder).open_index(vector_db, create=create_it)


async def put(index: EngineIndex, first: int, last: int, text: str) -> None:
    """Write chunks, 250 at once; the text is part of what their embeddings are made of."""
    for start in range(first, last, 250):
        numbers = range(start, start + 250)
        chunks = [Chunk(chunk_id=f"c{n:04}", content=f"{text} {n}") for n in numbers]
        rng = np.random.default_rng([start, len(text)])
        await index.add_chunks(chunks, rng.normal(size=(250, DIMENSION)) * 2)


async def seen(index: EngineIndex) -> Seen:
    """Return all chunks with their embeddings, and the answers to questions."""
    found = await index.get_chunks(await index.chunk_ids(limit=10_000), include_embeddings=True)
    chunks = {one.chunk_id: (one.content, one.embedding or []) for one in found}
    answers = [await index.query(question, k=10, mode="vector") for question in QUESTIONS]
    return chunks, [[one.chunk_id for one in answer.chunks] for answer in answers]


def nearest(chunks: dict[str, tuple[str, list[float]]], metric: str) -> list[list[str]]:
    """Return the true answers to the questions."""
    ids = np.array(sorted(chunks))
    rows = np.array([chunks[row_id][1] for row_id in ids], dtype=float)
    answers: list[list[str]] = []
    for question in QUESTIONS:
        near: NDArray[np.float64] = -(rows @ question)
        if metric == "l2":
            near = ((rows - question) ** 2).sum(axis=1)
        answers.append([str(row_id) for row_id in ids[np.argsort(near)[:10]]])
    return answers


@dataclass
class Folders:
    """A folder that nothing has happened to, its graph as it was persisted before, and its chunks.

    Attributes:
        whole: The folder.
        earlier: The files of the graph at an earlier time.
        persisted: What Chroma had then in its table of persisted writes.
        chunks: What was stored last.
    """

    vector_db: VectorDB
    whole: Path
    earlier: Path
    persisted: list[tuple[str, int]]
    chunks: dict[str, tuple[str, list[float]]]


@pytest.fixture(scope="module")
async def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return the folders of a registration as most are."""
    return await filled(tmp_path_factory.mktemp("cosine"), registered())


async def filled(parent: Path, vector_db: VectorDB) -> Folders:
    """Return 1,400 chunks after 1,750 writes and 100 deletions, the last persisted with the graph.

    Both folders are as a kill leaves them, and the graph's earlier one has two thirds of it.
    """
    folder, whole, earlier = parent / "open", parent / "whole", parent / "earlier"
    index = await opened(folder, vector_db, create_it=True)
    await put(index, 0, 1250, "first")
    shutil.copytree(graph_in(folder), earlier)
    with closing(apsw.Connection(str(folder / "chroma.sqlite3"))) as connection:
        persisted = [(str(s), int(str(n))) for s, n in connection.execute(PERSISTED)]
    await index.delete_chunks([f"c{n:04}" for n in range(0, 1000, 10)])
    await put(index, 250, 500, "third")
    await put(index, 1000, 1500, "second")
    chunks, answers = await seen(index)
    shutil.copytree(folder, whole)
    await index.close()
    assert answers == nearest(chunks, vector_db.metric.value)
    assert (graph_in(whole) / ID_MAP).read_bytes() != (earlier / ID_MAP).read_bytes()
    return Folders(vector_db, whole, earlier, persisted, chunks)


def graph_in(folder: Path) -> Path:
    """Return the folder of the only graph."""
    (found,) = [path for path in folder.iterdir() if path.name.count("-") == 4]
    return found


def copied(folders: Folders, target: Path) -> Path:
    """Return a copy of the whole folder that passes for the folder itself."""
    shutil.copytree(folders.whole, target)
    return target


def cut(name: str) -> Damage:
    """Return what leaves half of a file."""

    def damage(_: Folders, graph: Path) -> None:
        content = (graph / name).read_bytes()
        (graph / name).write_bytes(content[: len(content) // 2])

    return damage


def garbage(name: str) -> Damage:
    """Return what leaves nothing of a file but its length."""

    def damage(_: Folders, graph: Path) -> None:
        size = (graph / name).stat().st_size
        (graph / name).write_bytes(np.random.default_rng(2).bytes(size))

    return damage


def killed(*written: str, half: str = "") -> Damage:
    """Return what a kill leaves when these files are written, one by half, and the rest is not."""

    def damage(folders: Folders, graph: Path) -> None:
        new = {name: (graph / name).read_bytes() for name in FILES}
        for name in set(FILES) - set(written):
            old = (folders.earlier / name).read_bytes()
            part = new[name][: len(new[name]) // 2] if name == half else b""
            kept = b"" if name == ID_MAP and part else old[len(part) :]  # it is written anew
            (graph / name).write_bytes(part + kept)
        shutil.copy2(folders.earlier / NOTE, graph)
        with closing(apsw.Connection(str(graph.parent / "chroma.sqlite3"))) as connection:
            update = "UPDATE max_seq_id SET seq_id = ? WHERE segment_id = ?"
            then = [(n, segment) for segment, n in folders.persisted if segment == graph.name]
            connection.executemany(update, then)

    return damage


def gone(_: Folders, graph: Path) -> None:
    """Leave no file, as a kill while the graph is restored does."""
    shutil.rmtree(graph)


IN_BLOCKS = killed(HEADER, half=BLOCKS)
IN_MAP = killed(HEADER, BLOCKS, LENGTHS, LINKS, half=ID_MAP)

DAMAGES = {
    "header is garbage": garbage(HEADER),
    "blocks are garbage": garbage(BLOCKS),
    "links are cut": cut(LINKS),
    "killed in the blocks": IN_BLOCKS,
    "killed before the links": killed(HEADER, BLOCKS, LENGTHS),
    "killed in the map": IN_MAP,
    "gone": gone,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_torn_graph_is_restored(folders: Folders, tmp_path: Path, damage: Damage) -> None:
    """Every chunk, each embedding to the last bit, and all true answers are there at the next open.

    If this fails: a kill makes a vector DB unusable, or loses embeddings without a word.
    """
    folder = copied(folders, tmp_path / "copy")
    damage(folders, graph_in(folder))
    await expect_all(folder, folders, exact=True)
    await expect_all(folder, folders, exact=True)  # and stays


async def expect_all(folder: Path, folders: Folders, *, exact: bool) -> None:
    """Check that everything is there."""
    index = await opened(folder, folders.vector_db)
    chunks, answers = await seen(index)
    await index.close()
    assert answers == nearest(folders.chunks, folders.vector_db.metric.value)
    if exact:
        assert chunks == folders.chunks
        return
    assert {i: text for i, (text, _) in chunks.items()} == {
        i: text for i, (text, _) in folders.chunks.items()
    }
    for row_id, (_, embedding) in chunks.items():
        assert embedding == pytest.approx(folders.chunks[row_id][1], abs=1e-6), row_id


# --- folders of a Corral that let Chroma purge its log -------------------------------------------


def purged(folder: Path) -> Path:
    """Make a folder one of an older Corral, whose log has what the graph's files lack alone."""
    graph = graph_in(folder)
    (graph / NOTE).unlink()
    with closing(apsw.Connection(str(folder / "chroma.sqlite3"))) as connection:
        connection.execute("DELETE FROM embeddings_queue_config")
        connection.execute(
            "DELETE FROM embeddings_queue WHERE seq_id < "
            "(SELECT seq_id FROM max_seq_id WHERE segment_id = ?)",
            (graph.name,),
        )
    return graph


@pytest.mark.parametrize("metric", ["cosine", "l2"])
async def test_an_older_torn_folder_is_restored(
    folders: Folders, tmp_path: Path, metric: str
) -> None:
    """What the log lacks comes from the torn files, where no kill has changed it.

    If this fails: who upgrades after a kill has lost his embeddings, or gets those of other chunks.
    """
    if metric != "cosine":  # whose embeddings keep their lengths
        folders = await filled(tmp_path, registered(metric))
    for name, damage in {"blocks": IN_BLOCKS, "map": IN_MAP}.items():
        folder = copied(folders, tmp_path / name)
        damage(folders, graph_in(folder))
        purged(folder)
        await expect_all(folder, folders, exact=False)


async def test_an_older_folder_is_taken_over(folders: Folders, tmp_path: Path) -> None:
    """A whole one too gets a log that is complete: torn later, it is restored.

    If this fails: the log of an older folder is taken for complete, and its chunks are lost then.
    """
    folder = copied(folders, tmp_path / "copy")
    purged(folder)
    await expect_all(folder, folders, exact=False)
    garbage(BLOCKS)(folders, graph_in(folder))
    await expect_all(folder, folders, exact=False)


async def test_what_is_lost_is_said_and_can_be_deleted(folders: Folders, tmp_path: Path) -> None:
    """Of an older folder with half of the blocks every search is refused, and nothing is changed.

    If this fails: searches pass over chunks without a word, or nobody gets rid of the vector DB.
    """
    folder = copied(folders, tmp_path / "copy")
    graph = purged(folder)
    cut(BLOCKS)(folders, graph)
    size = (graph / BLOCKS).stat().st_size
    index = await opened(folder, folders.vector_db)
    with pytest.raises(ProviderError, match=r"pet: the embeddings of \d+ chunks") as raised:
        await index.query(QUESTIONS[0], k=10, mode="vector")
    assert "delete the vector DB" in raised.value.hint
    assert (graph / BLOCKS).stat().st_size == size
    await index.delete()
    assert not graph.exists()


# --- what it costs -------------------------------------------------------------------------------


async def test_a_whole_graph_is_left_alone(
    folders: Folders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that was closed, or killed between two writes, or copied, opens as it is.

    If this fails: every start builds every graph anew, which takes minutes for 100,000 chunks.
    """
    folder = copied(folders, tmp_path / "copy")
    before = (graph_in(folder) / LINKS).stat().st_mtime_ns
    with caplog.at_level(logging.WARNING):
        await expect_all(folder, folders, exact=True)
    assert (graph_in(folder) / LINKS).stat().st_mtime_ns == before
    assert "restoring" not in caplog.text


async def test_a_failure_while_it_runs_is_mended_by_the_next_opening(
    folders: Folders, tmp_path: Path
) -> None:
    """If Chroma fails to use files that pass for whole, they are trusted no longer.

    If this fails: a graph that something else than a kill has spoiled fails for ever.
    """
    folder = copied(folders, tmp_path / "copy")
    id_map = graph_in(folder) / ID_MAP
    then = id_map.stat()
    garbage(ID_MAP)(folders, graph_in(folder))
    os.utime(id_map, ns=(then.st_atime_ns, then.st_mtime_ns))
    with pytest.raises(ProviderError, match="cannot use its graph") as raised:
        await opened(folder, folders.vector_db)
    assert "Restart" in raised.value.hint
    await expect_all(folder, folders, exact=True)


async def test_the_log_holds_little_more_than_the_chunks(tmp_path: Path) -> None:
    """Replaced and deleted chunks leave it when the folder is opened, where they are half of it.

    If this fails: the file grows with each write, and keeps the texts of deleted chunks for good.
    """
    index = await opened(tmp_path, registered(), create_it=True)
    for round_ in range(5):
        await put(index, 0, 250, "x" * (round_ + 1))
    await index.close()
    await (await opened(tmp_path, registered())).close()
    with closing(apsw.Connection(str(tmp_path / "chroma.sqlite3"))) as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM embeddings_queue")
    assert 250 <= int(str(rows)) <= 600


async def test_nothing_but_chroma_writes_its_file_meanwhile(tmp_path: Path) -> None:
    """Writers of two vector DBs and a third that is opened beside them leave the file whole.

    If this fails: two SQLite libraries of one process write one file, which locks do not prevent;
    each takes the other's journal for that of a dead process, and the file is destroyed.
    """
    stores = [
        registered().model_copy(update={"identifier": name, "provider_resource_id": name})
        for name in ("one", "two", "three")
    ]
    indexes = [await opened(tmp_path, store, create_it=True) for store in stores[:2]]

    async def write(number: int) -> None:
        for round_ in range(8):
            await put(indexes[number], 0, 250, "x" * (round_ + 1))

    async def reopen() -> None:
        for _ in range(10):
            await (await opened(tmp_path, stores[2], create_it=True)).close()

    await asyncio.gather(write(0), write(1), reopen())
    for index in indexes:
        assert await index.count() == 250
        await index.close()
    with closing(apsw.Connection(str(tmp_path / "chroma.sqlite3"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
