"""inline::chroma: what only an embedded Chroma can get wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound, ProviderError
from corral.api.testing.indexes import chunk, ids
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.client import Collection
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.keyword.journal import Head, read_head
from corral.providers.vector_io.chroma.provider import PREFIX, ChromaProvider, create
from corral.providers.vector_io.kit.names import stored_name

from .. import recall
from ..registrations import registration


def registered(name: str = "db", **settings: object) -> VectorDB:
    """Return a registration."""
    return registration("pet", name, **settings)


def provider_in(folder: Path) -> ChromaProvider:
    """Return a provider on a folder."""
    return create("pet", ChromaConfig(folder=folder), folder)


async def filled(folder: Path, name: str = "db") -> EngineIndex:
    """Return an index with two chunks."""
    index = await provider_in(folder).open_index(registered(name), create=True)
    chunks = [Chunk(chunk_id="a", content="zebra"), Chunk(chunk_id="b", content="lion")]
    await index.add_chunks(chunks, [[1, 0], [0, 1]])
    return index


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from corral.api.errors import Unavailable
from corral.providers.vector_io.chroma.embedded import hold
try:
    hold(Path(sys.argv[1]), "pet").release()
except Unavailable as error:
    print(error)
else:
    print("open")
"""


def what_another_process_gets(folder: Path) -> str:
    """Return "open", or the message of the refusal."""
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


async def test_a_second_process_is_kept_out_while_an_index_is_open(tmp_path: Path) -> None:
    """It is told whose folder it is and what to do; once the index is closed it gets in.

    If this fails: Chroma lets both in, and the first one's searches miss what the second writes.
    """

    index = await filled(tmp_path)
    refusal = await asyncio.to_thread(what_another_process_gets, tmp_path)
    assert "pet" in refusal
    assert "remote::chroma" in refusal
    await index.close()
    assert await asyncio.to_thread(what_another_process_gets, tmp_path) == "open"


async def test_the_folder_is_held_until_the_last_index_is_closed(tmp_path: Path) -> None:
    """Two vector DBs of two providers in one folder: closing one leaves the other at work."""

    one, two = await filled(tmp_path, "one"), await filled(tmp_path, "two")
    await one.close()
    await one.close()  # again is no error, and gives back nothing twice
    assert await two.count() == 2
    assert len((await two.query([1, 0], "lion", 2)).hits) == 2
    await two.close()


async def test_chroma_is_asked_for_news_only_after_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can write: a second search asks for nothing, one after any write finds it.

    The write is of another index of the same vector DB. If this fails: each search pays for two
    requests, or misses what was just stored or deleted.
    """
    asked: list[object] = []

    def counted(collection: Collection) -> Head:
        asked.append(collection)
        return read_head(collection)

    index, other = await filled(tmp_path), await provider_in(tmp_path).open_index(registered())

    async def lions() -> list[str]:
        return ids(await index.query(None, "lion", 10, mode="keyword"))

    first = await lions()
    monkeypatch.setattr("corral.providers.vector_io.chroma.keyword.read_head", counted)
    assert await lions() == first
    assert asked == []
    await other.add_chunks([chunk("new", "lion lion lion")], [[1, 0]])
    assert await lions() == ["new", *first]
    assert asked
    await other.delete_chunks(["new"])
    assert await lions() == first
    await other.close()
    await index.close()


async def test_an_index_whose_collection_is_gone_is_not_found(tmp_path: Path) -> None:
    """Opening without `create` never makes an empty one, and leaves the folder free."""

    with pytest.raises(NotFound):
        await provider_in(tmp_path).open_index(registered())
    index = await filled(tmp_path)
    await index.delete()
    with pytest.raises(NotFound):
        await provider_in(tmp_path).open_index(registered())
    assert await asyncio.to_thread(what_another_process_gets, tmp_path) == "open"


async def test_a_dropped_index_leaves_no_file(tmp_path: Path) -> None:
    """Neither its graph's folder nor its mirror stays behind; another vector DB's do.

    If this fails: Chroma keeps the embeddings of what was deleted on the disk for ever.
    """

    def left() -> tuple[int, int]:
        graphs = [path for path in tmp_path.iterdir() if path.name.count("-") == 4]
        return len(graphs), len(list((tmp_path / "mirrors").glob("*.db")))

    index, other = await filled(tmp_path, "one"), await filled(tmp_path, "two")
    assert left() == (2, 2)
    await index.delete()
    assert left() == (1, 1)
    assert (await other.query([1, 0], k=1, mode="vector")).chunks[0].chunk_id == "a"
    await other.close()


def test_a_registration_has_a_collection_of_its_own() -> None:
    """Another id, or the same one registered again, has another name, which Chroma accepts."""
    names = [
        stored_name(registered("a"), PREFIX),
        stored_name(registered("b"), PREFIX),
        stored_name(registered("a", created_at=1.0), PREFIX),
    ]
    assert len(set(names)) == 3
    assert all(name.replace("-", "").isalnum() and len(name) < 63 for name in names)


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error names provider and folder, at opening and in the health."""
    (tmp_path / "file").write_text("in the way")
    provider = provider_in(tmp_path / "file" / "folder")
    with pytest.raises(ProviderError, match="pet: cannot write to"):
        await provider.open_index(registered(), create=True)
    assert "cannot write" in (await provider.health()).message


async def test_health_is_asked_of_chroma(tmp_path: Path) -> None:
    """OK with and without an open index, and the folder is free afterwards."""

    provider = provider_in(tmp_path)
    assert (await provider.health()).status == "OK"
    assert await asyncio.to_thread(what_another_process_gets, tmp_path) == "open"
    index = await filled(tmp_path)
    assert (await provider.health()).status == "OK"
    await index.close()


async def test_recall_at_20_000(tmp_path: Path) -> None:
    """recall_vs_exact@10 >= 0.95 with the defaults, under every filter."""

    index = await provider_in(tmp_path).open_index(recall.registered("chroma"), create=True)
    await recall.fill(index)
    found = await recall.recalls(index)
    assert min(found.values()) >= recall.ENOUGH, found
    await index.close()


async def test_scores_are_exact_and_ties_come_by_id(tmp_path: Path) -> None:
    """300 duplicates among 600 chunks: raw scores are those of double precision, ids ascend.

    If this fails: Chroma's float32 distances decide, which differ in the last digits.
    """

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 8))
    rows[::2] = rows[0]
    names = [f"c{number:03}" for number in rng.permutation(600)]
    index = await provider_in(tmp_path).open_index(registered(embedding_dimension=8), create=True)
    await index.add_chunks([Chunk(chunk_id=name, content="x") for name in names], rows)
    response = await index.query(rows[0], k=20, mode="vector")
    assert [c.chunk_id for c in response.chunks] == sorted(names[::2])[:20]
    assert len(set(response.scores)) == 1
    assert response.scores[0] == pytest.approx(1, abs=1e-7)
    await index.close()


async def test_an_insert_of_many_requests_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chroma takes 5,461 rows at once; of 12,000 the third part fails: none is there."""
    import chromadb
    from chromadb.errors import InternalError

    real, calls = chromadb.Collection.upsert, []

    def upsert(self: chromadb.Collection, **rows: object) -> None:
        calls.append(rows)
        if len(calls) == 3:
            raise InternalError("disk full: zebra")
        real(self, **rows)  # type: ignore[arg-type]

    index = await provider_in(tmp_path).open_index(registered(), create=True)
    monkeypatch.setattr(chromadb.Collection, "upsert", upsert)
    chunks = [Chunk(chunk_id=f"c{number}", content="x") for number in range(12_000)]
    with pytest.raises(ProviderError, match="pet: Chroma failed") as raised:
        await index.add_chunks(chunks, [[1, 0]] * len(chunks))
    assert "zebra" not in str(raised.value)
    assert await index.count() == 0
    assert (await index.query(query_string="x", mode="keyword")).hits == []
    await index.close()
