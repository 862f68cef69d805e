"""remote::pgvector when PostgreSQL is stopped, killed, frozen or slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from corral.api.errors import ProviderTimeout
from corral.providers.vector_io.pgvector import SPEC
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.keyword.maxscore import Bm25Search
from corral.providers.vector_io.pgvector.provider import PgvectorProvider, create
from corral.providers.vector_io.pgvector.records import Tables

from ..engines import engine_of
from ..server_faults import PROVIDER_ID, ServerFaults
from .conftest import Server
from .helpers import embeddings, opened, some_chunks, vector_db


class TestPostgresql(ServerFaults[Server]):
    """Killed and frozen, all of its processes."""

    capabilities = SPEC.capabilities

    def provider(self, server: Server, folder: Path) -> PgvectorProvider:
        seconds = {"connect_timeout_seconds": 2, "statement_timeout_seconds": 2}
        return create(PROVIDER_ID, PgvectorConfig.model_validate(server.config | seconds), folder)


async def test_a_restart_between_two_requests_goes_unnoticed(server: Server) -> None:
    """Idle connections that a restart has closed cost a retry, not an error; writes too."""

    async with opened(server, vector_db()) as index:
        await index.add_chunks(some_chunks(4), embeddings(4))
        await asyncio.gather(*(index.count() for _ in range(8)))
        server.stop()
        server.start()
        await index.add_chunks(some_chunks(6), embeddings(6))
        assert await asyncio.gather(*(index.count() for _ in range(8))) == [6] * 8


async def test_a_statement_that_takes_too_long_is_a_timeout(server: Server) -> None:
    """A write that waits for another one longer than the timeout: 504, and nothing is stored."""

    db = vector_db()
    async with opened(server, db, statement_timeout_seconds=2) as index:
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


async def test_a_cancelled_request_gives_its_connection_back(server: Server) -> None:
    """Callers that go away leave the pool as it was: the next requests are served."""

    async with opened(server, vector_db(), max_connections=2) as index:
        await index.add_chunks(some_chunks(50), embeddings(50))
        for _ in range(5):
            tasks = [asyncio.create_task(index.count()) for _ in range(6)]
            await asyncio.sleep(0.002)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert await asyncio.gather(*(index.count() for _ in range(6))) == [50] * 6


async def test_a_search_cancelled_between_its_statements_gives_its_connection_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is ended, and the next request has the same connection.

    If this fails: each caller who goes away costs a new connection.
    """

    async def backend(connection: Connection) -> int:
        return connection.info.backend_pid

    async def gone(*_: object) -> None:
        raise asyncio.CancelledError

    async with opened(server, vector_db(), max_connections=1) as index:
        await index.add_chunks(some_chunks(9), embeddings(9))
        before = await engine_of(index).database.run(backend)
        for mode in ("keyword", "hybrid"):
            with monkeypatch.context() as patched:
                patched.setattr(Bm25Search, "statement", gone)
                with pytest.raises(asyncio.CancelledError):
                    await index.query(embeddings(1)[0], "herd", k=3, mode=mode)
            assert await engine_of(index).database.run(backend) == before
            answer = await index.query(embeddings(1)[0], "herd", k=3, mode=mode)
            assert len(answer.hits) == 3
