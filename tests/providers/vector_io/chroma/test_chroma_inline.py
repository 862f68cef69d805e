"""inline::chroma: Chroma's folder beside the chunk file, which can be deleted at any time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.provider import ChromaProvider, create
from corral.providers.vector_io.chroma.search import ChromaSearch
from corral.providers.vector_io.store.engine import ChunkFileEngine

from .. import recall
from ..engines import engine_of
from ..registrations import registration

ROWS = 600
VECTOR_DB = registration("pet", embedding_dimension=8)


def provider_in(folder: Path) -> ChromaProvider:
    """Return a provider that builds Chroma's folder from the first chunk on.

    Its graph links every chunk with so many others, and walks so far, that none is out of reach.
    Chroma's threads make another graph each time, and with the default settings some miss a hit.
    """
    config = ChromaConfig(
        folder=folder, approximate_from=1, max_neighbors=256, ef_construction=ROWS, ef_search=ROWS
    )
    return create("pet", config, folder)


def embeddings(seed: int = 0) -> np.ndarray[Any, Any]:
    """Return embeddings, a third of them equal."""
    rows = np.random.default_rng(seed).normal(size=(ROWS, 8))
    rows[::3] = rows[0]
    return rows


def chunks(first: int = 0) -> list[Chunk]:
    """Return chunks with metadata of every kind."""
    return [
        Chunk(
            chunk_id=f"c{number:04}",
            content=f"zebra {number}",
            metadata={"number": number, "tags": ["a", "b"], "even": number % 2 == 0},
        )
        for number in range(first, first + ROWS)
    ]


async def opened(folder: Path, *, create: bool = False) -> EngineIndex:
    """Return the index, with Chroma's folder up to date."""
    index = await provider_in(folder).open_index(VECTOR_DB, create=create)
    await engine_of(index).settle()
    return index


async def filled(folder: Path) -> EngineIndex:
    """Return an index with `ROWS` chunks, which Chroma's folder covers."""
    index = await opened(folder, create=True)
    await index.add_chunks(chunks(), embeddings())
    await engine_of(index).settle()
    assert covered(index) == ROWS
    return index


def covered(index: EngineIndex) -> int:
    """Return the row up to which Chroma searches."""
    engine = engine_of(index)
    assert isinstance(engine, ChunkFileEngine)
    assert isinstance(engine.searcher, ChromaSearch)
    return engine.searcher.covered


def chroma_folder(folder: Path) -> Path:
    """Return the folder of Chroma's files."""
    return next(folder.glob("*.chroma/index-*"))


def mark_file(folder: Path) -> Path:
    """Return the file that says which folder is in use."""
    return next(folder.glob("*.chroma/current.json"))


async def answers(index: EngineIndex) -> list[Sequence[tuple[str, float]]]:
    """Return the answers to questions of every kind: exact ties, filters, few and many hits."""
    query = embeddings()
    some: dict[str, Any] = {"type": "eq", "key": "even", "value": True}
    responses = [
        await index.query(query[row], "zebra 5", k=k, mode=mode, filters=filters)
        for row in (0, 1)
        for k in (1, 20)
        for mode in ("vector", "hybrid")
        for filters in (None, some)
    ]
    return [
        [
            (chunk.chunk_id, score)
            for chunk, score in zip(response.chunks, response.scores, strict=True)
        ]
        for response in responses
    ]


async def test_deleting_the_folder_changes_no_answer(tmp_path: Path) -> None:
    """Without Chroma's files, and once they are built again, the answers are the same.

    If this fails: something is stored in the folder only, or ties depend on Chroma's order.
    """
    index = await filled(tmp_path)
    before = await answers(index)
    await index.close()
    shutil.rmtree(chroma_folder(tmp_path))
    again = await provider_in(tmp_path).open_index(VECTOR_DB)
    assert await answers(again) == before
    await engine_of(again).settle()
    assert covered(again) == ROWS
    assert await answers(again) == before
    await again.close()


async def test_a_person_finds_the_chunks_with_chromadb(tmp_path: Path) -> None:
    """chromadb alone opens the folder: ids, texts, metadata and embeddings are there.

    If this fails: what Corral leaves in the folder is of use to no other program.
    """
    index = await filled(tmp_path)
    await index.close()
    client: Any = chromadb.PersistentClient(str(chroma_folder(tmp_path)))
    (collection,) = client.list_collections()
    assert collection.count() == ROWS
    stored = collection.get(ids=["c0007"], include=["documents", "metadatas", "embeddings"])
    assert stored["documents"] == ["zebra 7"]
    metadata = stored["metadatas"][0]
    assert (metadata["number"], metadata["even"]) == (7, False)
    assert json.loads(metadata["tags"]) == ["a", "b"]
    row = embeddings()[7]
    np.testing.assert_allclose(stored["embeddings"][0], row / np.linalg.norm(row), rtol=1e-5)
    client.close()


@pytest.mark.parametrize("damage", ["killed", "graph", "database", "mark", "rows", "other file"])
async def test_a_folder_in_doubt_is_built_again(tmp_path: Path, damage: str) -> None:
    """After a kill in the middle of a write, or with damaged files, the answers are the same.

    If this fails: half an index is searched, and chunks are missing from answers.
    """
    index = await filled(tmp_path)
    before = await answers(index)
    await index.close()
    folder, mark = chroma_folder(tmp_path), mark_file(tmp_path)
    rows = folder / "rows.npy"
    if damage == "killed":  # between the engine's write and the mark
        mark.unlink()
    elif damage == "graph":
        for path in folder.glob("*/*"):
            path.write_bytes(b"torn")
    elif damage == "database":
        (folder / "chroma.sqlite3").write_bytes(b"torn" * 5000)
    elif damage == "mark":
        mark.write_text("{")
    elif damage == "rows":
        rows.write_bytes(rows.read_bytes()[:-100])
    else:
        covered_rows, norms = np.load(rows)
        np.save(rows, np.stack([covered_rows, (norms.view(np.float64) + 1).view(np.int64)]))
    again = await opened(tmp_path)
    assert await answers(again) == before
    assert await answers(again) == before
    await again.close()


async def test_new_and_replaced_and_deleted_chunks_are_seen(tmp_path: Path) -> None:
    """Chunks that Chroma's folder does not cover yet, or holds in an older state, are answered as
    the chunk file has them.

    If this fails: a query returns the embedding of a chunk that was replaced or deleted.
    """
    index = await filled(tmp_path)
    query = np.full(8, 5.0)
    new = Chunk(chunk_id="c0001", content="lion")
    await index.add_chunks([new], [query])
    response = await index.query(query, k=1, mode="vector")
    assert [chunk.content for chunk in response.chunks] == ["lion"]
    await index.delete_chunks(["c0001"])
    response = await index.query(query, k=ROWS, mode="vector")
    assert "c0001" not in {chunk.chunk_id for chunk in response.chunks}
    assert len(response.hits) == ROWS - 1
    near = embeddings()[5]
    nearest = [chunk.chunk_id for chunk in (await index.query(near, k=10, mode="vector")).chunks]
    replaced = [Chunk(chunk_id=chunk_id, content="lion") for chunk_id in nearest]
    await index.add_chunks(replaced, [-near] * len(replaced))
    response = await index.query(near, k=20, mode="vector")
    ids = {chunk.chunk_id for chunk in response.chunks}
    assert len(ids) == 20
    assert not ids & {*nearest}
    await index.close()


IN_ANOTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
import numpy as np
from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.provider import create

async def main():
    folder = Path(sys.argv[1])
    provider = create("pet", ChromaConfig(folder=folder, approximate_from=1), folder)
    index = await provider.open_index(VectorDB.model_validate_json(sys.argv[2]))
    await index.add_chunks([Chunk(chunk_id="theirs", content="lion")], [[5.0] * 8])
    response = await index.query([1.0] * 8, k=700, mode="vector")
    print(len(response.hits))
    await index.close()

asyncio.run(main())
"""


async def test_a_second_process_reads_and_writes(tmp_path: Path) -> None:
    """While this process owns Chroma's folder, another one finds and stores chunks.

    If this fails: the second process is refused, or one of them misses the other's chunks.
    """
    index = await filled(tmp_path)
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, VECTOR_DB.model_dump_json()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str(ROWS + 1)
    response = await index.query([5.0] * 8, k=1, mode="vector")
    assert [chunk.chunk_id for chunk in response.chunks] == ["theirs"]
    await index.close()


async def test_a_dropped_index_leaves_no_file(tmp_path: Path) -> None:
    """Chunk file, Chroma's folder, mark and lock are deleted with the vector DB.

    If this fails: the texts of deleted vector DBs stay on the disk.
    """
    index = await filled(tmp_path)
    await index.delete()
    assert list(tmp_path.iterdir()) == []


async def test_recall(tmp_path: Path) -> None:
    """recall_vs_exact@10 >= 0.95 with the defaults, under every filter."""
    provider = create("pet", ChromaConfig(folder=tmp_path), tmp_path)
    index = await provider.open_index(recall.registered("chroma"), create=True)
    await recall.fill(index)
    await engine_of(index).settle()
    assert covered(index) > 0
    found = await recall.recalls(index)
    assert min(found.values()) >= recall.ENOUGH, found
    await index.close()
