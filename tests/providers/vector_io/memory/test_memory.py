"""inline::memory beyond the conformance suite: how long it lives."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.index import MemoryIndex
from corral.providers.vector_io.memory.keyword import KeywordIndex
from corral.providers.vector_io.memory.provider import MemoryProvider, create


def vector_db(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB.model_validate(
        {
            "identifier": identifier,
            "provider_id": "memory",
            "provider_resource_id": identifier,
            "embedding_model": "test",
            "embedding_dimension": 2,
            "language": "simple",
            **settings,
        }
    )


def provider() -> MemoryProvider:
    """Return a provider."""
    return create("memory", MemoryConfig(), Path())


async def filled(texts: dict[str, str]) -> EmbeddingIndex:
    """Return an index with a chunk for each id and text."""

    index = await provider().open_index(vector_db(), create=True)
    chunks = [Chunk(chunk_id=i, content=t, metadata={"id": i}) for i, t in texts.items()]
    await index.add_chunks(chunks, [[1, 0]] * len(chunks))
    return index


async def test_a_search_in_a_thread_holds_up_nobody_else() -> None:
    """What counts, lists and deletes waits for a search in a thread, not on the event loop.

    If this fails: the whole server stands still until the search has ended.
    """
    index = await filled({"a": "hay"})
    assert isinstance(index, MemoryIndex)
    seen, lock = index.seen_by(Principal("", user="somebody")), index._lock
    searching, done = threading.Event(), threading.Event()

    def search() -> None:
        with lock:
            searching.set()
            done.wait(60)

    thread = threading.Thread(target=search)
    thread.start()
    await asyncio.to_thread(searching.wait)
    asked = [
        asyncio.ensure_future(one)
        for one in (seen.count(), index.document_chunk_ids("d"), index.delete())
    ]
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in asked)
    done.set()
    await asyncio.wait_for(asyncio.gather(*asked), 60)
    thread.join()


# --- how long it lives ------------------------------------------------------------------------


async def test_an_index_lives_as_long_as_its_provider() -> None:
    """Opened again, it is the same; a new provider says that it is gone, and makes no empty one."""

    holder = provider()
    index = await holder.open_index(vector_db(), create=True)
    await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
    await index.close()
    assert await (await holder.open_index(vector_db())).count() == 1
    assert await (await holder.open_index(vector_db(), create=True)).count() == 1
    for restarted in (provider(), holder):
        await holder.close()
        with pytest.raises(NotFound, match=r"'db' was in memory and is gone.*register it again"):
            await restarted.open_index(vector_db())


async def test_a_dropped_index_is_gone_and_its_id_is_free() -> None:
    """After delete() it cannot be opened; registered anew, under any time, it is empty."""

    holder = provider()
    old = await holder.open_index(vector_db(created_at=1.0), create=True)
    new = await holder.open_index(vector_db(created_at=2.0), create=True)
    await old.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
    assert await new.count() == 0
    await old.delete()
    with pytest.raises(NotFound):
        await holder.open_index(vector_db(created_at=1.0))
    assert await holder.open_index(vector_db(created_at=2.0)) is new


async def test_a_write_that_fails_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the analysis of the second chunk leaves the index as it was."""
    index = await filled({"a": "zebra"})
    analyze = KeywordIndex.analyze

    def explode(self: KeywordIndex, chunk: Chunk) -> Any:
        if chunk.chunk_id == "c":
            raise RuntimeError("in the middle")
        return analyze(self, chunk)

    monkeypatch.setattr(KeywordIndex, "analyze", explode)
    chunks = [Chunk(chunk_id=i, content="zebra") for i in "abc"]
    with pytest.raises(RuntimeError, match="in the middle"):
        await index.add_chunks(chunks, [[0, 1]] * 3)
    assert await index.count() == 1
    found = await index.query(None, "zebra", mode="keyword")
    assert [chunk.chunk_id for chunk in found.chunks] == ["a"]


async def test_it_is_always_healthy() -> None:
    """There is nothing that could be down."""
    assert (await provider().health()).status == "OK"


async def test_a_replace_that_finds_no_memory_leaves_the_old_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The matrix cannot grow for the new version: nothing of the old one is gone, and it is found.

    If this fails: chunks are removed before there is room for those that take their place.
    """

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    index = await provider().open_index(vector_db(), create=True)
    meta = {"document_id": "d"}
    old = [Chunk(chunk_id=i, content="zebra", metadata=meta) for i in "ab"]
    new = [Chunk(chunk_id=f"n{i}", content="lion", metadata=meta) for i in range(200)]
    await index.add_chunks(old, [[1, 0]] * 2)
    with monkeypatch.context() as patch:
        patch.setattr(np, "concatenate", refuse)
        with pytest.raises(MemoryError):
            await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.chunk_ids("", limit=9) == ["a", "b"]
    for mode in ("vector", "keyword"):
        found = await index.query([1, 0], "zebra", k=9, mode=mode)
        assert [chunk.chunk_id for chunk in found.chunks] == ["a", "b"]
    await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.count() == 200


async def test_a_reader_waits_for_a_write_in_a_thread() -> None:
    """While a write holds the index, who fetches chunks does not hold up the event loop.

    If this fails: see that `_get` only takes the lock in the loop where it is free.
    """
    index = await filled({"a": "sheep"})
    assert isinstance(index, MemoryIndex)
    index._lock.acquire()
    releasing = threading.Timer(1.0, index._lock.release)
    releasing.start()
    reading = asyncio.create_task(index.get_chunks(["a"]))
    await asyncio.sleep(0)
    assert index._lock.locked()
    assert [chunk.content for chunk in await reading] == ["sheep"]
    releasing.join()


async def test_what_is_answered_is_a_copy() -> None:
    """Who changes a chunk of an answer, however deep inside, changes no stored one.

    If this fails: see that `_copy` shares no list or object with the stored chunk.
    """
    index = await provider().open_index(vector_db(), create=True)
    record = ChunkMetadata(heading_path=["Sheep"])
    metadata = {"nested": {"list": [{"key": "stored"}]}}
    await index.add_chunks(
        [Chunk(chunk_id="a", content="sheep", metadata=metadata, chunk_metadata=record)], [[1, 0]]
    )
    [first] = (await index.query(None, "sheep", mode="keyword")).chunks
    assert first.chunk_metadata is not None
    assert first.chunk_metadata.heading_path is not None
    first.metadata["nested"]["list"][0]["key"] = "changed"
    first.chunk_metadata.heading_path.append("changed")
    [again] = await index.get_chunks(["a"])
    assert again.metadata == {"nested": {"list": [{"key": "stored"}]}}
    assert again.chunk_metadata == ChunkMetadata(heading_path=["Sheep"])
