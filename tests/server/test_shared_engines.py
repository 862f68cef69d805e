"""Two servers with one state and one remote engine: both write, and one of them may die."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psycopg
import pytest

from corral.providers.base.config import RunConfig
from corral.providers.state.opening import SCHEMA

from ..providers.conftest import url_of
from ..providers.vector_io import real_server
from ..providers.vector_io.chroma.conftest import Server as ChromaServer
from ..providers.vector_io.milvus.conftest import Server as MilvusServer
from ..providers.vector_io.opensearch.real_server import MISSING, OpenSearchServer
from ..providers.vector_io.pgvector.conftest import Server, postgresql
from ..providers.vector_io.qdrant.conftest import stand_in as qdrant_stand_in
from ..providers.vector_io.qdrant.real_server import QdrantServer
from ..providers.vector_io.weaviate.conftest import stand_in as weaviate_stand_in
from ..providers.vector_io.weaviate.real_server import WeaviateServer
from .harness import Json, ServerProcess, live_server, run_config, wait_until

ENGINES = ["pgvector", "chroma", "qdrant", "milvus", "weaviate", "opensearch"]
FRESH_SECONDS = 1
FINISH_SECONDS = 240
"""More than a sweep and a lease take."""
DB = {"vector_db_id": "shared", "embedding_model": "hashing", "provider_id": "far"}


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """Yield the server with the state."""
    with postgresql() as server:
        yield server


@contextmanager
def engine(name: str, database: Server) -> Iterator[Json]:
    """Run an engine, and yield the settings of its provider."""
    with ExitStack() as stack:
        if name == "pgvector":
            yield database.config
        elif name == "opensearch":
            if not OpenSearchServer.found():
                pytest.skip(MISSING)
            yield stack.enter_context(real_server.started(OpenSearchServer)).config
        elif name == "qdrant":
            yield stack.enter_context(real_server.running(QdrantServer, qdrant_stand_in))
        elif name == "weaviate":
            yield stack.enter_context(real_server.running(WeaviateServer, weaviate_stand_in))
        else:
            folder = stack.enter_context(real_server.folder_in_memory())
            own = ChromaServer(folder) if name == "chroma" else MilvusServer(folder)
            stack.callback(own.kill)
            own.start()
            yield {"url": own.url} if isinstance(own, ChromaServer) else {"uri": own.uri}


def config_of(name: str, settings: Json, database: Server) -> RunConfig:
    """Return the configuration of servers with an empty state."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    far = {"provider_id": "far", "provider_type": f"remote::{name}", "config": settings}
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    providers = {"vector_io": [far], "embedding": [hashing]}
    return run_config(state=url_of(database), providers=providers)


def post(url: str, path: str, body: Any) -> Any:
    """Send a request that has to succeed."""
    answer = httpx.post(f"{url}{path}", json=body, timeout=120)
    assert answer.is_success, answer.text
    return answer.json()


def write(url: str, name: str, version: int, chunks: int = 4) -> None:
    """Store a version of a document."""
    document = {"document_id": name, "content": f"version {version} " * (8 * chunks)}
    body = {"vector_db_id": "shared", "documents": [document], "chunk_size_in_tokens": 16}
    post(url, "/v1/tool-runtime/rag-tool/insert", body)


def versions(url: str, name: str) -> set[str]:
    """Return the versions in the chunks of a document."""
    answer = httpx.get(f"{url}/v1/vector-dbs/shared/documents/{name}?limit=1000", timeout=120)
    if answer.is_error:
        assert answer.json()["error"]["code"] == "not_found", answer.text
        return set()
    words = [chunk["content"].split() for chunk in answer.json()["chunks"]]
    return {word for content in words for word in content if word != "version"}


def hits(url: str) -> set[str]:
    """Return the ids of the documents that a query finds."""
    question = {"vector_db_id": "shared", "query": "version", "params": {"max_chunks": 100}}
    chunks = post(url, "/v1/vector-io/query", question)["chunks"]
    return {chunk["metadata"]["document_id"] for chunk in chunks}


def unfinished(database: Server) -> int:
    """Return the number of logged writes."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        query = f"SELECT count(*) FROM {SCHEMA}.writes WHERE entry IS NOT NULL"
        [(count,)] = connection.execute(query.encode()).fetchall()
        return int(count)


@pytest.mark.parametrize("name", ENGINES)
def test_two_servers_share_an_engine(tmp_path: Path, database: Server, name: str) -> None:
    """Each server reads, replaces and deletes what the other wrote, also at the same time.

    If this fails: a replica answers from what it remembers, or two replicas write to one vector DB
    at the same time, and a document has chunks of two versions, or of none.
    """
    with ExitStack() as stack:
        config = config_of(name, stack.enter_context(engine(name, database)), database)
        one = stack.enter_context(live_server(config, tmp_path / "a"))
        other = stack.enter_context(live_server(config, tmp_path / "b"))
        post(one, "/v1/vector-dbs", DB)
        write(one, "d0", 1)
        wait_until(lambda: httpx.get(f"{other}/v1/vector-dbs/shared").is_success, FRESH_SECONDS)
        assert versions(other, "d0") == {"1"}
        write(other, "d0", 2, chunks=2)
        write(other, "d1", 3)
        assert (versions(one, "d0"), versions(one, "d1")) == ({"2"}, {"3"})
        assert hits(one) == hits(other) == {"d0", "d1"}

        def replace(number: int) -> None:
            url = one if number % 4 < 2 else other
            write(url, f"d{number % 2}", 10 + number, chunks=2 + 6 * (number % 3))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(replace, range(12)))
        for document in ("d0", "d1"):
            assert len(versions(one, document)) == 1
            assert versions(one, document) == versions(other, document)
        httpx.delete(f"{other}/v1/vector-dbs/shared/documents/d0", timeout=120).raise_for_status()
        assert (versions(one, "d0"), hits(one)) == (set(), {"d1"})
        assert unfinished(database) == 0
        httpx.delete(f"{one}/v1/vector-dbs/shared", timeout=120).raise_for_status()
        wait_until(lambda: httpx.get(f"{other}/v1/vector-dbs/shared").is_error, FRESH_SECONDS)


def test_a_write_that_a_kill_cuts_off_is_finished_by_another_server(
    tmp_path: Path, database: Server
) -> None:
    """A document is whole again without a further write, and nothing acknowledged is lost.

    The first server is killed while the log has its write.

    If this fails: after a crash, questions find half of a document until somebody writes.
    """
    done, stopped, acknowledged = Event(), Event(), [0]

    def replace(url: str) -> None:
        while not stopped.is_set():
            try:
                write(url, "d", acknowledged[-1] + 1, chunks=40)
            except httpx.TransportError:
                break
            acknowledged.append(acknowledged[-1] + 1)
        done.set()

    with ExitStack() as stack:
        config = config_of("chroma", stack.enter_context(engine("chroma", database)), database)
        (tmp_path / "a").mkdir()
        dying = ServerProcess(tmp_path / "a", config)
        stack.callback(dying.kill)
        other = stack.enter_context(live_server(config, tmp_path / "b"))
        post(dying.url, "/v1/vector-dbs", DB)
        write(dying.url, "whole", 7)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(replace, dying.url)
            stack.callback(stopped.set)
            wait_until(lambda: len(acknowledged) > 2 and unfinished(database) > 0, FINISH_SECONDS)
            dying.send_signal(signal.SIGSTOP)
            left = unfinished(database)
            dying.kill()
            assert done.wait(60)
        wait_until(lambda: unfinished(database) == 0, FINISH_SECONDS)
        last = acknowledged[-1]
        assert versions(other, "d") in (
            [{f"{last + 1}"}] if left else [{f"{last}"}, {f"{last + 1}"}]
        )
        assert versions(other, "whole") == {"7"}
