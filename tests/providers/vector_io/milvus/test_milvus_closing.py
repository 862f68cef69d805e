"""Milvus's collections when they are closed or dropped during calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.errors import CorralError, NotFound, Unavailable
from corral.providers.vector_io.milvus.engine import MilvusEngine
from corral.providers.vector_io.milvus.provider import MilvusProvider

from ..engines import engine_of
from .conftest import Server
from .helpers import lite, registered, remote, words

ROUNDS = 4
CHUNKS = words({f"c{number}": "zebra" for number in range(20)})
EMBEDDINGS = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)

Call = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["lite", "server"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> MilvusProvider:
    """Return a provider, in this process or at a server."""
    if request.param == "lite":
        return lite(tmp_path)
    server: Server = request.getfixturevalue("milvus_server")
    return remote(server.uri)


async def opened(provider: MilvusProvider) -> MilvusEngine:
    """Return the engine of a new index with some chunks."""
    engine: MilvusEngine = engine_of(await provider.open_index(registered(), create=True))
    await engine.add(CHUNKS, EMBEDDINGS, frozenset())
    return engine


def calls_of(engine: MilvusEngine) -> list[Call]:
    """Return calls of an engine."""
    return [
        lambda: engine.search_vector(EMBEDDINGS[0], 3, None),
        lambda: engine.add(CHUNKS[:2], EMBEDDINGS[:2], frozenset()),
        lambda: engine.delete(["c1"]),
        lambda: engine.get(["c1", "c2"], True),
        lambda: engine.chunk_ids("", 5),
        lambda: engine.term_statistics("zebra", False),
    ]


async def failures_during(engine: MilvusEngine, end: Call) -> list[CorralError]:
    """Return the errors of calls that ran while the index was closed or dropped, and afterwards."""
    ended = asyncio.Event()
    failures: list[CorralError] = []

    async def repeat(call: Call) -> None:
        last = False
        while not last:
            last = ended.is_set()
            try:
                await call()
            except CorralError as error:
                failures.append(error)

    calls = [asyncio.create_task(repeat(call)) for call in calls_of(engine)]
    await asyncio.sleep(0.05)
    await end()
    ended.set()
    await asyncio.gather(*calls)
    return failures


async def test_running_calls_outlive_a_close(provider: MilvusProvider) -> None:
    """The last index is closed during calls: each call is answered or refused with the contract's
    error, none opens the connection again, and the next index works.

    If this fails: the channel is closed under a call, whose answer is then a 502.
    """
    for _ in range(ROUNDS):
        engine = await opened(provider)
        failures = await failures_during(engine, engine.close)
        assert {type(error) for error in failures} == {Unavailable}
        assert all("closed" in str(error) for error in failures)
        assert not provider.connection.client.is_open


async def test_a_dropped_collection_is_not_found(provider: MilvusProvider) -> None:
    """Calls that run while the collection is dropped are answered or say that it is gone, with
    another vector DB open and without.
    """
    for number in range(ROUNDS):
        other = await opened(provider) if number % 2 else None
        engine = await opened(provider)
        failures = await failures_during(engine, engine.drop)
        assert {type(error) for error in failures} <= {NotFound, Unavailable}
        for call in calls_of(engine)[:3]:
            with pytest.raises(CorralError) as raised:
                await call()
            assert type(raised.value) in {NotFound, Unavailable}
        if other is not None:
            await other.drop()
        assert not provider.connection.client.is_open
