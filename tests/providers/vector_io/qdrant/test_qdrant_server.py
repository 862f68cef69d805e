"""remote::qdrant over a real connection: the whole way, faults, retries, secrets."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import (
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.testing.indexes import chunk, ids
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import server as server_module
from corral.providers.vector_io.qdrant.collection import collection_name
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.connection import Server
from corral.providers.vector_io.qdrant.server_provider import QdrantProvider, create

from ..orphan_checks import check_orphans
from .qdrant_service import Service

T = TypeVar("T")

DB = VectorDB(
    identifier="notes",
    provider_id="cluster",
    provider_resource_id="notes",
    embedding_model="none",
    embedding_dimension=2,
    language="simple",
    created_at=1.0,
)
CHUNKS = [chunk("a", "zebra", x=1), chunk("b", "lion", x=2), chunk("c", "zebra lion", x=2.5)]
ROWS = [[1, 0], [0, 1], [1, 1]]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


async def with_provider(
    service: Service, use: Callable[[QdrantProvider], Awaitable[T]], **settings: Any
) -> T:
    """Use a provider of the service and close it."""
    settings = {"url": service.url, "timeout_seconds": 5, "retries": 0, **settings}
    provider = create("cluster", QdrantConfig(**settings), Path())
    try:
        return await use(provider)
    finally:
        await provider.close()


async def filled(provider: QdrantProvider) -> EmbeddingIndex:
    """Make the vector DB with three chunks in it."""
    index = await provider.open_index(DB, create=True)
    await index.add_chunks(CHUNKS, ROWS)
    return index


def test_every_operation_works_over_http(service: Service) -> None:
    """Make, add, search in all modes with a filter, get, list, replace, delete, reopen, drop."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        assert ids(await index.query([1, 0], mode="vector")) == ["a", "c", "b"]
        assert ids(await index.query(None, "zebra", mode="keyword")) == ["a", "c"]
        more = {"type": "gt", "key": "x", "value": 1}
        assert ids(await index.query([1, 0], "zebra", mode="hybrid", filters=more)) == ["c", "b"]
        found = await index.get_chunks(["b", "a"], include_embeddings=True)
        assert [(c.chunk_id, c.embedding) for c in found] == [("b", [0, 1]), ("a", [1, 0])]
        document = chunk("d", "okapi", document_id="doc")
        await index.add_chunks([document], [[1, 0]])
        newer = chunk("e", "okapi", document_id="doc")
        await index.add_chunks([newer], [[1, 0]], replace_documents={"doc"})
        await index.delete_chunks(["b"])
        index = await provider.open_index(DB)
        assert await index.count() == 3
        assert ids(await index.query(None, "okapi", mode="keyword")) == ["e"]
        await index.delete()
        with pytest.raises(NotFound):
            await provider.open_index(DB)

    run(with_provider(service, use))


def test_the_api_key_is_sent_and_never_shown(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request carries the key; neither the config, an error nor a log shows it."""
    caplog.set_level(logging.DEBUG)
    service.broken["PUT "] = 403

    async def use(provider: QdrantProvider) -> str:
        with pytest.raises(ProviderError) as caught:
            await provider.open_index(DB, create=True)
        return str(caught.value)

    with pytest.warns(UserWarning, match="insecure"):  # the client's own, about http
        message = run(with_provider(service, use, api_key="qd-very-secret"))
    assert service.api_keys == {"qd-very-secret"}
    assert "refuses access" in message
    config = QdrantConfig.model_validate({"api_key": "qd-very-secret"})
    assert "secret" not in f"{message} {config!r} {caplog.text}".replace("SecretStr", "")


def test_a_server_that_is_down_is_unavailable_at_once(service: Service) -> None:
    """503 with the provider's name, not after the timeout; health says so; then it recovers.

    If this fails: the client was built so that it does not connect anew.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.kill()
        began = time.monotonic()
        for asked in (
            index.count(),
            index.query([1, 0], "zebra"),
            index.add_chunks(CHUNKS, ROWS),
            provider.open_index(DB),
        ):
            with pytest.raises(Unavailable, match="cluster"):
                await asked
        assert (await provider.health()).status == "Error"
        assert time.monotonic() - began < 4
        service.start()
        assert (await provider.health()).status == "OK"
        assert ids(await index.query([1, 0], "zebra")) == ["a", "c", "b"]

    run(with_provider(service, use))


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_nobody_listens(transport: str) -> None:
    """A port without a server is unavailable over both transports, retries included."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nobody = Service(port=port)

        async def use(provider: QdrantProvider) -> None:
            with pytest.raises(Unavailable, match=r"cluster: .* cannot be reached"):
                await provider.open_index(DB, create=True)

        run(with_provider(nobody, use, transport=transport, grpc_port=port, retries=1))
        nobody.store.close()


def test_a_server_killed_during_a_query(service: Service) -> None:
    """The query that was under way ends with Unavailable, and the next one is answered."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        asked = asyncio.create_task(index.query([1, 0], "zebra"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(service.kill)
        with pytest.raises(Unavailable):
            await asked
        service.delay_seconds = 0
        service.start()
        assert ids(await index.query([1, 0], "zebra")) == ["a", "c", "b"]

    run(with_provider(service, use))


def test_a_server_killed_during_an_insert_loses_nothing_acknowledged(service: Service) -> None:
    """What was acknowledged before is there; the call that failed can be repeated."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        writing = asyncio.create_task(index.add_chunks([chunk("d", "okapi")], [[1, 0]]))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(service.kill)
        with pytest.raises(Unavailable):
            await writing
        service.delay_seconds = 0
        service.start()
        assert await index.get_chunks(["a", "b", "c"]) == CHUNKS
        await index.add_chunks([chunk("d", "okapi")], [[1, 0]])
        assert await index.count() == 4

    run(with_provider(service, use))


def test_a_broken_connection_is_tried_again(service: Service) -> None:
    """With retries left, a server that comes back in time is never noticed."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        await asyncio.to_thread(service.kill)
        asked = asyncio.create_task(index.count())
        await asyncio.sleep(0.05)
        service.start()
        assert await asked == 3

    run(with_provider(service, use, retries=4))


def test_a_refusal_is_not_tried_again(service: Service) -> None:
    """Retries are for connections: an error that the server answers with comes back at once."""
    service.broken["GET /exists"] = 500

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError):
            await provider.open_index(DB)

    run(with_provider(service, use, retries=5))
    assert service.requests == ["GET /exists"]


def test_a_slow_server_is_a_timeout(service: Service) -> None:
    """504 after timeout_seconds, and not tried again: the server is busy enough."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 3
        service.requests.clear()
        began = time.monotonic()
        with pytest.raises(ProviderTimeout, match="cluster"):
            await index.count()
        assert time.monotonic() - began < 2.5
        assert service.requests == ["POST /points/count"]

    run(with_provider(service, use, timeout_seconds=1, retries=3))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ProviderError),
        (401, ProviderError),
        (404, NotFound),
        (408, ProviderTimeout),
        (429, Unavailable),
        (500, ProviderError),
        (503, Unavailable),
    ],
)
def test_statuses_become_our_errors_without_data(
    service: Service, status: int, expected: type[CorralError]
) -> None:
    """Each status has its class, and the server's own words, which may quote data, are dropped."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.broken["POST /points/count"] = status
        with pytest.raises(CorralError) as caught:
            await index.count()
        assert type(caught.value) is expected
        assert "because" not in str(caught.value)

    run(with_provider(service, use))


def test_a_collection_that_is_not_finished_is_removed(service: Service) -> None:
    """When an index cannot be made, the collection goes as well, and making it again works."""
    service.broken["PUT /index"] = 500

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError):
            await provider.open_index(DB, create=True)
        assert not service.store.collection_exists(f"corral-{collection_name(DB)}")
        service.broken.clear()
        await provider.open_index(DB, create=True)
        await provider.open_index(DB, create=True)  # idempotent

    run(with_provider(service, use))


def test_a_write_of_several_requests_that_fails_is_undone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New chunks are removed and replaced ones come back when not all of them can be written.

    If this fails: a call that raised has half happened.
    """
    monkeypatch.setattr(server_module, "BATCH_POINTS", 2)

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        old = [chunk(f"d{n}", "old", document_id="doc") for n in range(3)]
        await index.add_chunks(old, [[1, 0]] * 3)
        calls = 0
        real = service.answer

        def answer(route: str, name: str, body: Any) -> Any:
            nonlocal calls
            calls += route == "PUT /points"
            if calls == 2 and route == "PUT /points":
                raise ValueError("the second batch fails")
            return real(route, name, body)

        monkeypatch.setattr(service, "answer", answer)
        new = [chunk("a", "new"), chunk("d0", "new"), *(chunk(f"e{n}", "new") for n in range(2))]
        with pytest.raises(NotFound):
            await index.add_chunks(new, [[0, 1]] * 4, replace_documents={"doc"})
        assert calls > 2
        assert await index.get_chunks(["a", "d0", "d1", "d2", "e0", "e1"]) == [CHUNKS[0], *old]
        assert ids(await index.query(None, "new", mode="keyword")) == []
        [restored] = await index.get_chunks(["a"], include_embeddings=True)
        assert restored.embedding == [1, 0]

    run(with_provider(service, use))


def test_large_writes_are_cut_into_requests(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request holds more points than it may, nor much more than BATCH_BYTES."""
    monkeypatch.setattr(server_module, "BATCH_POINTS", 10)
    monkeypatch.setattr(server_module, "BATCH_BYTES", 100_000)

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        service.requests.clear()
        await index.add_chunks([chunk(f"c{n}", "zebra") for n in range(25)], [[1, 0]] * 25)
        assert service.requests.count("PUT /points") == 3
        service.requests.clear()
        await index.add_chunks([chunk(f"l{n}", "x" * 20_000) for n in range(3)], [[1, 0]] * 3)
        assert service.requests.count("PUT /points") == 3
        assert len(await index.get_chunks([f"c{n}" for n in range(25)])) == 25

    run(with_provider(service, use))


def test_a_query_takes_few_requests(service: Service) -> None:
    """Vector: one search. Keyword: all counts at once, then one search. Then the chunks."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.requests.clear()
        await index.query([1, 0], mode="vector")
        assert service.requests == ["POST /points/query", "POST /points"]
        service.requests.clear()
        await index.query(None, "zebra lion", mode="keyword")
        counted = ["POST /facet"] * 2 + ["POST /points/count"] * 2
        assert sorted(service.requests[:4]) == counted
        assert service.requests[4:] == ["POST /points/query", "POST /points"]

    run(with_provider(service, use))


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "localhost:6333"},
        {"url": "file:///etc"},
        {"timeout": 5},
        {"timeout_seconds": 0},
        {"collection_prefix": "a/b"},
        {"transport": "http3"},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    """Unknown keys, urls without a scheme, and prefixes that are paths."""
    with pytest.raises(ValidationError):
        QdrantConfig(**settings)


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
@pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning")
def test_nothing_is_kept_outside_of_the_collection(tmp_path: Path) -> None:
    """Another client, in another process's place, finds the same answers in what is stored.

    If this fails: statistics or ids live in the memory of the provider.
    """

    async def use(step: str) -> Any:
        client = AsyncQdrantClient(path=str(tmp_path))
        try:
            provider = QdrantProvider("cluster", Server("cluster", client, QdrantConfig()))
            if step == "fill":
                await filled(provider)
            index = await provider.open_index(DB)
            found = await index.query([1, 0], "zebra lion", mode="hybrid")
            return ids(found), found.scores
        finally:
            await client.close()

    assert run(use("fill")) == run(use("read"))


def test_unknown_metadata_keys_stay_out_of_paths(service: Service) -> None:
    """Ordering by a hostile key asks for an index of a hashed field, not of the key."""

    async def use(provider: QdrantProvider) -> None:
        index = await provider.open_index(DB, create=True)
        key = 'a.b[0]"; $x'
        await index.add_chunks([Chunk(content="x", chunk_id="a", metadata={key: 5})], [[1, 0]])
        found = await index.query(
            [1, 0], mode="vector", filters={"type": "gt", "key": key, "value": 4}
        )
        assert ids(found) == ["a"]

    run(with_provider(service, use))


@pytest.mark.parametrize("several_batches", [False, True])
def test_a_replacement_whose_delete_is_answered_late_loses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch, several_batches: bool
) -> None:
    """The new version is written, the old one is deleted, and only the answer comes too late.

    Nothing may be undone then. If this fails: the old version is deleted, the new one is taken
    back, and a document of three chunks has none.
    """
    if several_batches:
        monkeypatch.setattr(server_module, "BATCH_POINTS", 2)

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        old = [chunk(f"d{n}", "old", document_id="doc") for n in range(3)]
        new = [chunk(f"e{n}", "new", document_id="doc") for n in range(3)]
        await index.add_chunks(old, [[1, 0]] * 3)
        service.late["POST /points/delete"] = 3
        with pytest.raises(ProviderTimeout):
            await index.add_chunks(new, [[0, 1]] * 3, replace_documents={"doc"})
        service.late.clear()
        assert ids(await index.query(None, "new", mode="keyword")) == ["e0", "e1", "e2"]
        await index.add_chunks(new, [[0, 1]] * 3, replace_documents={"doc"})
        assert await index.count() == 6
        assert ids(await index.query(None, "old", mode="keyword")) == []

    run(with_provider(service, use, timeout_seconds=1))


def test_an_orphan_is_found_and_removed(service: Service) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    run(with_provider(service, check_orphans))
