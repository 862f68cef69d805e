"""The file of inline::sqlite, and the processes, threads and requests that share it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, CorralError, NotFound, ProviderError, Unavailable
from corral.providers.vector_io.store import engine as engine_module
from corral.providers.vector_io.store import schema
from corral.providers.vector_io.store.connections import connect
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.postings import KeywordIndex
from corral.providers.vector_io.store.provider import file_name

from .helpers import found, open_index, provider, some_chunks, vector_db, vectors


async def test_another_process_sees_what_was_written_and_deleted(tmp_path: Path) -> None:
    """A second index on the file, memory copy and all, follows the first one's writes at once."""

    first, second = await open_index(tmp_path), await open_index(tmp_path)
    query = vectors(1)[0]
    for step in range(6):
        await first.add_chunks(some_chunks(20, f"doc{step}"), vectors(20, seed=step))
        await first.delete_chunks([f"doc{step}-{n:04d}" for n in range(step)])
        answers = [
            found(await index.query(query, "grazes", k=100, mode=mode))
            for mode in ("vector", "keyword", "hybrid")
            for index in (first, second)
        ]
        assert answers[0] == answers[1]
        assert answers[2] == answers[3]
        assert answers[4] == answers[5]
        assert await second.count() == await first.count()
        assert len(answers[0]) == min(100, await first.count())
    await first.close()
    await second.close()


async def test_nothing_of_a_deleted_chunk_stays_in_the_file(tmp_path: Path) -> None:
    """Deleting removes text, embedding, attributes and keyword entries alike."""

    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(10), vectors(10))
    await index.delete_chunks([c.chunk_id for c in some_chunks(10)])
    await index.close()
    connection = apsw.Connection(str(tmp_path / file_name(vector_db())))
    for table in ("chunks", "embeddings", "attributes", "lexical_terms"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)], table
    connection.close()


WRITER = """
import asyncio, sys
import numpy as np
from pathlib import Path
sys.path.insert(0, {here!r})
from helpers import open_index, some_chunks, vectors

async def main():
    index = await open_index(Path({folder!r}))
    for number in range({start}, {stop}):
        await index.add_chunks(some_chunks(20, f"doc{{number}}"), vectors(20, seed=number),
                               replace_documents={{f"doc{{number}}"}})
        print(number, flush=True)
    await index.close()

asyncio.run(main())
"""


def writer(folder: Path, start: int, stop: int) -> subprocess.Popen[str]:
    """Start a process that writes documents of 20 chunks and prints the number of each."""
    code = WRITER.format(
        here=str(Path(__file__).parent), folder=str(folder), start=start, stop=stop
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


async def test_two_processes_write_and_nothing_is_lost(tmp_path: Path) -> None:
    """Two processes writing to one vector DB at once: every acknowledged chunk is there."""
    processes = [writer(tmp_path, 0, 15), writer(tmp_path, 100, 115)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0

    index = await open_index(tmp_path)
    assert await index.count() == 600
    answer = await index.query(vectors(1)[0], k=1000, mode="vector")
    assert len(answer.hits) == 600
    await index.close()


async def test_kill_9_leaves_whole_documents_only(tmp_path: Path) -> None:
    """A process killed while writing leaves a file that opens, with whole calls only, none lost."""
    process = writer(tmp_path, 0, 10_000)
    assert process.stdout is not None
    acknowledged = -1
    deadline = time.monotonic() + 30
    while acknowledged < 5 and time.monotonic() < deadline:
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    process.wait()
    process.stdout.close()

    index = await open_index(tmp_path)
    count = await index.count()
    assert count % 20 == 0
    assert count >= 20 * (acknowledged + 1)
    for mode in ("vector", "keyword"):
        answer = await index.query(vectors(1)[0], "herd", k=1000, mode=mode)
        assert len(answer.hits) == min(count, 1000)
    await index.close()


@pytest.mark.parametrize("mode", ["vector", "keyword"])
async def test_a_reader_never_sees_half_of_a_replacement(tmp_path: Path, mode: str) -> None:
    """While a document is replaced over and over, a query finds one version, whole.

    If this fails for vectors: what is in memory is newer than the transaction that it answers.
    """

    index = await open_index(tmp_path)

    async def write() -> None:
        for version in range(40):
            chunks = [
                Chunk(
                    content=f"herd v{version}",
                    chunk_id=f"c{n}",
                    metadata={"document_id": "d", "version": version},
                )
                for n in range(10)
            ]
            await index.add_chunks(chunks, vectors(10), replace_documents={"d"})
            first_is_there.set()

    async def read() -> None:
        passing = {"type": "gte", "key": "version", "value": 0}
        await first_is_there.wait()
        for number in range(60):
            response = await index.query(
                vectors(1)[0], "herd", k=50, mode=mode, filters=passing if number % 2 else None
            )
            assert len({c.metadata["version"] for c in response.chunks}) <= 1
            assert len(response.hits) in (0, 10)
            found_once.add(len(response.hits))

    first_is_there = asyncio.Event()
    found_once: set[int] = set()
    await index.add_chunks(some_chunks(1, "other"), vectors(1))
    await index.delete_chunks(["other-0000"])
    await asyncio.gather(write(), *[read() for _ in range(4)])
    assert 10 in found_once
    assert await index.count() == 10
    await index.close()


async def test_a_query_that_was_overtaken_answers_from_the_newer_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is replaced, and found anew by others, after a query has begun: it finds it too.

    If this fails: deletions are newer than the query's transaction, additions are not, and the
    document is in neither state.
    """
    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(5, "old"), vectors(5))
    passing = FilterCache.passing
    overtakers: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: index.query(vectors(1)[0], k=50, mode="vector"),
        lambda: index.add_chunks(some_chunks(3, "new"), vectors(3), replace_documents={"old"}),
    ]

    def overtaken(self: FilterCache, *arguments: Any) -> Any:
        found = passing(self, *arguments)
        while overtakers:
            thread = threading.Thread(target=asyncio.run, args=(overtakers.pop()(),))
            thread.start()
            thread.join()
        return found

    monkeypatch.setattr(FilterCache, "passing", overtaken)
    everything = {"type": "gte", "key": "n", "value": 0}  # whose reading begins the transaction
    response = await index.query(vectors(1)[0], k=50, mode="vector", filters=everything)
    assert sorted(c.chunk_id for c in response.chunks) == ["new-0000", "new-0001", "new-0002"]
    await index.close()


async def test_an_index_of_an_older_analyzer_is_made_anew(tmp_path: Path) -> None:
    """When the analyzer's version changes, the keyword index is rebuilt from the stored texts."""
    count = schema.REINDEX_BATCH + 30

    async def write() -> None:
        index = await open_index(tmp_path)
        await index.add_chunks(some_chunks(count), vectors(count))
        await index.close()

    async def read() -> int:
        index = await open_index(tmp_path)
        hits = (await index.query(None, "grazing", k=1000, mode="keyword")).hits
        await index.close()
        return len(hits)

    await write()
    path = tmp_path / file_name(vector_db())
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE state SET value = value - 1 WHERE name = 'analyzer'")
    connection.execute("DELETE FROM lexical")
    connection.close()
    assert await read() == count // 2


async def test_an_older_schema_is_migrated_step_by_step(tmp_path: Path) -> None:
    """A file of schema version n gets exactly the steps from n on, in one transaction, once."""
    steps: list[str] = []

    def add_column(connection: apsw.Connection) -> None:
        steps.append("2")
        connection.execute("ALTER TABLE chunks ADD COLUMN note TEXT")

    def fail(connection: apsw.Connection) -> None:
        connection.execute("ALTER TABLE chunks ADD COLUMN half TEXT")
        raise ProviderError("interrupted")

    async def touch() -> None:
        index = await open_index(tmp_path)
        await index.close()

    await touch()
    path = tmp_path / file_name(vector_db())
    connection = connect(path, 5.0)
    keyword = KeywordIndex({"content": 1.0}, "english", memory_mib=1)
    with pytest.raises(ProviderError, match="interrupted"):
        schema.prepare(connection, keyword, (*schema.MIGRATIONS, add_column, fail))
    assert connection.pragma("user_version") == 1
    columns = {row[1] for row in connection.execute("PRAGMA table_info(chunks)")}
    assert not columns & {"note", "half"}
    for _ in range(2):
        schema.prepare(connection, keyword, (*schema.MIGRATIONS, add_column))
    connection.close()
    assert steps == ["2", "2"]  # once in the attempt that was undone, once for good


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A file of a newer Corral is not touched; the message says what to do."""

    async def touch() -> None:
        index = await open_index(tmp_path)
        await index.close()

    await touch()
    connection = apsw.Connection(str(tmp_path / file_name(vector_db())))
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(ConfigError, match=r"version 99.*Upgrade Corral"):
        await touch()


async def test_a_vanished_file_is_said_and_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    """Opening a registered vector DB whose file is gone is an error, not an empty vector DB."""

    index = await open_index(tmp_path)
    await index.close()
    path = tmp_path / file_name(vector_db())
    path.unlink()
    with pytest.raises(NotFound, match="is gone"):
        await provider(tmp_path).open_index(vector_db())
    assert not path.exists()


async def test_an_id_registered_anew_gets_a_new_file(tmp_path: Path) -> None:
    """Deletion removes all files; the same id registered later never meets the old ones."""
    old, new = vector_db(created_at=1.0), vector_db(created_at=2.0)
    assert file_name(old) != file_name(new)
    assert file_name(vector_db("a-b")) != file_name(vector_db("a_b"))
    assert "/" not in file_name(vector_db("../../etc/passwd"))

    index = await provider(tmp_path).open_index(old, create=True)
    await index.add_chunks(some_chunks(3), vectors(3))
    await index.delete()
    assert list(tmp_path.iterdir()) == []


async def test_a_locked_file_is_unavailable_not_a_crash(tmp_path: Path) -> None:
    """A write that waits in vain for another process is a retryable error that names no data."""

    index = await open_index(tmp_path, config={"busy_timeout_seconds": 0.05})
    connection = apsw.Connection(str(tmp_path / file_name(vector_db())))
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="sqlite: the file is locked") as caught:
        await index.add_chunks(some_chunks(1), vectors(1))
    assert caught.value.retryable
    connection.execute("ROLLBACK")
    connection.close()
    await index.add_chunks(some_chunks(1), vectors(1))
    assert await index.count() == 1
    await index.close()


async def test_a_damaged_file_is_a_provider_error(tmp_path: Path) -> None:
    """A file that is no database is reported by the provider's name, without a traceback's data."""
    (tmp_path / file_name(vector_db())).write_bytes(b"this is no database" * 500)
    with pytest.raises(ProviderError, match="sqlite: SQLite failed"):
        await open_index(tmp_path)


async def test_a_failing_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle of a write undoes all of it, and the index goes on working."""

    index = await open_index(tmp_path)
    await index.add_chunks(some_chunks(5), vectors(5))

    def explode(*_: object) -> None:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "count_up", explode)
        with pytest.raises(RuntimeError, match="in the middle"):
            await index.add_chunks(some_chunks(9, "other"), vectors(9), replace_documents={"d"})
    assert await index.count() == 5
    assert len((await index.query(None, "herd", k=50, mode="keyword")).hits) == 5
    await index.close()


def test_threads_share_an_index(tmp_path: Path) -> None:
    """Event loops in several threads may use one index at once."""
    index = asyncio.run(open_index(tmp_path))
    errors: list[Exception] = []

    def guarded(work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            try:
                asyncio.run(work())
            except (AssertionError, CorralError) as error:
                errors.append(error)

        return run

    def work(number: int) -> Callable[[], Any]:
        async def scenario() -> None:
            for step in range(5):
                name = f"t{number}s{step}"
                await index.add_chunks(some_chunks(10, name), vectors(10, seed=number))
                answer = await index.query(vectors(1)[0], "herd", k=10, mode="hybrid")
                assert len(answer.hits) == 10

        return scenario

    threads = [threading.Thread(target=guarded(work(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert asyncio.run(index.count()) == 300
    asyncio.run(index.close())


async def test_health_says_whether_the_folder_can_be_used(tmp_path: Path) -> None:
    """A folder that is there or can be made is fine; a file in its place is not."""
    assert (await provider(tmp_path / "new" / "deep").health()).status == "OK"
    (tmp_path / "file").write_text("in the way")
    assert (await provider(tmp_path / "file").health()).status == "Error"
