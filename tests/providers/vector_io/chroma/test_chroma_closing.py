"""Chroma's collections and mirrors when they are closed or dropped with calls at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import CorralError, NotFound, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.client import ChromaServer, Collection, UnknownIds
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.provider import PREFIX
from corral.providers.vector_io.chroma.provider import create_remote as create
from corral.providers.vector_io.chroma.records import Upsert
from corral.providers.vector_io.kit.names import stored_name

from ..engines import engine_of
from ..registrations import registration
from .conftest import Server

ROWS = Upsert(
    [f"c{number}" for number in range(50)],
    [{"content": "zebra"}] * 50,
    np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32),
)
ROUNDS = 5
GRAPH = {"hnsw": {"space": "l2"}}


@pytest.fixture
def engine(chroma_server: Server) -> Callable[[], ChromaServer]:
    """Return what holds a Chroma."""
    server = ChromaServer("pet", RemoteChromaConfig(url=chroma_server.url))

    def held() -> ChromaServer:
        server.http.enter()
        return server

    return held


def calls_of(collection: Collection) -> dict[str, Callable[[], Any]]:
    """Return a call of each kind."""
    return {
        "count": collection.count,
        "upsert": lambda: collection.upsert(ROWS),
        "delete": lambda: collection.delete(["c1"]),
        "get": lambda: collection.get(include=("metadatas",)),
        "query": lambda: collection.query(np.ones(2, dtype=np.float32), 10),
    }


def failures_during(
    collection: Collection, end: Callable[[], None]
) -> set[tuple[type[Exception], str]]:
    """Return how calls failed that ran while something was closed or dropped, and afterwards."""
    ended = threading.Event()
    failures: set[tuple[type[Exception], str]] = set()

    def work(call: Callable[[], Any]) -> None:
        while True:
            last = ended.is_set()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - which ones it is, is the question
                failures.add((type(error), str(error)))
            if last:
                return

    threads = [threading.Thread(target=work, args=(c,)) for c in calls_of(collection).values()]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    end()
    ended.set()
    for thread in threads:
        thread.join()
    return failures


def test_calls_at_work_outlive_a_close(engine: Callable[[], ChromaServer]) -> None:
    """The last holder lets go with calls at work: each of them ends as if nobody had, and each that
    comes later is refused with the contract's error.

    If this fails: the client is closed under a call, whose answer is then an AttributeError.
    """
    for number in range(ROUNDS):
        chroma = engine()
        name = f"corral-close-{number}-{time.time_ns()}"
        collection = chroma.create(name, GRAPH)
        collection.upsert(ROWS)
        failures = failures_during(collection, chroma.http.leave)
        assert Unavailable in {kind for kind, _ in failures} <= {Unavailable, UnknownIds}
        assert all("pet" in message for _, message in failures)
        again = engine()
        again.drop(name)
        again.http.leave()


def test_a_dropped_collection_is_not_found(engine: Callable[[], ChromaServer]) -> None:
    """Calls at work while the collection is dropped are answered or say that it is gone.

    If this fails: an error of the engine's own comes out, as a 500 or 502.
    """
    for number in range(ROUNDS):
        chroma = engine()
        name = f"corral-drop-{number}-{time.time_ns()}"
        collection = chroma.create(name, GRAPH)
        collection.upsert(ROWS)
        failures = failures_during(collection, lambda: chroma.drop(name))  # noqa: B023 - called now
        assert {kind for kind, _ in failures} <= {NotFound, UnknownIds}
        for call in calls_of(collection).values():
            with pytest.raises(NotFound):
                call()
        chroma.http.leave()


async def test_hooks_of_an_index_that_is_over(chroma_server: Server, tmp_path: Path) -> None:
    """What reaches a closed or deleted index all the same is refused, and makes no new file.

    If this fails: a late search opens the mirror's file again, empty, and leaves it behind.
    """

    for end, refusal in (("close", Unavailable), ("delete", NotFound)):
        provider = provider_of(chroma_server, tmp_path / end)
        index = await provider.open_index(registered(), create=True)
        await index.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
        await getattr(index, end)()
        for work in (engine_of(index).search_keyword("zebra", 1, None), engine_of(index).count()):
            with pytest.raises(refusal):
                await work
        with pytest.raises(CorralError):
            await engine_of(index).search_vector(np.ones(2, dtype=np.float32), 1, None)
        files = len(list((tmp_path / end).glob("*.db")))
        assert files == (1 if end == "close" else 0)


async def test_what_another_process_has_deleted_is_not_found(
    chroma_server: Server, tmp_path: Path
) -> None:
    """One of two processes on the same mirror deletes the vector DB: the other one's searches say
    so, and make no new file. A mirror alone that is deleted is made anew.

    If this fails: the file's absence is answered with 502, or an empty file stays behind.
    """

    vector_db = registered()
    one, two = [
        await provider_of(chroma_server, tmp_path).open_index(vector_db, create=True)
        for _ in range(2)
    ]
    await one.add_chunks([Chunk(chunk_id="a", content="zebra")], [[1, 0]])
    path = tmp_path / f"{stored_name(vector_db, PREFIX)}.db"
    path.unlink()
    assert len((await two.query(None, "zebra", 1, mode="keyword")).hits) == 1
    await one.delete()
    for mode in ("vector", "keyword", "hybrid"):
        with pytest.raises(NotFound):
            await two.query([1, 0], "zebra", 1, mode=mode)
    assert not path.exists()
    await two.close()


def registered() -> VectorDB:
    """Return a registration of its own."""
    return registration("pet", created_at=time.time())


def provider_of(server: Server, folder: Path) -> Any:
    """Return a provider with a folder of its own."""
    return create("pet", RemoteChromaConfig(url=server.url, folder=folder), folder)
