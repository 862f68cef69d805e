"""What remote::weaviate acknowledges is found; what it refuses has not happened."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound, ProviderError, ProviderTimeout
from corral.providers.vector_io.weaviate import engine
from corral.providers.vector_io.weaviate.records import RequestLimits

from .helpers import chunks, configured, found, opened, searched, vector_db, vectors
from .stand_in import StandIn


async def test_what_is_acknowledged_is_found_where_the_server_indexes_later(
    server: StandIn,
) -> None:
    """A write waits for the queue of vectors to be indexed; a delete as well.

    If this fails: with ASYNC_INDEXING, as in Weaviate Cloud, vector search misses the last writes.
    """
    server.index_seconds = 0.4

    async with opened(server) as one:
        await one.add_chunks(chunks("a", "b"), vectors(2))
        response = await one.query([1, 0], mode="vector")
        assert [chunk.chunk_id for chunk in response.chunks] == ["a", "b"]


async def test_health_says_what_vector_search_does_not_find_yet(server: StandIn) -> None:
    """A queue that outlasts `timeout_seconds` ends the wait, not the write; health counts it."""
    server.index_seconds = 60

    provider = configured(server, timeout_seconds=2)
    one = await provider.open_index(vector_db(), create=True)
    await one.add_chunks(chunks("a", "b"), vectors(2))
    assert await one.count() == 2
    health = await provider.health()
    assert health.status == "OK"
    assert "does not find 2 chunks yet" in health.message
    await one.close()
    await provider.close()


async def test_what_is_acknowledged_is_found_after_a_crash(server: StandIn) -> None:
    """Weaviate flushes a batch's vectors with the next write only, so each write has such a one.

    If this fails: after a kill of the server, vector search misses the chunks of the last write.
    """

    async with opened(server) as one:
        await one.add_chunks(chunks("a", "b", document="d"), vectors(2))
        await one.add_chunks(chunks("b", "c", document="d"), vectors(2), replace_documents={"d"})
        server.crash()
        assert await searched(one) == ["b", "c"]


async def test_what_a_crash_has_kept_out_is_found_once_sent_again(server: StandIn) -> None:
    """A call that a crash cut off stored chunks that vector search misses; sending it again mends
    that, though Weaviate leaves its index alone for a vector that it has stored.

    If this fails: such chunks stay invisible for vector search, whatever is sent.
    """

    async with opened(server) as one:
        sent = chunks("a", "b", document="d")
        await one.add_chunks(sent, [[1, 0], [0, 1]])
        [stored] = server.classes.values()
        stored.unflushed = set(stored.objects)
        server.crash()
        assert await searched(one) == []
        await one.add_chunks(sent, [[1, 0], [0, 1]], replace_documents={"d"})
        assert await searched(one) == ["a", "b"]
        [first] = await one.get_chunks(["a"], include_embeddings=True)
        assert first.embedding == [1, 0]


@pytest.mark.parametrize("accepted", [0, 1, 3])
async def test_a_refused_write_is_undone(
    server: StandIn, accepted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server takes some chunks and refuses the rest: everything is as it was before.

    That holds for chunks that were to be replaced, and nothing of a text is in message or log.
    """

    async def steps(one: EngineIndex) -> None:
        await one.add_chunks(chunks("a", "b", document="d"), vectors(2))
        old = await one.get_chunks(["a", "b"], include_embeddings=True)
        server.refuse_after = accepted
        real_put, calls = engine.Collection.put, 0

        async def put(self: engine.Collection, rows: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:  # the undoing
                server.refuse_after = None
            await real_put(self, rows)

        with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO):
            patch.setattr(engine.Collection, "put", put)
            new = chunks("b", "c", "d", "e", text="confidential", document="d")
            with pytest.raises(ProviderError, match="refused") as caught:
                await one.add_chunks(new, [[0, 1]] * 4, replace_documents={"d"})
        assert await one.count() == 2
        assert await one.get_chunks(["a", "b"], include_embeddings=True) == old
        assert await found(one, "confidential") == []
        assert "confidential" not in str(caught.value) + caplog.text

    async with opened(server) as one:
        await steps(one)


@pytest.mark.parametrize("on_time", [0, 1])
async def test_a_replace_whose_delete_answers_late_keeps_the_new_chunks(
    server: StandIn, on_time: int
) -> None:
    """Once every chunk is written nothing is undone: the old version may be gone already.

    If this fails: both versions are lost, since the undoing removes the new chunks while the
    server deletes the old ones.
    """
    limits = RequestLimits(results=10)

    async with opened(server, config={"timeout_seconds": 2}, limits=limits) as one:
        old = [f"c{number:02}" for number in range(15)]
        await one.add_chunks(chunks(*old, document="d"), vectors(15))
        server.late = {"BatchDelete": on_time}
        new = chunks("c00", "x", text="lion", document="d")
        with pytest.raises(ProviderTimeout):
            await one.add_chunks(new, vectors(2), replace_documents={"d"})
        server.late = {}
        assert await found(one, "lion") == ["c00", "x"]
        await one.add_chunks(new, vectors(2), replace_documents={"d"})
        assert await one.chunk_ids() == ["c00", "x"]


async def test_a_collection_dropped_amid_a_write_is_not_left_made_up(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop comes between looking and writing: the write says so, and nothing stays behind.

    If this fails: the collection that the server makes up for the objects is left in it for good.
    """
    real_put = engine.Collection.put

    async def put(self: engine.Collection, rows: Any) -> None:
        monkeypatch.undo()
        server.classes.clear()
        await real_put(self, rows)

    async with opened(server) as one:
        monkeypatch.setattr(engine.Collection, "put", put)
        with pytest.raises(NotFound):
            await one.add_chunks(chunks("a"), vectors(1))
        assert not server.classes


async def test_documents_larger_than_an_answer_are_replaced_whole(server: StandIn) -> None:
    """The old chunks are listed and deleted in as many rounds as it takes."""
    limits = RequestLimits(results=10, write_objects=4, read_objects=4)

    async with opened(server, limits=limits) as one:
        old = [f"c{number:02}" for number in range(35)]
        await one.add_chunks(chunks(*old, document="d"), vectors(35))
        await one.add_chunks(chunks("other"), vectors(1))
        new = [*old[:12], "new"]
        await one.add_chunks(chunks(*new, document="d"), vectors(13), replace_documents={"d"})
        assert await one.chunk_ids() == [*old[:12], "new", "other"]
        assert await one.count() == 14


async def test_large_batches_are_split_by_bytes(server: StandIn) -> None:
    """A request holds what fits, and one chunk at least."""

    async with opened(server, limits=RequestLimits(write_bytes=3_000)) as one:
        await one.add_chunks(chunks("a", "b", "c", text="x" * 2_000), vectors(3))
        await one.add_chunks(chunks("d", "e", "f"), vectors(3))
        assert await one.count() == 6
    sizes = [len(message.objects) for name, message in server.requests if name == "BatchObjects"]
    assert sizes[:3] == [1, 1, 1]
    assert sum(sizes[3:]) == 3
    assert len(sizes) < 6
