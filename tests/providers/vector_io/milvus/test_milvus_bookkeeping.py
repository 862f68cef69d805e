"""What processes leave in a collection beside its chunks does not grow with their number."""

from __future__ import annotations

import time

import pytest

from corral.api.engine_index import EngineIndex
from corral.providers.vector_io.milvus import records

from .conftest import Server
from .helpers import counting, expected_scores, keyword, registered, remote, rows_left, words

WRITERS = "kind == 3"


async def write(index: EngineIndex, number: int, texts: dict[str, str]) -> None:
    """Write a chunk that was there and one that was not."""
    new = {"same": f"zebra lion n{number}", f"c{number}": "zebra"}
    await index.add_chunks(words(new), [[1, 0]] * 2)
    texts |= new


async def test_processes_that_close_leave_one_row(milvus_server: Server) -> None:
    """Eight processes open a vector DB, write and close it, one after the other: one row is left,
    and a process that has counted before counts what each of them has written.

    If this fails: every search reads a row more for every command that was ever run; or a row that
    is gone is a write that nobody notices.
    """

    vector_db = registered()
    texts: dict[str, str] = {}
    watcher = await remote(milvus_server.uri).open_index(vector_db, create=True)
    for number in range(8):
        index = await remote(milvus_server.uri).open_index(vector_db)
        await write(index, number, texts)
        if number % 2:
            assert await keyword(watcher, "zebra lion") == pytest.approx(
                expected_scores("zebra lion", texts)
            )
        await index.close()
        assert len(await rows_left(watcher, WRITERS)) == 1
        assert await keyword(watcher, "zebra lion") == pytest.approx(
            expected_scores("zebra lion", texts)
        )
    await watcher.delete()


@pytest.mark.parametrize("by_server", [False, True])
async def test_other_processes_are_asked_for_as_often_as_configured(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch, by_server: bool
) -> None:
    """One process adds chunks: another finds them at once, with scores as old as allowed.

    After a write of its own its scores are exact again. If this fails: each keyword query asks the
    server who has written, or a chunk with a new word is not found.
    """
    asked: list[object] = []
    others = records.Writers.others

    def counted(writers: records.Writers) -> dict[str, str]:
        asked.append(writers)
        return others(writers)

    monkeypatch.setattr(records.Writers, "others", counted)
    vector_db = registered()
    texts = {"a": "zebra", "b": "zebra lion"}
    near = remote(milvus_server.uri, statistics_max_age_seconds=3600)
    watcher = await counting(near, by_server, vector_db)
    await watcher.add_chunks(words(texts), [[1, 0]] * 2)
    first = await keyword(watcher, "zebra lion")
    assert first == pytest.approx(expected_scores("zebra lion", texts))
    asked.clear()
    assert await keyword(watcher, "zebra lion") == first
    assert asked == []
    other = await remote(milvus_server.uri).open_index(vector_db)
    texts["c"] = "lion okapi"
    await other.add_chunks(words({"c": texts["c"]}), [[1, 0]])
    await other.close()
    found = await keyword(watcher, "zebra lion")
    assert set(found) == {"a", "b", "c"}
    assert found != pytest.approx(expected_scores("zebra lion", texts))
    assert set(await keyword(watcher, "okapi")) == {"c"}
    await watcher.delete_chunks(["nothing"])
    assert await keyword(watcher, "zebra lion") == pytest.approx(
        expected_scores("zebra lion", texts)
    )
    await watcher.delete()


async def test_rows_of_killed_processes_go_when_they_are_old(
    milvus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of processes that were killed stay for a week, since theirs may only be idle; then the
    next one to open the vector DB makes one row of them. One that was idle takes a new row.
    """

    vector_db = registered()
    texts: dict[str, str] = {}
    first = await remote(milvus_server.uri).open_index(vector_db, create=True)
    killed = [await remote(milvus_server.uri).open_index(vector_db) for _ in range(4)]
    for number, index in enumerate(killed):
        await write(index, number, texts)
    again = await remote(milvus_server.uri).open_index(vector_db)
    assert len(await rows_left(first, WRITERS)) == 4
    before = await keyword(first, "zebra lion")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + records.ENDED_SECONDS + 1)
    last = await remote(milvus_server.uri).open_index(vector_db)
    assert len(await rows_left(first, WRITERS)) == 1
    assert await keyword(first, "zebra lion") == before
    await write(killed[0], 9, texts)
    assert len(await rows_left(first, WRITERS)) == 2
    assert await keyword(first, "zebra lion") == pytest.approx(expected_scores("zebra lion", texts))
    for index in (again, last, *killed):
        await index.close()
    assert len(await rows_left(first, WRITERS)) <= 2
    await first.delete()


async def test_pages_of_ids_show_what_another_process_wrote(milvus_server: Server) -> None:
    """A page after another process's write has its chunk, though the rest was read before.

    If this fails: `chunk_ids` gives what was held before the write, and a copy misses chunks.
    """
    vector_db = registered()
    index = await remote(milvus_server.uri).open_index(vector_db, create=True)
    await index.add_chunks(words(dict.fromkeys("abde", "zebra")), [[1, 0]] * 4)
    assert await index.chunk_ids(limit=2) == ["a", "b"]
    other = await remote(milvus_server.uri).open_index(vector_db)
    await other.add_chunks(words({"c": "zebra"}), [[1, 0]])
    assert await index.chunk_ids("b", limit=2) == ["c", "d"]
    await other.close()
    await index.delete()
