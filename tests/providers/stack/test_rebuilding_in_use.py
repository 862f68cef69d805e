"""Rebuilding a vector DB that is in use: no write is lost on the way, and no query fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.engine_index import EngineIndex
from corral.api.errors import Conflict, NotFound, Unavailable
from corral.providers.base.documents import delete_document
from corral.providers.embedding.hashing.embedder import HashingEmbedder, embed_text
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack

from .rebuild_stack import (
    NEW,
    OLD,
    assert_embedded,
    begin,
    chunk,
    filled,
    opened,
    steps,
    stored,
    switch,
)


async def test_writes_during_a_rebuild_are_carried_over(tmp_path: Path) -> None:
    """Added, changed, replaced and deleted behind the steps: the new index has all of it.

    If this fails: a write is not noted, or a note is forgotten before it is carried over.
    """
    await filled(tmp_path)
    async with opened(tmp_path, OLD) as stack:
        await begin(stack, language="nb")
        await steps(stack)
        index = await stack.index("db")
        await store(stack, "db", [chunk(100, "katten", "a")])
        await store(stack, "db", [chunk(0, "katten")])
        await store(stack, "db", [chunk(200, "ny", "d3")], replace_documents=["d3"])
        await index.delete_chunks([chunk(39).chunk_id, chunk(1).chunk_id])
        await delete_document(index, "d4")
        expected = [c.model_dump() for c in await stored(stack)]
        await switch(stack)
        after = [c.model_dump() for c in await stored(stack)]
        assert [c["chunk_id"] for c in after] == [c["chunk_id"] for c in expected]
        assert [c["content"] for c in after] == [c["content"] for c in expected]
        assert_embedded(await stored(stack), OLD)


class Slow:
    """Holds up the embedder until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, only: int) -> None:
        self.waiting, self.go = asyncio.Event(), asyncio.Event()
        embed = HashingEmbedder.embed_documents

        async def wait(embedder: HashingEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
            made = await embed(embedder, texts)
            if len(texts) == only and not self.go.is_set():
                self.waiting.set()
                await self.go.wait()
            return made

        monkeypatch.setattr(HashingEmbedder, "embed_documents", wait)


async def test_a_write_that_the_switch_overtakes_goes_into_the_new_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An insert that embeds while the switch happens is stored by the new model all the same.

    If this fails: a write is acknowledged and lost, or its embeddings are of the wrong model.
    """
    await filled(tmp_path, 5)
    monkeypatch.setattr(HashingEmbedder, "traits", {"version": "old"})
    async with opened(tmp_path, OLD) as stack:
        await begin(stack)
        await steps(stack)
        await switch(stack)
        slow = Slow(monkeypatch, only=3)
        write = asyncio.create_task(store(stack, "db", [chunk(n, "sent", "s") for n in range(3)]))
        await slow.waiting.wait()
        monkeypatch.setattr(HashingEmbedder, "traits", {"version": "new"})
        await begin(stack)
        await steps(stack)
        await switch(stack)
        slow.go.set()
        await write
        ids = [one.chunk_id for one in await stored(stack)]
        assert [i for i in ids if i.startswith("s-")] == [f"s-c{n:04}" for n in range(3)]
        assert (await stack.vector_db("db")).fingerprint == json.dumps(
            {"dimension": OLD, "model": "hashing", "version": "new"}
        )


async def searched(stack: Stack, question: str) -> str:
    """Return the id of the best chunk."""
    return (await Retrieval(stack).search("db", question, k=1)).hits[0].chunk.chunk_id


async def asked(stack: Stack, question: str) -> str:
    """Return the id of the first chunk in the context."""
    told = (await RagTool(stack).query(question, ["db"])).metadata
    return str(told["included_chunks"][0]["chunk_id"])


@pytest.mark.parametrize("ask", [searched, asked])
async def test_a_query_that_the_switch_overtakes_is_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Stack, str], Coroutine[None, None, str]],
) -> None:
    """A question embedded for the old index is embedded again for the new one, and answered.

    If this fails: whoever asks while a rebuild ends is told that the vector DB was deleted.
    """
    await filled(tmp_path, 5)
    async with opened(tmp_path, OLD) as stack:
        embed, waiting, go = HashingEmbedder.embed_query, asyncio.Event(), asyncio.Event()

        async def wait(embedder: HashingEmbedder, text: str) -> NDArray[np.float32]:
            made = await embed(embedder, text)
            waiting.set()
            await go.wait()
            return made

        monkeypatch.setattr(HashingEmbedder, "embed_query", wait)
        query = asyncio.create_task(ask(stack, chunk(3).content))
        await waiting.wait()
        await begin(stack, language="nb")
        await steps(stack)
        await switch(stack)
        go.set()
        assert await query == chunk(3).chunk_id
        await stack.unregister("db")
        with pytest.raises(NotFound):
            await ask(stack, "anything")


async def test_writers_and_readers_never_notice_a_rebuild(tmp_path: Path) -> None:
    """Under writes and queries all the while, each acknowledged write is there after four switches,
    and no query fails or finds nothing.

    If this fails: there is a moment at which a write is in neither index, or a query in none.
    """
    await filled(tmp_path)
    rng = np.random.default_rng(12)
    expected = {chunk(n).chunk_id: chunk(n).content for n in range(40)}
    async with opened(tmp_path, OLD) as stack:
        done = asyncio.Event()

        async def write(writer: int) -> int:
            number = 0
            while not done.is_set():
                n = int(rng.integers(0, 40))
                if number % 7 == 3:
                    gone = chunk(n, document=f"w{writer}")
                    await (await stack.index("db")).delete_chunks([gone.chunk_id])
                    expected.pop(gone.chunk_id, None)
                else:
                    new = chunk(n, f"round{number}", f"w{writer}")
                    await store(stack, "db", [new])
                    expected[new.chunk_id] = new.content
                number += 1
                await asyncio.sleep(0.005)  # the rebuild need not catch up with more than that
            return number

        async def read() -> int:
            number = 0
            while not done.is_set():
                assert (await Retrieval(stack).search("db", "hundene number3")).hits
                number += 1
                await asyncio.sleep(0.001)
            return number

        tasks = [asyncio.create_task(work) for work in (write(0), write(1), read())]
        for language in ("nb", "sv") * 2:
            await begin(stack, language=language)
            await steps(stack, 10)
            await switch(stack)
        done.set()
        assert min(await asyncio.gather(*tasks)) > 5
        assert {c.chunk_id: c.content for c in await stored(stack)} == expected
        assert_embedded(await stored(stack), OLD)
        assert await stack.orphans("sqlite") == []


async def test_another_process_follows(tmp_path: Path) -> None:
    """A second stack on the same folder notes its writes for a rebuild that it did not begin, and
    reads and writes the new index after a switch that it did not make."""
    await filled(tmp_path, 10)
    async with opened(tmp_path, OLD) as one, opened(tmp_path, OLD) as other:
        stale = await other.index("db")
        await begin(one, language="nb")
        await steps(one)
        await stale.add_chunks([chunk(50, document="x")], [embed_text("x", OLD)])
        await switch(one)
        await stale.add_chunks([chunk(51, document="x")], [embed_text("x", OLD)])
        await store(other, "db", [chunk(52, document="x")])
        for stack in (one, other):
            ids = [c.chunk_id for c in await stored(stack) if c.document_id == "x"]
            assert ids == ["x-c0050", "x-c0051", "x-c0052"]
        assert (await other.vector_db("db")).language == "norwegian"


async def test_one_process_at_a_time_works_on_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one process builds chunks, another one's steps, switch and abandonment are a 409.

    If this fails: two replicas embed the same chunks, or one deletes an index that another fills.
    """
    await filled(tmp_path, 10)
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        await begin(one)
        slow = Slow(monkeypatch, only=10)
        building = asyncio.create_task(steps(one))
        await slow.waiting.wait()
        vector_db, rebuilds = await other.vector_db("db"), other.rebuilds
        for work in (rebuilds.step(vector_db, "", 5), rebuilds.abandon(vector_db), switch(other)):
            with pytest.raises(Conflict, match="Another process rebuilds this vector DB"):
                await work
        slow.go.set()
        assert sum(step.copied for step in await building) == 10
        await switch(other)
        assert_embedded(await stored(other), NEW)


async def test_a_switch_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that goes away while notes are carried over leaves the old index in service."""
    await filled(tmp_path, 10)
    async with opened(tmp_path, OLD) as stack:
        await begin(stack, language="nb")
        await steps(stack)
        await store(stack, "db", [chunk(60, document="x")])
        _, target = await stack.rebuilds._sides(
            await stack.rebuilds._rebuild(await stack.vector_db("db"))
        )
        add = EngineIndex.add_chunks

        async def away(index: EngineIndex, *arguments: Any, **options: Any) -> None:
            if index is target:
                raise Unavailable("the engine is away")
            await add(index, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(EngineIndex, "add_chunks", away)
            with pytest.raises(Unavailable):
                await switch(stack)
            assert (await stack.vector_db("db")).language == "english"
            await store(stack, "db", [chunk(61, document="x")])
        await switch(stack)
        assert len(await stored(stack)) == 12
