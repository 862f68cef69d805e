"""A backend's server is killed or frozen while Corral serves: the others go on, and it comes back.

All over HTTP, on real servers; what each provider does by itself is in `tests/providers/vector_io`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from corral.providers.base.config import ProviderEntry

from ..providers.vector_io.chroma.conftest import Server as Chroma
from ..providers.vector_io.milvus.conftest import Server as Milvus
from ..providers.vector_io.pgvector.conftest import postgresql
from ..providers.vector_io.real_server import folder_in_memory
from ..providers.vector_io.server_faults import Killable
from .harness import InProcess, Json, message_of, run_config

INSERT, QUERY = "/v1/vector-io/insert", "/v1/vector-io/query"
RAG_QUERY = "/v1/tool-runtime/rag-tool/query"
TIMEOUT_SECONDS = 3
MOST_SECONDS = 40
"""Longest answer about a server that is gone: its timeout, and what a busy machine adds."""

Backend = tuple[Killable, ProviderEntry]


@pytest.fixture(params=["chroma", "milvus", "pgvector"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield a server that is not running, and the entry of the provider `farm`, which uses it."""
    with ExitStack() as stack:
        server: Chroma | Milvus
        if request.param == "pgvector":
            database = stack.enter_context(postgresql())
            seconds = dict.fromkeys(
                ("connect_timeout_seconds", "statement_timeout_seconds"), TIMEOUT_SECONDS
            )
            database.kill()
            yield database, entry("remote::pgvector", **database.config, **seconds)
            return
        folder = stack.enter_context(folder_in_memory())
        if request.param == "chroma":
            server = Chroma(folder)
            config = {"url": server.url}
        else:
            server = Milvus(folder)
            config = {"uri": server.uri}
        stack.callback(server.kill)
        yield server, entry(f"remote::{request.param}", timeout_seconds=TIMEOUT_SECONDS, **config)


def entry(provider_type: str, **config: object) -> ProviderEntry:
    """Return the configuration of `farm`."""
    return ProviderEntry(provider_id="farm", provider_type=provider_type, config=config)


@pytest.fixture
def app(backend: Backend, tmp_path: Path) -> Iterator[InProcess]:
    """Yield Corral with `near` on SQLite; `farm` is configured, and its server is down."""
    config = run_config()
    config.providers.vector_io.append(backend[1])
    with InProcess(tmp_path, config) as started:
        started.register("near")
        started.insert("the fox sleeps", db="near")
        yield started


def start(server: Killable) -> None:
    """Start a server and wait until it answers."""
    server.launch()
    server.wait()


def insert(db: str, *contents: str) -> tuple[str, Json]:
    """Return the request that inserts chunks whose ids are their contents."""
    chunks = [{"content": content, "chunk_id": content} for content in contents]
    return INSERT, {"vector_db_id": db, "chunks": chunks}


def query(db: str, mode: str = "hybrid") -> tuple[str, Json]:
    """Return the request that asks for foxes."""
    params = {"mode": mode, "max_chunks": 1000}
    return QUERY, {"vector_db_id": db, "query": "fox", "params": params}


def rag_query(*dbs: str) -> tuple[str, Json]:
    """Return the request that asks the RAG tool for foxes."""
    return RAG_QUERY, {"content": "fox", "vector_db_ids": list(dbs)}


class Asked:
    """Requests that are under way at the same time, how they end and how long they take."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ok(self, request: tuple[str, Json]) -> float:
        """Send a request that has to succeed; return the seconds."""
        began = time.monotonic()
        response = await self._http.post(request[0], json=request[1])
        assert response.status_code == 200, response.text
        return time.monotonic() - began

    async def refused(
        self, request: tuple[str, Json], *statuses: int, within: float = MOST_SECONDS
    ) -> float:
        """Send a request that has to end with one of these statuses and the provider's name."""
        began = time.monotonic()
        response = await self._http.post(request[0], json=request[1])
        assert response.status_code in statuses, response.text
        assert "farm" in message_of(response)
        assert response.json()["error"]["code"] in {"unavailable", "provider_timeout"}
        assert time.monotonic() - began < within
        return time.monotonic() - began


def test_a_killed_backend(backend: Backend, app: InProcess) -> None:
    """503 with the provider's name; SQLite answers all the while; back without a restart of Corral.

    It is down when Corral starts, comes up, is killed during inserts and started again: what Corral
    acknowledged is there. While it is down, an answer from it is a refusal and never an empty one.
    """
    server = backend[0]
    refused = app.send("POST", "/v1/vector-dbs", registration("far"))
    assert (refused.status_code, "farm" in message_of(refused)) == (503, True)
    start(server)
    app.register("far", provider_id="farm")
    acknowledged: list[str] = []

    async def insert_until_refused() -> None:
        while True:
            names = [f"fox {len(acknowledged) + n}" for n in range(3)]
            request = insert("far", *names)
            response = await app.http.post(request[0], json=request[1])
            if response.status_code != 200:
                assert response.status_code == 503, response.text
                assert "farm" in message_of(response)
                return
            acknowledged.extend(names)

    async def scenario() -> None:
        asked = Asked(app.http)
        inserts = asyncio.create_task(insert_until_refused())
        while len(acknowledged) < 30:
            await asked.ok(query("near"))
        server.kill()
        await asyncio.gather(
            inserts,
            *(asked.refused(query("far", mode), 503) for mode in ("vector", "keyword", "hybrid")),
            asked.refused(rag_query("near", "far"), 503),
            *(asked.ok(query("near")) for _ in range(4)),
            asked.ok(insert("near", "a fox by itself")),
            asked.ok(rag_query("near")),
        )

    app.run(scenario)
    assert health(app) == {"near": "OK", "farm": "Error"}
    messages = [{"role": "user", "content": "fox"}]
    for stream in (False, True):
        questions: dict[str, Json] = {
            "responses": {"input": "fox"},
            "chat/completions": {"messages": messages},
        }
        for path, question in questions.items():
            body = {"model": "corral/near+far", "stream": stream, **question}
            unanswered = app.send("POST", f"/v1/{path}", body)
            assert unanswered.status_code == 503, unanswered.text
            assert unanswered.json()["error"]["code"] == "vector_store_unavailable"
    start(server)
    for mode in ("vector", "keyword", "hybrid"):
        found = app.ok("POST", *query("far", mode))
        assert {chunk["content"] for chunk in found["chunks"]} >= set(acknowledged)
    app.ok("POST", *insert("far", "fox again"))
    assert health(app) == {"near": "OK", "farm": "OK"}


def test_a_frozen_backend(backend: Backend, app: InProcess) -> None:
    """Forty queries and more inserts than work at once wait for a server that says nothing: SQLite
    answers while they do, and each of them ends with 503 or 504, the provider's name, in time.

    If this fails: requests to the frozen server hold what all need, such as threads or slots.
    """
    server = backend[0]
    start(server)
    app.register("far", provider_id="farm")
    app.ok("POST", *insert("far", "fox 1"))
    server.freeze()

    async def scenario() -> None:
        asked = Asked(app.http)
        far = [asyncio.create_task(asked.refused(query("far"), 503, 504)) for _ in range(40)]
        for _ in range(6):  # two of which wait for a slot, and then for the server
            refused = asked.refused(insert("far", "fox 2"), 503, 504, within=2 * MOST_SECONDS)
            far.append(asyncio.create_task(refused))
        await asyncio.sleep(0.2)
        await asked.ok(query("near"))
        await asked.ok(insert("near", "another fox"))
        assert not any(task.done() for task in far)
        await asyncio.gather(*far)

    try:
        app.run(scenario)
    finally:
        server.thaw()
    found = app.ok("POST", *query("far"))
    assert {chunk["content"] for chunk in found["chunks"]} >= {"fox 1"}
    app.ok("POST", *insert("far", "fox 3"))


def registration(db: str) -> Json:
    """Return the request that registers a vector DB on `farm`."""
    return {"vector_db_id": db, "embedding_model": "hashing", "provider_id": "farm"}


def health(app: InProcess) -> dict[str, str]:
    """Return what the health checks of both vector databases say."""
    found = {
        one["provider_id"]: one["health"]
        for one in app.ok("GET", "/v1/providers")["data"]
        if one["api"] == "vector_io"
    }
    assert found["farm"]["status"] == "OK" or "farm" in found["farm"]["message"]
    return {"near": found["sqlite"]["status"], "farm": found["farm"]["status"]}
