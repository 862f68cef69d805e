"""inline::memory beyond the conformance suite: lifetime, its one connection, fuzzy keywords."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound, ProviderError
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.provider import MemoryProvider, create
from corral.providers.vector_io.store.postings import KeywordIndex

from ..engines import engine_of
from ..registrations import registration


def vector_db(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration."""
    return registration("memory", identifier, language="simple", **settings)


def provider(**config: Any) -> MemoryProvider:
    """Return a provider."""
    return create("memory", MemoryConfig(**config), Path())


async def filled(
    texts: dict[str, str], *, keyword: str = "fuzzy", **settings: Any
) -> EmbeddingIndex:
    """Return an index with a chunk for each id and text."""

    index = await provider(keyword=keyword).open_index(vector_db(**settings), create=True)
    chunks = [Chunk(chunk_id=i, content=t, metadata={"id": i}) for i, t in texts.items()]
    await index.add_chunks(chunks, [[1, 0]] * len(chunks))
    return index


async def asked(index: EmbeddingIndex, query: str, k: int = 10, **options: Any) -> dict[str, float]:
    """Return ids and scores of a keyword query, best first."""
    response = await index.query(None, query, k, mode="keyword", **options)
    return {hit.chunk.chunk_id: hit.score for hit in response.hits}


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
        with pytest.raises(NotFound, match=r"'db' was in memory and is gone.*Register it again"):
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


async def test_it_is_always_healthy() -> None:
    """There is nothing that could be down."""
    assert (await provider().health()).status == "OK"


# --- one connection ---------------------------------------------------------------------------


async def test_a_search_in_a_thread_holds_up_nobody_else() -> None:
    """What counts, lists, reads and deletes waits for a search in a thread, not on the event loop.

    If this fails: the whole server stands still until the search has ended.
    """
    index = await filled({"a": "hay"})
    seen, searcher = index.scoped_to(Principal("", user="somebody")), engine_of(index).searcher
    searching, done = threading.Event(), threading.Event()
    begin = searcher.begin

    def slow(*arguments: Any) -> Any:
        searching.set()
        done.wait(60)
        return begin(*arguments)

    searcher.begin = slow
    search = asyncio.ensure_future(index.query([1, 0], mode="vector"))
    await asyncio.to_thread(searching.wait, 60)
    reading = asyncio.ensure_future(index.get_chunks(["a"]))
    asked = [
        asyncio.ensure_future(one)
        for one in (seen.count(), index.document_chunk_ids("d"), index.delete())
    ]
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in (search, reading, *asked))
    done.set()
    assert [chunk.content for chunk in await asyncio.wait_for(reading, 60)] == ["hay"]
    await asyncio.wait_for(asyncio.gather(search, *asked), 60)


async def test_a_replace_that_finds_no_memory_leaves_the_old_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write that fails after it removed the old version: nothing is gone, and all is found.

    If this fails: the write is no transaction, or the error has closed the connection.
    """

    def refuse(*_: object) -> None:
        raise MemoryError

    index = await provider().open_index(vector_db(), create=True)
    meta = {"document_id": "d"}
    old = [Chunk(chunk_id=i, content="zebra", metadata=meta) for i in "ab"]
    new = [Chunk(chunk_id=f"n{i}", content="lion", metadata=meta) for i in range(200)]
    await index.add_chunks(old, [[1, 0]] * 2)
    with monkeypatch.context() as patch:
        patch.setattr(KeywordIndex, "add", refuse)
        with pytest.raises(MemoryError):
            await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.chunk_ids("", limit=9) == ["a", "b"]
    for mode in ("vector", "keyword"):
        found = await index.query([1, 0], "zebra", k=9, mode=mode)
        assert [chunk.chunk_id for chunk in found.chunks] == ["a", "b"]
    await index.add_chunks(new, [[0, 1]] * 200, replace_documents={"d"})
    assert await index.count() == 200


async def test_an_error_of_sqlite_closes_nothing() -> None:
    """After a statement that fails the data is still there, and the error names the provider.

    If this fails: the only connection was closed, and the database with it.
    """
    index = await filled({"a": "hay"})
    searcher = engine_of(index).searcher
    begin = searcher.begin
    searcher.begin = lambda connection, *_: connection.execute("SELECT * FROM nothing")
    with pytest.raises(ProviderError, match=r"memory: SQLite failed \(SQLError\)"):
        await index.query([1, 0], mode="vector")
    searcher.begin = begin
    assert list(await asked(index, "hay")) == ["a"]
    await index.delete_chunks(["a"])
    assert await index.count() == 0


async def test_closing_the_provider_frees_what_is_open() -> None:
    """An index that is still in use answers that its data is gone."""
    holder = provider()
    index = await holder.open_index(vector_db(), create=True)
    await holder.close()
    with pytest.raises(NotFound, match="database of vector DB 'db' is gone"):
        await index.count()


# --- fuzzy keywords ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
async def test_with_keyword_fuzzy_every_query_is_fuzzy(mode: str) -> None:
    """It answers as a provider without the setting answers a fuzzy query, whatever a query says.

    If this fails: one of the ways to a keyword leg does not know of the setting.
    """
    texts = {"right": "receive", "wrong": "recieve", "other": "deceit", "far": "hay"}
    always, plain = await filled(texts), await filled(texts, keyword="bm25")
    assert (always.has_term_statistics, plain.has_term_statistics) == (False, True)
    for fuzzy in (False, True):
        found = await always.query([1, 0], "receeve", mode=mode, fuzzy=fuzzy)
        wanted = await plain.query([1, 0], "receeve", mode=mode, fuzzy=True)
        assert [(hit.chunk.chunk_id, hit.score) for hit in found.hits] == [
            (hit.chunk.chunk_id, hit.score) for hit in wanted.hits
        ]
    exact = await plain.query([1, 0], "receeve", mode=mode)
    assert [hit.score for hit in exact.hits] != [hit.score for hit in wanted.hits]


# --- copies -----------------------------------------------------------------------------------
