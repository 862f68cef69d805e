"""The mirror is right after whatever happened to it or to the collection."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.filters import Filter, parse_filter
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.chroma import engine as engine_module
from corral.providers.vector_io.chroma import keyword
from corral.providers.vector_io.chroma.engine import FEW, ChromaEngine
from corral.providers.vector_io.chroma.keyword import Mirror, journal
from corral.providers.vector_io.chroma.keyword.journal import Writer
from corral.providers.vector_io.chroma.records import Rows, chunks_of, is_marker, records
from corral.providers.vector_io.store.connections import state

from ..registrations import registration
from .fake_collection import FakeCollection

VECTOR_DB = registration("chroma", language="simple")
ONLY_ZEBRAS: Filter | None = parse_filter({"type": "eq", "key": "animal", "value": "zebra"})


def write(collection: FakeCollection, texts: dict[str, str]) -> None:
    """Store chunks as another process would."""
    collection.batch_rows = 1000
    chunks = [Chunk(chunk_id=i, content=t, metadata={"animal": t}) for i, t in texts.items()]
    embeddings = np.tile(np.array([1, 0], dtype=np.float32), (len(chunks), 1))
    Writer(collection).upsert(records(chunks, embeddings))


def opened(path: Path, collection: FakeCollection) -> Mirror:
    """Return a mirror on this file."""
    mirror = Mirror(path, collection, VECTOR_DB, 1)
    mirror.prepare()
    return mirror


def found(mirror: Mirror, word: str) -> set[str]:
    """Return the ids of the chunks that hold a word, once the mirror has followed."""
    return {hit.chunk_id for hit in mirror.read(mirror.search, word, 100, None)}


@pytest.fixture
def collection() -> FakeCollection:
    """A collection with two chunks."""
    made = FakeCollection()
    write(made, {"a": "zebra", "b": "lion"})
    return made


def test_it_follows_writes_and_deletions_of_others(
    tmp_path: Path, collection: FakeCollection
) -> None:
    """Upserts, deletions and both at once, by others: words, counts and filters are right at once.

    If this fails only for a deletion beside an insert: equal counts are taken for equal chunks.
    """
    mirror = opened(tmp_path / "m.db", collection)
    assert found(mirror, "zebra") == {"a"}
    write(collection, {"b": "zebra"})
    assert found(mirror, "zebra") == {"a", "b"}
    assert found(mirror, "lion") == set()
    del collection.rows["a"]
    write(collection, {"c": "zebra"})
    assert found(mirror, "zebra") == {"b", "c"}
    del collection.rows["c"]
    assert found(mirror, "zebra") == {"b"}
    assert mirror.read(state, "count") == 1
    assert mirror.read(mirror.passing, ONLY_ZEBRAS) == ["b"]
    mirror.close()


def test_an_old_file_catches_up(tmp_path: Path, collection: FakeCollection) -> None:
    """A copy of the file from before some writes and deletions, put back, is brought up to date.

    That is also what a process leaves that is killed between Chroma and its mirror.
    """
    path = tmp_path / "m.db"
    mirror = opened(path, collection)
    found(mirror, "zebra")
    mirror.close()
    before = path.read_bytes()
    mirror = opened(path, collection)
    write(collection, {"c": "zebra", "b": "quagga"})
    del collection.rows["a"]
    assert found(mirror, "zebra") == {"c"}
    mirror.drop()
    path.write_bytes(before)
    mirror = opened(path, collection)
    assert found(mirror, "zebra") == {"c"}
    assert found(mirror, "quagga") == {"b"}
    mirror.close()


@pytest.mark.parametrize("damage", ["missing", "no database", "empty", "another collection"])
def test_a_file_of_no_use_is_made_anew(
    tmp_path: Path, collection: FakeCollection, damage: str
) -> None:
    """A mirror that is missing, damaged or of another collection costs time and nothing else."""
    path = tmp_path / "m.db"
    if damage == "another collection":
        other = FakeCollection(uuid="other")
        write(other, {"x": "zebra", "y": "zebra"})
        mirror = opened(path, other)
        assert found(mirror, "zebra") == {"x", "y"}
        mirror.close()
    elif damage == "no database":
        path.write_bytes(b"no database at all" * 1000)
    elif damage == "empty":
        path.touch()
    mirror = opened(path, collection)
    assert found(mirror, "zebra") == {"a"}
    mirror.close()


def test_another_analyzer_makes_it_anew(tmp_path: Path, collection: FakeCollection) -> None:
    """A file whose terms another release of the analyzer made is not searched."""
    mirror = opened(tmp_path / "m.db", collection)
    found(mirror, "zebra")
    mirror.close()
    file = apsw.Connection(str(tmp_path / "m.db"))
    file.execute("UPDATE state SET value = value || '0' WHERE name = 'origin'")
    file.close()
    mirror = opened(tmp_path / "m.db", collection)
    with mirror._connections.reading() as connection:
        assert state(connection, "count") == 0
    assert found(mirror, "zebra") == {"a"}
    mirror.close()


def test_a_file_that_has_slept_for_weeks_starts_anew(
    tmp_path: Path, collection: FakeCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers are cleared away after 30 days, so a mirror of more than 15 does not rely on them."""
    mirror = opened(tmp_path / "m.db", collection)
    assert found(mirror, "zebra") == {"a"}
    write(collection, {"a": "quagga"})
    collection.rows = {i: r for i, r in collection.rows.items() if not is_marker(i)}
    later = time.time() + journal.RETIRED_SECONDS * 0.6
    monkeypatch.setattr(time, "time", lambda: later)
    assert found(mirror, "zebra") == set()
    assert found(mirror, "quagga") == {"a"}
    mirror.close()


def test_nothing_is_read_twice(tmp_path: Path, collection: FakeCollection) -> None:
    """A new mirror fetches each row once, one without news none, one with news the new rows."""
    writer = Writer(collection)
    for number in range(5):
        chunk = Chunk(chunk_id=f"d{number}", content="lion")
        writer.upsert(records([chunk], np.array([[1, 0]], dtype=np.float32)))
    mirror = opened(tmp_path / "m.db", collection)
    fetched: list[list[str]] = []
    real = chunks_of

    def spy(some: Rows) -> list[Chunk]:
        fetched.append(some.ids)
        return real(some)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyword, "chunks_of", spy)
        found(mirror, "zebra")
        assert sorted(chunk_id for ids in fetched for chunk_id in ids) == [
            "a", "b", "d0", "d1", "d2", "d3", "d4"
        ]  # fmt: skip
        fetched.clear()
        found(mirror, "zebra")
        assert fetched == []
        write(collection, {"c": "zebra"})
        found(mirror, "zebra")
        assert fetched == [["c"]]
    mirror.close()


def index_of(tmp_path: Path, collection: FakeCollection, few: int = FEW) -> EngineIndex:
    """Return an index on this collection."""
    mirror = opened(tmp_path / "i.db", collection)
    threads = ThreadPool("chroma", None)
    return EngineIndex(
        ChromaEngine(
            VECTOR_DB,
            collection,
            mirror,
            threads,
            drop=lambda: None,
            release=lambda: None,
            few=few,
        )
    )


async def test_a_chunk_that_goes_between_filter_and_search_is_no_error(
    tmp_path: Path, collection: FakeCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process deletes a passing chunk after the filter was read: the others are found.

    If this fails: Chroma's refusal of an unknown id reaches the caller.
    """
    write(collection, {"z": "zebra"})
    index = index_of(tmp_path, collection, few=0)
    real, calls = Mirror.passing, []

    def passing(self: Mirror, *arguments: object) -> list[str]:
        answer = real(self, *arguments)  # type: ignore[arg-type]
        calls.append(sorted(answer))
        collection.rows.pop("z", None)
        return answer

    monkeypatch.setattr(Mirror, "passing", passing)
    response = await index.query([1, 0], k=1, mode="vector", filters=ONLY_ZEBRAS)
    assert [chunk.chunk_id for chunk in response.chunks] == ["a"]
    assert calls == [["a", "z"], ["a"]]
    await index.close()


@pytest.mark.parametrize(("filters", "few"), [(None, 0), (ONLY_ZEBRAS, 0), (ONLY_ZEBRAS, 100)])
async def test_chunks_that_the_graph_has_lost_are_found(
    tmp_path: Path, filters: Filter | None, few: int
) -> None:
    """Chroma's graph reaches 3 of 10 chunks: a search for 5 compares all and finds the best.

    So does one in which few chunks pass the filter; the graph is not asked at all.
    """
    collection = FakeCollection()
    write(collection, {f"c{number}": "zebra" for number in range(10)})
    for number in range(10):
        angle = number / 10
        vector = np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)
        collection.rows[f"c{number}"] = (collection.rows[f"c{number}"][0], vector)
    collection.reachable = {"c7", "c8", "c9"}
    index = index_of(tmp_path, collection, few)
    response = await index.query([1, 0.01], k=5, mode="vector", filters=filters)
    assert [chunk.chunk_id for chunk in response.chunks] == ["c0", "c1", "c2", "c3", "c4"]
    await index.close()


async def test_ties_with_the_last_are_all_looked_at(tmp_path: Path) -> None:
    """Of 500 equal embeddings, stored in falling order of ids, a search for 3 gives the first ids.

    If this fails: Chroma's order within ties, which is chance, decides what is cut off.
    """
    collection = FakeCollection()
    write(collection, {f"c{number:03}": "zebra" for number in reversed(range(500))})
    index = index_of(tmp_path, collection)
    assert engine_module.MARGIN < 400
    response = await index.query([1, 0], k=3, mode="vector")
    assert [chunk.chunk_id for chunk in response.chunks] == ["c000", "c001", "c002"]
    await index.close()
