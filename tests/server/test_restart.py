"""The server as a process: stopped, started again, killed; what it acknowledged is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.api.errors import ConfigError, UnknownProvider
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.server.serving import serve

from .harness import Json, ServerProcess, id_path, wait_until

REGISTRATION: Json = {
    "vector_db_id": "org/docs 🦊",
    "embedding_model": "hashing",
    "search_mode": "keyword",
    "ranker": {"type": "weighted", "alpha": 0.3},
    "language": "no",
    "metric": "l2",
    "normalize": False,
    "field_weights": {"content": 1.0, "headline": 3.0},
    "chunking": {"chunk_size_in_tokens": 128, "overlap_in_tokens": 16},
    "vector_db_name": "Documents",
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """Yield a list of started servers; what is left of them is ended."""
    started = [ServerProcess(tmp_path)]
    yield started
    for server in started:
        server.kill()


def call(server: ServerProcess, method: str, path: str, body: Json | None = None) -> Any:
    """Send a request that has to succeed and return what it answered."""
    response = httpx.request(method, server.url + path, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def test_everything_is_there_after_a_restart(tmp_path: Path, servers: list[ServerProcess]) -> None:
    """Registrations with all their settings, chunks and answers outlive the process."""
    first = servers[0]
    registered = call(first, "POST", "/v1/vector-dbs", REGISTRATION)
    db = registered["identifier"]
    chunks = [
        {"content": f"reven nummer {n}", "metadata": {"document_id": str(n)}} for n in range(9)
    ]
    call(first, "POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": chunks})
    question = {"vector_db_id": db, "query": "rev nummer 3", "params": {"explain": True}}
    answer = call(first, "POST", "/v1/vector-io/query", question)
    assert answer["chunks"]
    # Equal hits of two vector DBs: the next process hashes strings to other numbers.
    call(first, "POST", "/v1/vector-dbs", {**REGISTRATION, "vector_db_id": "twin"})
    call(first, "POST", "/v1/vector-io/insert", {"vector_db_id": "twin", "chunks": chunks})
    config = {"max_chunks": 18, "deduplicate": False}
    both = {"content": "rev", "vector_db_ids": ["twin", db], "query_config": config}
    context = call(first, "POST", "/v1/tool-runtime/rag-tool/query", both)
    assert len(set(context["metadata"]["vector_db_ids"])) == 2
    assert "Application shutdown complete" in first.stop()

    servers.append(ServerProcess(tmp_path))
    assert call(servers[1], "GET", id_path(db)) == registered
    assert {**registered, **REGISTRATION, "language": "norwegian"} | {"ranker": ()} == {
        **registered, "vector_db_id": db, "ranker": (),
    }  # fmt: skip
    assert call(servers[1], "POST", "/v1/vector-io/query", question) == answer
    assert call(servers[1], "POST", "/v1/tool-runtime/rag-tool/query", both) == context
    assert call(servers[1], "POST", "/v1/vector-dbs", REGISTRATION) == registered


RAG_INSERT = "/v1/tool-runtime/rag-tool/insert"


def insert(number: int, db: str) -> Json:
    """Return the insert of a document that becomes many chunks, each with the document's number."""
    text = " ".join(f"fox {number} part {part}." for part in range(600))
    document = {"document_id": f"d{number}", "content": text, "metadata": {}}
    return {"vector_db_id": db, "documents": [document], "chunk_size_in_tokens": 32}


def stored(server: ServerProcess, number: int, db: str) -> list[str]:
    """Return the texts of a document's chunks."""
    only = {"type": "eq", "key": "document_id", "value": f"d{number}"}
    params = {"mode": "vector", "max_chunks": 1000, "filters": only}
    question = {"vector_db_id": db, "query": "fox", "params": params}
    found = call(server, "POST", "/v1/vector-io/query", question)
    return sorted(chunk["content"] for chunk in found["chunks"])


def test_kill_9_during_inserts_leaves_whole_documents(
    tmp_path: Path, servers: list[ServerProcess]
) -> None:
    """After a kill the server starts, every acknowledged document is there, and each is whole.

    If this fails: a document comes in by more than one transaction, or is acknowledged too early.
    """
    first = servers[0]
    call(first, "POST", "/v1/vector-dbs", {"vector_db_id": "db", "embedding_model": "hashing"})
    acknowledged: list[int] = []

    def write() -> None:
        with suppress(httpx.HTTPError):
            for number in range(10_000):
                body = insert(number, "db")
                httpx.post(first.url + RAG_INSERT, json=body, timeout=60).raise_for_status()
                acknowledged.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    wait_until(lambda: len(acknowledged) >= 2)
    first.kill()
    writer.join(timeout=60)

    second = ServerProcess(tmp_path)
    servers.append(second)
    call(second, "POST", "/v1/vector-dbs", {"vector_db_id": "w", "embedding_model": "hashing"})
    for number in range(acknowledged[-1] + 3):
        call(second, "POST", RAG_INSERT, insert(number, "w"))
        whole = stored(second, number, "w")
        assert len(whole) > 50
        assert stored(second, number, "db") in ([whole] if number in acknowledged else [[], whole])


def test_a_configuration_that_cannot_work_is_an_error_before_anything_listens(
    tmp_path: Path,
) -> None:
    """A wrong provider type is refused with the nearest one, not logged as a traceback."""
    wrong = ProviderEntry(provider_id="sqlite", provider_type="inline::sqlit")
    config = RunConfig(providers=Providers(vector_io=[wrong]))
    with pytest.raises(UnknownProvider, match="inline::sqlite"):
        serve(config, tmp_path)


def test_a_data_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names the folder and how to choose another."""
    (tmp_path / "file").write_text("where a folder should be")
    with pytest.raises(ConfigError, match=r"data folder .*file.* CORRAL_HOME"):
        serve(RunConfig(), tmp_path / "file" / "home")
