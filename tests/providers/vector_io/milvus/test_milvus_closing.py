"""Milvus's collections when they are closed or dropped with calls at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.errors import CorralError, NotFound, Unavailable
from corral.providers.vector_io.milvus.engine import MilvusEngine
from corral.providers.vector_io.milvus.provider import MilvusProvider

from .conftest import Server
from .helpers import lite, registered, remote, words

ROUNDS = 4
CHUNKS = words({f"c{number}": "zebra" for number in range(20)})
EMBEDDINGS = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)


@pytest.fixture(params=["lite", "server"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> MilvusProvider:
    """Return a provider, in this process or at a server."""
    if request.param == "lite":
        return lite(tmp_path)
    server: Server = request.getfixturevalue("milvus_server")
    return remote(server.uri)


def opened(provider: MilvusProvider) -> MilvusEngine:
    """Return an index with some chunks, opened in this thread."""
    index = provider._open(registered(), True)
    index._write(CHUNKS, EMBEDDINGS, frozenset())
    return index


def calls_of(index: MilvusEngine) -> list[Callable[[], Any]]:
    """Return calls as they run in threads, whoever has gone away meanwhile."""
    return [
        lambda: index._propose(EMBEDDINGS[0], 3, index._expression(None), 3),
        lambda: index._write(CHUNKS[:2], EMBEDDINGS[:2], frozenset()),
        lambda: index._delete_stored(["c1"]),
        lambda: index._read(["c1", "c2"], True),
        lambda: index._ids_after("", 5),
        lambda: index._keywords.statistics(),
    ]


def failures_during(
    index: MilvusEngine, end: Callable[[], None]
) -> set[tuple[type[Exception], str]]:
    """Return how calls failed that ran while the index was closed or dropped, and afterwards."""
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

    threads = [threading.Thread(target=work, args=(call,)) for call in calls_of(index)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    end()
    ended.set()
    for thread in threads:
        thread.join()
    return failures


def test_calls_at_work_outlive_a_close(provider: MilvusProvider) -> None:
    """The last index is closed with calls at work: each call is answered or refused with the
    contract's error, none opens the connection again, and the next index works.

    If this fails: the channel is closed under a call, whose answer is then a 502.
    """
    for _ in range(ROUNDS):
        index = opened(provider)
        failures = failures_during(index, index._collection.connection.client.leave)
        assert {kind for kind, _ in failures} == {Unavailable}
        assert all("closed" in message for _, message in failures)
        assert provider._connection.client._client is None


def test_a_dropped_collection_is_not_found(provider: MilvusProvider) -> None:
    """Calls at work while the collection is dropped are answered or say that it is gone, with
    another vector DB open and without.
    """
    for number in range(ROUNDS):
        other = opened(provider) if number % 2 else None
        index = opened(provider)
        failures = failures_during(index, index._drop_collection)
        assert {kind for kind, _ in failures} <= {NotFound, Unavailable}
        for call in calls_of(index)[:3]:
            with pytest.raises(CorralError) as raised:
                call()
            assert type(raised.value) in {NotFound, Unavailable}
        if other is not None:
            other._drop_collection()
        assert provider._connection.client._client is None
