"""What processes leave in a collection beside its chunks does not grow with their number."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.keyword.journal import MOST_MARKERS, read_head
from corral.providers.vector_io.chroma.provider import ChromaServerProvider
from corral.providers.vector_io.chroma.provider import create_remote as create

from ..engines import engine_of
from ..registrations import registration
from .conftest import Server

PROCESSES = MOST_MARKERS + 4
Make = Callable[[Path], ChromaServerProvider]


@pytest.fixture
def provider(chroma_server: Server) -> Make:
    """Return what makes a provider as another process would, with a mirror of its own."""
    url = chroma_server.url
    return lambda mirrors: create("pet", RemoteChromaConfig(url=url, folder=mirrors), mirrors)


def registered() -> VectorDB:
    """Return a registration of its own."""
    return registration("pet", language="simple", created_at=time.time())


def left(index: EngineIndex) -> int:
    """Return how many rows of bookkeeping lie in the collection."""
    return len(read_head(engine_of(index)._collection).markers)


async def write(index: EngineIndex, number: int) -> None:
    """Write a chunk that was there and one that was not."""
    chunks = [Chunk(chunk_id=i, content=f"zebra n{number}") for i in ("same", f"c{number}")]
    await index.add_chunks(chunks, [[1, 0]] * 2)


async def seen(index: EngineIndex, text: str) -> set[str]:
    """Return what a keyword search finds."""
    found = await index.query(None, text, k=99, mode="keyword")
    return {chunk.chunk_id for chunk in found.chunks}


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_bookkeeping_does_not_grow_with_processes(
    provider: Make, tmp_path: Path, how: str
) -> None:
    """Twenty processes open a vector DB and write, one after the other; one that has looked before
    finds what each has written. Closed, they leave one row beside the chunks; killed, the next
    process that opens the vector DB makes one row of theirs.

    If this fails: every search reads a row more for every command that was ever run.
    """

    vector_db = registered()
    watcher = await provider(tmp_path / "watcher").open_index(vector_db, create=True)
    killed: list[Any] = []
    for number in range(PROCESSES):
        index = await provider(tmp_path / "writers").open_index(vector_db)
        await write(index, number)
        if how == "closed":
            await index.close()
            assert left(watcher) == 1
        else:
            killed.append(index)
            assert left(watcher) <= MOST_MARKERS + 1
        if number % 7 == 0:
            assert await seen(watcher, f"n{number}") == {"same", f"c{number}"}
    last = PROCESSES - 1
    assert await seen(watcher, f"n{last}") == {"same", f"c{last}"}
    assert await watcher.count() == PROCESSES + 1
    await watcher.delete()
    for index in killed:
        await index.close()
