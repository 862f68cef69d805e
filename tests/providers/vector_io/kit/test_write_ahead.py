"""The write-ahead log: on the disk before the engine writes, repeated after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import select

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import InvalidRequest, ProviderError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.stack.write_logs import StateWriteLog
from corral.providers.state.state import State, upsert
from corral.providers.state.tables import WRITES
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.write_ahead import (
    FOLDER,
    FileWriteLog,
    Intent,
    WriteAheadEngine,
    WriteLog,
)
from corral.providers.vector_io.store.config import ChunkFileConfig
from corral.providers.vector_io.store.connections import IN_MEMORY
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.vectors import VectorSearch

from ..registrations import registration

DB = registration("memory", embedding_dimension=3)


class Killed(BaseException):
    """The process ends here."""


class Halting(ChunkFileEngine):
    """An engine without transactions; `fails` is what its next write meets after its first half."""

    log: WriteLog

    def __init__(self) -> None:
        searcher = VectorSearch(3, effective_metric(DB))
        super().__init__(DB, IN_MEMORY, ChunkFileConfig(), lambda _: searcher)
        self.prepare()
        self.fails: BaseException | None = None
        self.logged: list[bool] = []

    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        self.logged.append(await self.log.pending() is not None)
        await super().add(chunks, embeddings, frozenset())
        self._fail()
        await super().add(chunks, embeddings, replace_documents)

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        await super().delete(chunk_ids[:1])
        self._fail()
        await super().delete(chunk_ids)

    def _fail(self) -> None:
        error, self.fails = self.fails, None
        if error is not None:
            raise error


def chunks(version: int, count: int = 3) -> list[Chunk]:
    """Return a version of the document `d`, whose chunks have ids of their own."""
    return [
        Chunk(
            chunk_id=f"v{version}-{n}",
            content=f"lämb {n}\u2028of {version}",
            metadata={"document_id": "d", "n": n},
            embedding=[1.0, float(n), float(version)],
        )
        for n in range(count)
    ]


async def write(index: EngineIndex, version: int) -> None:
    """Replace the document by a version."""
    await index.add_chunks(chunks(version), replace_documents=["d"])


class Logs:
    """The logs of a test, in files or in the table of a state."""

    def __init__(self, home: Path, state: State | None) -> None:
        self._folder, self._state = home / FOLDER, state

    def of(self, vector_db: VectorDB) -> WriteLog:
        """Return the log of a vector DB, as a new process does."""
        if self._state is None:
            return FileWriteLog(self._folder, vector_db)
        return StateWriteLog(self._state, vector_db)

    async def left(self) -> dict[str, bytes]:
        """Return the entries by name."""
        if self._state is None:
            files = [path for path in self._folder.iterdir() if path.suffix != ".lock"]
            return {path.name.removesuffix(".note"): path.read_bytes() for path in files}
        rows = await self._state.area("writes").read(select(WRITES))
        return {row.name: row.entry for row in rows}

    async def put(self, entry: bytes) -> None:
        """Leave an entry, as another version of Corral might."""
        if self._state is None:
            (self._folder / f"{stored_name(DB)}.note").write_bytes(entry)
            return
        row = {"name": stored_name(DB), "writer": "", "beat": 0, "entry": entry}
        await self._state.area("writes").write(lambda table: upsert(table, WRITES, [row], "entry"))


@pytest.fixture(params=["files", "sqlite", "postgresql"])
async def logs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Logs]:
    """Yield empty logs, in each place."""
    if request.param == "files":
        yield Logs(tmp_path, None)
        return
    is_sqlite = request.param == "sqlite"
    state = State(tmp_path, "sqlite" if is_sqlite else request.getfixturevalue("postgresql_url"))
    try:
        yield Logs(tmp_path, state)
    finally:
        await state.close()


async def opened(logs: Logs, engine: Halting | None = None) -> tuple[EngineIndex, Halting]:
    """Return an index whose writes are logged, and its engine."""
    engine = engine or Halting()
    logged = await WriteAheadEngine.open(engine, logs.of)
    engine.log = logged.log
    return EngineIndex(logged), engine


async def ids(index: EngineIndex) -> list[str]:
    """Return the ids of the chunks that are there."""
    return list(await index.chunk_ids(limit=100))


def test_a_note_holds_all_of_a_write() -> None:
    """Chunks, embeddings to the last bit, what is replaced and what is deleted come back.

    If this fails: a write that is carried out once more is another one.
    """
    rows = np.array([[1e-20, 2.0, 3.0]] * 3, np.float32)
    intent = Intent(chunks(1), rows, frozenset({"d", 'a"\n'}))
    read = Intent.from_bytes(intent.to_bytes())
    kept = [each.model_copy(update={"embedding": None}) for each in chunks(1)]
    assert list(read.chunks) == kept
    assert read.embeddings.tobytes() == rows.tobytes()
    assert (read.replaced, read.deleted) == (frozenset({"d", 'a"\n'}), None)
    gone = Intent([], np.empty((0, 3), np.float32), frozenset(), ["a\nb", "c"])
    assert Intent.from_bytes(gone.to_bytes()).deleted == ["a\nb", "c"]


async def test_a_note_is_there_while_a_write_is_at_work_and_not_after(logs: Logs) -> None:
    """The note is on the disk before the engine is told, and gone when it has done all.

    If this fails: a kill in between leaves half a write that nobody finishes.
    """
    index, engine = await opened(logs)
    await write(index, 1)
    assert engine.logged == [True]
    assert await logs.left() == {}


async def test_processes_write_one_after_the_other(logs: Logs) -> None:
    """The engine of a vector DB has one write at a time, whichever process sends it.

    If this fails: two processes replace a document at once, and chunks of both versions stay.
    """
    writing, most = 0, 0

    class Slow(Halting):
        async def add(self, *_: object) -> None:
            nonlocal writing, most
            writing += 1
            most = max(most, writing)
            await asyncio.sleep(0.01)
            writing -= 1

    indexes = [(await opened(logs, Slow()))[0] for _ in range(2)]
    await asyncio.gather(*(write(index, number) for number, index in enumerate(indexes * 3)))
    assert most == 1


@pytest.mark.parametrize("action", ["add", "delete"])
async def test_what_a_kill_cut_off_is_finished(logs: Logs, action: str) -> None:
    """Whoever opens the vector DB next, and whoever writes to it next, finishes what was left.

    If this fails: a document has chunks of two versions until somebody sends it again.
    """
    index, engine = await opened(logs)
    await write(index, 1)
    for again in ("open", "write"):
        engine.fails = Killed()
        cut_off = write(index, 2) if action == "add" else index.delete_chunks(await ids(index))
        with pytest.raises(Killed):
            await cut_off
        assert await logs.left()
        if again == "open":
            await opened(logs, engine)
            assert await ids(index) == ([f"v2-{n}" for n in range(3)] if action == "add" else [])
        await write(index, 3)
        assert await ids(index) == [f"v3-{n}" for n in range(3)]
        assert await logs.left() == {}


async def test_an_open_outcome_keeps_its_note_and_a_refusal_does_not(logs: Logs) -> None:
    """An engine that is away has its note kept; one that refuses has undone the write itself.

    If this fails: a write is lost that may have begun, or one that was refused comes back.
    """
    index, engine = await opened(logs)
    engine.fails = Unavailable("away")
    with pytest.raises(Unavailable):
        await write(index, 1)
    assert await logs.left()
    engine.fails = Unavailable("still away")
    with pytest.raises(Unavailable):
        await write(index, 2)  # it waits for the first, which is first again
    engine.fails = ProviderError("refused")
    await write(index, 3)  # what is left is refused and let go, and this one is carried out
    assert [i for i in await ids(index) if i.startswith("v3")] == [f"v3-{n}" for n in range(3)]
    assert await logs.left() == {}
    engine.fails = InvalidRequest("no")
    with pytest.raises(InvalidRequest):
        await write(index, 4)
    assert await logs.left() == {}


async def test_a_note_that_cannot_be_read_is_put_aside(logs: Logs) -> None:
    """A broken note, and one of a newer version, hold up nobody and are not deleted.

    If this fails: a vector DB can no longer be opened, or what was noted is gone for good.
    """
    await write((await opened(logs))[0], 1)
    for broken in (b"", b"{", b'{"version": 99}\n', b'{"version": 1, "chunks": 2}\n{}'):
        await logs.put(broken)
        await write((await opened(logs))[0], 2)
        assert await logs.left() == {f"{stored_name(DB)}.unread": broken}


async def test_a_dropped_vector_db_leaves_no_note(logs: Logs) -> None:
    """Deleting a vector DB deletes what was left to do in it.

    If this fails: a new vector DB of the same name gets chunks of the old one.
    """
    index, engine = await opened(logs)
    engine.fails = Killed()
    with pytest.raises(Killed):
        await write(index, 1)
    await index.delete()
    assert await logs.left() == {}
