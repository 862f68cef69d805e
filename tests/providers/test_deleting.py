"""Vector DBs that go away or change while they are used, here or in another process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, NotFound, Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.stack.stack import Stack

from .vector_io.engines import engine_of

INLINE = ("chroma", "faiss", "lancedb", "memory", "milvus", "qdrant", "sqlite")
# For what the stack does whatever the engine; the conformance suite holds each engine to its part.
STORES = pytest.mark.parametrize("provider", ["memory", "sqlite"])
CHUNK, ROW = Chunk(chunk_id="a", content="zebra"), [1.0] * 256


def config(*names: str) -> RunConfig:
    """Return a configuration with these inline providers and the hashing embedder."""
    entries = [ProviderEntry(provider_id=n, provider_type=f"inline::{n}") for n in names]
    embedding = [ProviderEntry(provider_id="hashing", provider_type="inline::hashing")]
    return RunConfig(
        providers=Providers(vector_io=entries, embedding=embedding),
        default_embedding_model="hashing",
    )


@asynccontextmanager
async def opened(home: Path, *names: str) -> AsyncIterator[Stack]:
    """Open a stack, as a process does."""
    stack = Stack(config(*names or ("sqlite",)), home)
    try:
        yield stack
    finally:
        await stack.close()


def registration(identifier: str = "db", **settings: Any) -> VectorDBRegistration:
    """Return a request to register."""
    return VectorDBRegistration(vector_db_id=identifier, embedding_model="hashing", **settings)


async def filled(stack: Stack, identifier: str = "db", **settings: Any) -> EmbeddingIndex:
    """Register a vector DB, store a chunk in it and return its index."""
    await stack.register(registration(identifier, **settings))
    index = await stack.index(identifier)
    await index.add_chunks([CHUNK], [ROW])
    return index


async def counted_for_ever(stack: Stack) -> None:
    """Count the chunks of `db` again and again, until that fails."""
    while True:
        await (await stack.index("db")).count()
        await asyncio.sleep(0.01)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


class Held:
    """Holds finished calls of an index's engine until `go` is set."""

    def __init__(self, index: EmbeddingIndex, call: str) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        engine = engine_of(index)
        self._call = getattr(engine, call)
        setattr(engine, call, self._held)

    async def _held(self, *arguments: Any) -> Any:
        answer = await self._call(*arguments)
        self.reached.set()
        await self.go.wait()
        return answer


# --- deleting -------------------------------------------------------------------------------------


async def test_a_late_deletion_leaves_its_successor(tmp_path: Path) -> None:
    """What is registered while a deletion of its predecessor still runs, keeps its chunks.

    If this fails: the row is removed by its identifier, whosever it is by then.
    """

    async with opened(tmp_path) as late, opened(tmp_path) as other:
        held = Held(await filled(late), "drop")
        deletion = asyncio.create_task(late.unregister("db"))
        await held.reached.wait()
        await other.unregister("db")
        await filled(other)
        held.go.set()
        await deletion
        for stack in (late, other):
            assert await (await stack.index("db")).count() == 1


async def test_a_deletion_that_had_to_wait_leaves_a_successor(tmp_path: Path) -> None:
    """What a deletion removes is fixed when it is asked for, not when its turn comes.

    If this fails: `unregister` deletes whatever is registered under the id once it has the lock.
    """

    async with opened(tmp_path) as late, opened(tmp_path) as other:
        await filled(late)
        lock = late._open.lock["", "db"]
        async with lock:
            deletion = asyncio.create_task(late.unregister("db"))
            await until(lambda: bool(lock._waiters))
            await other.unregister("db")
            await filled(other)
        await deletion
        for stack in (late, other):
            assert await (await stack.index("db")).count() == 1


@STORES
async def test_repeated_deletions_leave_what_is_registered_next(
    tmp_path: Path, provider: str
) -> None:
    """A deletion that is sent three times takes nothing that is registered after the first answer.

    If this fails: a deletion looks up what it deletes only when its turn has come.
    """

    async with opened(tmp_path, provider) as stack:
        await filled(stack)
        for _ in range(50):
            waiting = {asyncio.create_task(stack.unregister("db")) for _ in range(3)}
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await filled(stack)
            for each in waiting:
                await each
            assert await (await stack.index("db")).count() == 1


async def test_a_deletion_waits_for_queries_and_refuses_new_ones(tmp_path: Path) -> None:
    """A query that runs is answered in full, one that comes during the deletion gets NotFound."""

    async with opened(tmp_path) as stack:
        index = await filled(stack)
        held = Held(index, "search_keyword")
        query = asyncio.create_task(index.query(None, "zebra", mode="keyword"))
        await held.reached.wait()
        deletion = asyncio.create_task(stack.unregister("db"))
        with pytest.raises(NotFound, match="'db' was deleted"):
            await counted_for_ever(stack)
        assert not deletion.done()
        held.go.set()
        assert [hit.chunk.chunk_id for hit in (await query).hits] == ["a"]
        assert await deletion == ""


@pytest.mark.parametrize("beside", [False, True])
@STORES
async def test_dropping_under_queries(tmp_path: Path, provider: str, beside: bool) -> None:
    """A query of a vector DB that is deleted answers or gets NotFound, in 20 rounds of 20.

    If this fails: look at what the last index of the provider closes, and who still uses it.
    """

    async def ask(stack: Stack, name: str, mode: str) -> None:
        while True:
            try:
                found = await (await stack.index(name)).query(ROW, "zebra", mode=mode)
            except NotFound:
                return
            assert [hit.chunk.chunk_id for hit in found.hits] == ["a"]

    async with opened(tmp_path, provider) as stack:
        if beside:
            await filled(stack, "beside")
        for number in range(20):
            await filled(stack)
            asking = [
                asyncio.create_task(ask(stack, "db", mode))
                for mode in ("vector", "keyword", "hybrid") * 2
            ]
            await asyncio.sleep(0.005 * (number % 4))
            await stack.unregister("db")
            await asyncio.gather(*asking)
        if beside:
            assert await (await stack.index("beside")).count() == 1


async def test_closing_ends_where_an_index_was_let_go_a_moment_ago(tmp_path: Path) -> None:
    """What closed the index has ended, and the event loop has not told anybody yet.

    If this fails, on Python 3.12 and later: a command or a server never ends.
    """

    async def closed() -> None:
        return

    async with opened(tmp_path) as stack:
        stack._open._in_background(closed())
        await asyncio.sleep(0)
        assert [task.done() for task in stack._open._closing] == [True]
        await stack._open.close()


async def test_a_vector_db_whose_provider_has_left_can_be_deleted(tmp_path: Path) -> None:
    """Only its registration goes, and the answer says what stays where."""

    async with opened(tmp_path, "sqlite", "memory") as stack:
        await filled(stack, "far", provider_id="sqlite")
    async with opened(tmp_path, "memory") as stack:
        said = await stack.unregister("far")
        assert "'sqlite' is no longer in run.yaml" in said
        assert "chunks stay" in said
        assert await stack.vector_dbs() == []
    assert len(list(tmp_path.rglob("sqlite/**/*.db"))) == 1


# --- changes --------------------------------------------------------------------------------------


@STORES
async def test_changing_search_settings_keeps_the_index(tmp_path: Path, provider: str) -> None:
    """A write that runs while another process changes how is searched, ends; queries know the new.

    If this fails: the index was closed under the write, to be opened anew.
    """

    async with opened(tmp_path, provider) as stack, opened(tmp_path, provider) as other:
        index = await filled(stack)
        held = Held(index, "add")
        write = asyncio.create_task(index.add_chunks([Chunk(content="quagga")], [ROW]))
        await other.change_search("db", {"search_mode": "keyword"})
        again = await stack.index("db")
        assert again is index
        assert again.vector_db.search_mode == "keyword"
        held.go.set()
        await write
        assert await index.count() == 2
        assert len((await index.query(None, "quagga")).hits) == 1


async def test_changes_at_the_same_time_are_not_lost(tmp_path: Path) -> None:
    """Of two changes both stay, or one is refused; a successor is never overwritten.

    If this fails: a registration is written over another than the one that was read.
    """

    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await filled(one)
        changes = [
            one.change_search("db", {"search_mode": "keyword"}),
            one.change_search("db", {"cutoff": "gap"}),
        ]
        await asyncio.gather(*changes)
        found = await two.vector_db("db")
        assert (found.search_mode, found.cutoff) == ("keyword", "gap")
        await two.unregister("db")
        successor = await two.register(registration())
        with pytest.raises(Conflict, match="another request"):
            await one._vector_dbs.replace(found, found)
        assert await one.vector_db("db") == successor


@STORES
async def test_what_another_process_deletes_is_closed_here(tmp_path: Path, provider: str) -> None:
    """Its index is let go of at the next look at the registry, after its last user.

    If this fails: deleted files stay open, with their disk space, until the server ends.
    """

    async with opened(tmp_path, provider) as here, opened(tmp_path, provider) as there:
        indexes = [await filled(here, "db0")]
        held = Held(indexes[0], "search_keyword")
        query = asyncio.create_task(indexes[0].query(None, "zebra", mode="keyword"))
        await held.reached.wait()  # before the deletion, which `here` may see at any time
        await there.unregister("db0")
        for number in range(1, 6):
            indexes.append(await filled(here, f"db{number}"))
            await there.unregister(f"db{number}")
        assert await here.vector_dbs() == []
        await until(lambda: not here._open._indexes)
        for index in indexes:
            with pytest.raises(NotFound):
                await index.count()
        assert not query.done()
        held.go.set()
        await query


# --- data that is gone ----------------------------------------------------------------------------


@pytest.mark.parametrize("provider", INLINE)
async def test_registering_again_makes_it_usable(tmp_path: Path, provider: str) -> None:
    """Where the data is gone, as in memory after a restart, the vector DB is empty, and works.

    If this fails: an agent that registers at its start is stuck until somebody deletes.
    """

    async with opened(tmp_path, provider) as stack:
        await filled(stack)
        first = await stack.vector_db("db")
    shutil.rmtree(tmp_path / provider, ignore_errors=True)
    async with opened(tmp_path, provider) as stack:
        with pytest.raises(NotFound):
            await stack.index("db")
        assert await stack.register(registration()) == first
        index = await stack.index("db")
        assert await index.count() == 0
        await index.add_chunks([CHUNK], [ROW])
        assert len((await index.query(ROW, "zebra")).hits) == 1
        assert await stack.register(registration()) == first
        assert await (await stack.index("db")).count() == 1


# --- a registry that is locked --------------------------------------------------------------------


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the registry's write lock, as a process does that hangs in a write."""
    connection = apsw.Connection(str(home / "state.db"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


class Watched:
    """Measures for how long the event loop does nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Watched:
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            try:
                await asyncio.sleep(0.01)
            finally:  # canceled, too
                self.longest = max(self.longest, loop.time() - before)
            before = loop.time()


@pytest.mark.sqlite_state("its file is locked")
@STORES
async def test_a_locked_registry_blocks_nobody_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """Writers are told to try again, readers go on, the loop runs, and no index is left behind.

    If this fails: the registry is used on the event loop, or an index is made before its note.
    """
    async with opened(tmp_path, provider) as stack:
        await filled(stack)
        made: list[EmbeddingIndex] = []
        engine = stack.vector_io(provider)
        open_index = engine.open_index

        async def noted(*arguments: Any, **options: Any) -> EmbeddingIndex:
            made.append(await open_index(*arguments, **options))
            return made[-1]

        monkeypatch.setattr(engine, "open_index", noted)
        with locked(tmp_path):
            async with Watched() as watched:
                refused = asyncio.create_task(stack.register(registration("new")))
                while not refused.done():
                    assert await (await stack.index("db")).count() == 1
                    await asyncio.sleep(0.05)
                with pytest.raises(Unavailable, match=r"state.db is locked.*Try again"):
                    await refused
            assert watched.longest < 2
        assert not made  # what is being created is noted in the state first
        await filled(stack, "new")


@pytest.mark.sqlite_state("its file is locked")
async def test_a_deletion_that_meets_a_locked_registry_can_be_repeated(tmp_path: Path) -> None:
    """The chunks are gone, the registration is still there, and the next deletion ends it."""
    async with opened(tmp_path) as stack:
        await filled(stack)
        with locked(tmp_path), pytest.raises(Unavailable, match="locked"):
            await stack.unregister("db")
        with pytest.raises(NotFound, match="gone"):
            await stack.index("db")
        await stack.unregister("db")
        assert await stack.vector_dbs() == []
