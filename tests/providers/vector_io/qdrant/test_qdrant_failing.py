"""remote::qdrant while its server is down, slow, in the way of a proxy or too old."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.testing.indexes import chunk, ids
from corral.providers.vector_io.qdrant.provider import QdrantProvider

from .helpers import CHUNKS, DB, ROWS, collection_of, filled, with_provider
from .qdrant_service import Service


async def test_a_server_that_is_down_is_unavailable_at_once(service: Service) -> None:
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
        assert time.monotonic() - began < 30
        service.start()
        assert (await provider.health()).status == "OK"
        assert ids(await index.query([1, 0], "zebra")) == ["a", "c", "b"]

    await with_provider(service, use, timeout_seconds=60)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
async def test_nobody_listens(transport: str) -> None:
    """A port without a server is unavailable over both transports, retries included."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nobody = Service(port=port)

        async def use(provider: QdrantProvider) -> None:
            with pytest.raises(Unavailable, match=r"cluster: .* cannot be reached"):
                await provider.open_index(DB, create=True)

        await with_provider(nobody, use, transport=transport, grpc_port=port, retries=1)
        nobody.store.close()


async def test_a_server_killed_during_a_query(service: Service) -> None:
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

    await with_provider(service, use)


async def test_a_server_killed_during_an_insert_loses_nothing_acknowledged(
    service: Service,
) -> None:
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

    await with_provider(service, use)


async def test_a_broken_connection_is_tried_again(service: Service) -> None:
    """With retries left, a server that comes back in time is never noticed."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        await asyncio.to_thread(service.kill)
        asked = asyncio.create_task(index.count())
        await asyncio.sleep(0.05)
        service.start()
        assert await asked == 3

    await with_provider(service, use, retries=4)


async def test_a_refusal_is_not_tried_again(service: Service) -> None:
    """Retries are for connections: an error that the server answers with comes back at once."""
    service.broken["GET "] = 500

    async def use(provider: QdrantProvider) -> None:
        with pytest.raises(ProviderError):
            await provider.open_index(DB)

    await with_provider(service, use, retries=5)
    assert service.requests == ["GET /", "GET "]


async def test_a_slow_server_is_a_timeout(service: Service) -> None:
    """504 after timeout_seconds, and not tried again: the server is busy enough."""

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)
        service.delay_seconds = 30
        service.requests.clear()
        began = time.monotonic()
        with pytest.raises(ProviderTimeout, match="cluster"):
            await index.count()
        assert time.monotonic() - began < 10
        assert service.requests == ["POST /points/count"]

    await with_provider(service, use, timeout_seconds=1, retries=3)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ProviderError),
        (401, ProviderError),
        (404, ProviderError),
        (408, ProviderTimeout),
        (429, Unavailable),
        (500, ProviderError),
        (503, Unavailable),
    ],
)
async def test_statuses_become_our_errors_without_data(
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

    await with_provider(service, use)


@pytest.mark.parametrize(
    "route", ["GET ", "POST /points/count", "POST /points/query", "POST /facet"]
)
async def test_a_route_that_a_proxy_lacks_is_no_lost_collection(
    service: Service, route: str
) -> None:
    """A 404 says that the vector DB is gone only when the server says so of the collection.

    If this fails: the advice is to delete a vector DB whose data is all there.
    """

    async def use(provider: QdrantProvider) -> None:
        index = await filled(provider)

        async def everything() -> None:
            await index.count()
            await index.query([1, 0], "zebra")
            await provider.open_index(DB)

        for also in ([], ["GET /exists"]):
            service.lacking = {route, *also}
            with pytest.raises(ProviderError, match="404") as caught:
                await everything()
            assert "Delete the vector DB" not in str(caught.value)
        service.lacking.clear()
        assert await index.count() == 3
        service.store.delete_collection(collection_of(provider))
        service.counted.clear()
        for asked in (index.count(), index.query([1, 0], "zebra"), provider.open_index(DB)):
            with pytest.raises(NotFound, match="gone"):
                await asked

    await with_provider(service, use)


@pytest.mark.parametrize("version", ["1.11.5", "0.9.0"])
async def test_a_server_that_is_too_old_is_refused_at_first_use(
    service: Service, version: str
) -> None:
    """ConfigError with both versions; nothing was made, and an upgraded server is taken."""
    service.version = version

    async def use(provider: QdrantProvider) -> None:
        for _ in range(2):
            with pytest.raises(ConfigError, match=rf"version {version}.*1\.12"):
                await provider.open_index(DB, create=True)
        assert set(service.requests) == {"GET /"}
        assert (await provider.health()).status == "Error"
        service.version = "1.12.0"
        await filled(provider)
        assert service.requests.count("GET /") == 4

    await with_provider(service, use)


async def test_a_proxy_that_keeps_the_version_to_itself_is_fine(service: Service) -> None:
    """Where the route of the version is refused, or says something else, requests go on."""
    for status in (404, 403, 500):
        service.broken["GET /"] = status

        async def use(provider: QdrantProvider) -> int:
            return await (await filled(provider)).count()

        assert await with_provider(service, use) == 3
