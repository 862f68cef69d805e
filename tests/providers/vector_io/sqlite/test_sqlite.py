"""The file of inline::sqlite, and the processes, threads and requests that share it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, CorralError, NotFound, ProviderError, Unavailable
from corral.providers.vector_io.store import schema
from corral.providers.vector_io.store.connections import connect
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.postings import KeywordIndex
from corral.providers.vector_io.store.provider import file_name

from .helpers import open_index, provider, some_chunks, vector_db, vectors


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
    assert connection.pragma("user_version") == len(schema.MIGRATIONS)
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
