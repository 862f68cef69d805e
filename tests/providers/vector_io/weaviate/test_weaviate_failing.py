"""remote::weaviate while its server is down, slow, starting, old or closed to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corral.api.engine_index import EngineIndex
from corral.api.errors import ConfigError, NotFound, ProviderError, ProviderTimeout, Unavailable
from corral.providers.vector_io.weaviate.config import WeaviateConfig

from .helpers import chunks, configured, found, opened, searched, vector_db, vectors
from .stand_in import StandIn


async def test_a_server_that_is_down_is_unavailable_and_recovers(server: StandIn) -> None:
    """Every call raises Unavailable with the provider's name in time; afterwards all is well.

    If this fails after the restart: the channel waits longer before it connects again.
    """

    async with opened(server, config={"timeout_seconds": 1}) as one:
        await one.add_chunks(chunks("a"), vectors(1))
        await asyncio.to_thread(server.stop)
        for call in (
            lambda: one.query([1, 0], "zebra", mode="hybrid"),
            lambda: one.add_chunks(chunks("b"), vectors(1)),
            one.count,
        ):
            began = time.monotonic()
            with pytest.raises(Unavailable, match="w1"):
                await call()
            assert time.monotonic() - began < 10
        server.start()
        assert await found(one) == ["a"]
        await one.add_chunks(chunks("b"), vectors(1))
        assert await one.count() == 2


async def test_health_says_whether_the_server_answers(server: StandIn) -> None:
    """OK, then Error with the provider's name, then OK again; it never raises."""

    one = configured(server)
    assert (await one.health()).status == "OK"
    await asyncio.to_thread(server.stop)
    health = await one.health()
    assert health.status == "Error"
    assert "w1" in health.message
    server.start()
    assert (await one.health()).status == "OK"
    await one.close()


async def test_a_vector_db_cannot_be_opened_while_the_server_is_down(server: StandIn) -> None:
    """Opening and making raise Unavailable, and do well once the server is back."""

    one = configured(server)
    await asyncio.to_thread(server.stop)
    for create_it in (True, False):
        with pytest.raises(Unavailable):
            await one.open_index(vector_db(), create=create_it)
    server.start()
    await (await one.open_index(vector_db(), create=True)).close()


async def test_a_server_that_has_not_loaded_its_schema_has_lost_nothing(server: StandIn) -> None:
    """503 until it is ready, and no advice to delete the vector DB.

    If this fails: who asks in the first second after a restart is told that all chunks are gone.
    """

    async with opened(server) as one:
        await one.add_chunks(chunks("a"), vectors(1))
        server.starting = True
        for asked in (one.count(), searched(one), one.add_chunks(chunks("b"), vectors(1))):
            with pytest.raises(Unavailable):
                await asked
        server.starting = False
        assert await searched(one) == ["a"]


async def test_a_node_that_has_not_heard_of_the_collection_is_asked_again(server: StandIn) -> None:
    """In a cluster the node that answers may be a moment behind the one that made the collection.

    If this fails: a vector DB cannot be used right after it was registered, now and then (1.39.0,
    three nodes).
    """

    async with opened(server) as one:
        server.unheard = 2
        assert await one.count() == 0
        await one.add_chunks(chunks("a"), vectors(1))
        server.unheard = 2
        assert await searched(one) == ["a"]


async def test_a_slow_server_is_a_timeout(server: StandIn) -> None:
    """An answer that takes longer than `timeout_seconds` raises ProviderTimeout."""

    async with opened(server, config={"timeout_seconds": 1}) as one:
        server.delay_seconds = 30
        for call in (lambda: one.query([1, 0], mode="vector"), one.count):
            began = time.monotonic()
            with pytest.raises(ProviderTimeout, match="w1"):
                await call()
            assert time.monotonic() - began < 10
        server.delay_seconds = 0.0


async def test_an_old_server_is_refused(server: StandIn) -> None:
    """Before 1.33 there is no Not, so filters could not be translated."""
    server.version = "1.32.9"
    with pytest.raises(ConfigError, match=r"1\.33"):
        await configured(server).open_index(vector_db(), create=True)
    assert not server.classes


@pytest.mark.parametrize("config", [{}, {"api_key": "wrong-key"}])
async def test_a_refused_key_is_said_without_the_key(
    server: StandIn, config: dict[str, Any]
) -> None:
    """No key and a wrong one are refused; a right one opens REST and gRPC; none is ever shown."""
    server.api_key = "right-key"
    with pytest.raises(ProviderError, match="refused the API key") as caught:
        await configured(server, **config).open_index(vector_db(), create=True)
    assert not caught.value.retryable
    assert "-key" not in str(caught.value)

    async with opened(server, config={"api_key": "right-key"}) as one:
        await one.add_chunks(chunks("a"), vectors(1))
        assert await found(one) == ["a"]
    assert "right-key" not in repr(WeaviateConfig.model_validate({"api_key": "right-key"}))


async def test_a_collection_that_is_gone_is_not_made_up(server: StandIn) -> None:
    """Once another process has dropped it, every call says so, and a write makes none.

    If this fails: the server makes up a collection for objects of an unknown name.
    """

    async with opened(server) as one:
        server.classes.clear()
        for call in (
            lambda: one.add_chunks(chunks("a"), vectors(1)),
            lambda: one.query([1, 0], mode="vector"),
            lambda: one.query(None, "zebra", mode="keyword"),
            one.count,
        ):
            with pytest.raises(NotFound):
                await call()
        assert not server.classes
    with pytest.raises(NotFound):
        await configured(server).open_index(vector_db())


@pytest.mark.parametrize("keep", [True, False])
async def test_calls_end_well_while_the_vector_db_is_dropped(server: StandIn, keep: bool) -> None:
    """Calls under way or later end with an answer or NotFound, another vector DB open or not.

    If this fails: the client is closed under a call, which then is cancelled, with no error of the
    contract.
    """

    async def ask(one: EngineIndex, mode: str) -> None:
        for _ in range(10):
            try:
                await one.query([1, 0], "zebra", mode=mode)
            except NotFound:
                return

    async with opened(server):
        before = asyncio.all_tasks()  # of the runner, which end after the test
        provider = configured(server)
        other = vector_db(identifier="other", created_at=3.0)
        kept = await provider.open_index(other, create=True) if keep else None
        for number in range(20):
            one = await provider.open_index(vector_db(created_at=10.0 + number), create=True)
            await one.add_chunks(chunks("a", "b"), vectors(2))
            asking = [ask(one, mode) for mode in 2 * ("vector", "keyword", "hybrid")]
            pause = asyncio.sleep(number / 1000)
            await asyncio.gather(*asking, _then(pause, one.delete))
        others = asyncio.all_tasks() - before  # legs whose sibling failed
        if others:
            await asyncio.wait(others, timeout=10)
        if kept is not None:
            await kept.close()
        await provider.close()


async def _then(first: Awaitable[None], work: Callable[[], Awaitable[None]]) -> None:
    await first
    await work()


async def test_dropping_twice_is_fine(server: StandIn) -> None:
    """A collection that is gone already can be dropped."""

    async with opened(server) as one:
        await one.delete()
        await one.delete()
