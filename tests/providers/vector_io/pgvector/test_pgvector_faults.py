"""remote::pgvector when PostgreSQL is stopped, killed, frozen or slow."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import psycopg
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import ProviderError, ProviderTimeout, Unavailable
from corral.providers.vector_io.pgvector.tables import Tables

from .conftest import Server
from .helpers import ask, embeddings, ids, opened, provider, some_chunks, vector_db


def test_a_stopped_server_is_unavailable_and_comes_back(server: Server) -> None:
    """Down: 503 that names the provider, within the timeout. Up again: it works, without a restart.

    If this fails after the start: dead connections stay in the pool, or it waits out a pause.
    """

    async def scenario() -> None:
        one = provider(server, connect_timeout_seconds=1)
        index = await one.open_index(vector_db(), create=True)
        await index.add_chunks(some_chunks(10), embeddings(10))
        query = embeddings(10)[2]
        await asyncio.gather(*(index.query(query, k=1, mode="vector") for _ in range(8)))
        server.stop()
        try:
            began = time.monotonic()
            for work in (
                index.query(query, "number2", k=1, mode="hybrid"),
                index.add_chunks(some_chunks(1), embeddings(1)),
                index.count(),
            ):
                with pytest.raises(Unavailable, match=r"^pgvector: ") as caught:
                    await work
                assert caught.value.retryable
            health = await one.health()
            assert (health.status, "pgvector: " in health.message) == ("Error", True)
            assert time.monotonic() - began < 10
        finally:
            server.start()
        answers = await asyncio.gather(
            *(index.query(query, "number2", k=1, mode="hybrid") for _ in range(8))
        )
        assert {tuple(ids(answer)) for answer in answers} == {("c00002",)}
        assert (await one.health()).status == "OK"
        await index.delete()

    asyncio.run(scenario())


def test_a_restart_between_two_requests_goes_unnoticed(server: Server) -> None:
    """Idle connections that a restart has closed cost a retry, not an error; writes too."""

    async def scenario() -> None:
        async with opened(server, vector_db()) as index:
            await index.add_chunks(some_chunks(4), embeddings(4))
            await asyncio.gather(*(index.count() for _ in range(8)))
            server.stop()
            server.start()
            await index.add_chunks(some_chunks(6), embeddings(6))
            assert await asyncio.gather(*(index.count() for _ in range(8))) == [6] * 8

    asyncio.run(scenario())


def test_a_crash_during_writes_loses_nothing_acknowledged(server: Server) -> None:
    """The server quits amid writes: acknowledged calls are there whole, others not in part."""

    async def scenario() -> None:
        one = provider(server, connect_timeout_seconds=1)
        index = await one.open_index(vector_db(), create=True)
        acknowledged: list[int] = []
        five = asyncio.Event()

        async def write() -> None:
            for number in range(10_000):
                chunks = [
                    Chunk(
                        content=f"part{part}",
                        chunk_id=f"{number}-{part}",
                        metadata={"document_id": f"d{number}"},
                    )
                    for part in range(10)
                ]
                await index.add_chunks(chunks, embeddings(10), replace_documents={f"d{number}"})
                acknowledged.append(number)
                if len(acknowledged) == 5:
                    five.set()

        writer = asyncio.create_task(write())
        await five.wait()
        server.stop(signal.SIGQUIT)
        try:
            with pytest.raises(ProviderError, match="pgvector"):
                await writer
        finally:
            server.start()
        count = await index.count()
        assert count in (10 * len(acknowledged), 10 * len(acknowledged) + 10)
        answer = await index.query(embeddings(1)[0], k=1000, mode="vector")
        assert len(answer.hits) == min(count, 1000)
        assert len((await index.query(None, "part7", k=1000, mode="keyword")).hits) == count // 10
        await index.delete()

    asyncio.run(scenario())


def test_a_statement_that_takes_too_long_is_a_timeout(server: Server) -> None:
    """A write that waits for another one longer than the timeout: 504, and nothing is stored."""

    async def scenario() -> None:
        db = vector_db()
        async with opened(server, db, statement_timeout_seconds=0.3) as index:
            name = Tables(db, "corral").name
            with psycopg.connect(server.dsn) as other:
                other.execute(f'UPDATE corral."{name}_state" SET count = count')
                with pytest.raises(ProviderTimeout, match=r"^pgvector: .*in time") as caught:
                    await index.add_chunks(some_chunks(1), embeddings(1))
                assert caught.value.retryable
                assert await index.count() == 0  # readers wait for nobody
                other.rollback()
            await index.add_chunks(some_chunks(1), embeddings(1))
            assert await index.count() == 1

    asyncio.run(scenario())


def test_a_frozen_server_is_a_timeout(server: Server) -> None:
    """A server process that neither answers nor hangs up: 504 in bounded time, then it goes on.

    If this fails: a request waits for ever, and a pool of such connections serves nobody.
    """

    async def scenario() -> None:
        settings: dict[str, Any] = {"statement_timeout_seconds": 0.3, "connect_timeout_seconds": 2}
        async with opened(server, vector_db(), **settings) as index:
            query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'corral'"
            pids = [pid for (pid,) in ask(server, query)]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                with pytest.raises(ProviderTimeout, match=r"^pgvector: "):
                    await index.count()
                assert time.monotonic() - began < 20
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            assert await index.count() == 0

    asyncio.run(scenario())


def test_a_cancelled_request_gives_its_connection_back(server: Server) -> None:
    """Callers that go away leave the pool as it was: the next requests are served."""

    async def scenario() -> None:
        async with opened(server, vector_db(), max_connections=2) as index:
            await index.add_chunks(some_chunks(50), embeddings(50))
            for _ in range(5):
                tasks = [asyncio.create_task(index.count()) for _ in range(6)]
                await asyncio.sleep(0.002)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert await asyncio.gather(*(index.count() for _ in range(6))) == [50] * 6

    asyncio.run(scenario())
