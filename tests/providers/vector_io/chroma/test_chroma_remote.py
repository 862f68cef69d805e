"""remote::chroma with servers that are shared with others, slow, or not what they should be."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import NotFound, ProviderError, ProviderTimeout, Unavailable
from corral.api.testing.oracle import Oracle
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.client import ChromaServer
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.provider import ChromaServerProvider
from corral.providers.vector_io.chroma.provider import create_remote as create

from ..installation_checks import check_installations, check_pruning_beside
from ..orphan_checks import check_orphans
from ..registrations import registration
from .conftest import Server


def registered(**settings: Any) -> VectorDB:
    """Return a registration that no other test uses."""
    return registration("farm", **{"created_at": time.time(), **settings})


def provider_of(url: str, folder: Path, **settings: Any) -> ChromaServerProvider:
    """Return a provider that gives up soon."""
    config = RemoteChromaConfig(url=url, folder=folder, timeout_seconds=5, **settings)
    return create("farm", config, folder)


async def test_two_installations_share_a_server(chroma_server: Server, tmp_path: Path) -> None:
    """Two processes' worth of indexes, each with its own mirror, write in turn at random.

    After every step both answer alike, and right by brute force; so do deletions that one makes.
    """
    vector_db = registered(language="simple", field_weights={"content": 1.0})
    oracle, rng = Oracle(vector_db), np.random.default_rng(1)

    both = [
        await provider_of(chroma_server.url, tmp_path / name).open_index(vector_db, create=True)
        for name in ("one", "two")
    ]
    for step in range(25):
        writer = both[int(rng.integers(2))]
        names = [f"c{n}" for n in rng.choice(10, size=2, replace=False)]
        if rng.random() < 0.3:
            await writer.delete_chunks(names)
            oracle.remove(names)
        else:
            chunks = [
                Chunk(chunk_id=n, content=" ".join(rng.choice(["ant", "bee", "cat"], 4)))
                for n in names
            ]
            rows = rng.normal(size=(2, 2))
            await writer.add_chunks(chunks, rows)
            oracle.add(chunks, rows)
        for index in both:
            assert await index.count() == len(oracle.chunks), step
            words = await index.query(query_string="ant bee", k=20, mode="keyword")
            expected = oracle.keyword("ant bee")
            assert oracle.complaint(words, expected, 20, 1e-6) == "", step
    await both[0].delete()
    with pytest.raises(NotFound):
        await both[1].count()
    await both[1].close()


async def test_a_write_and_a_query_take_few_requests(
    chroma_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write reads the version once, its rows and their texts; a query that finds few counts.

    If this fails: each is a round trip, which a far server makes dear.
    """
    provider = provider_of(chroma_server.url, tmp_path)
    index = await provider.open_index(registered(), create=True)
    await index.add_chunks([Chunk(chunk_id="a", content="x")], [[1, 0]])
    asked: list[str] = []
    request = ChromaServer.request

    def noted(server: ChromaServer, method: str, path: str, body: Any = None) -> Any:
        asked.append(path.rsplit("/", 1)[-1])
        return request(server, method, path, body)

    monkeypatch.setattr(ChromaServer, "request", noted)
    await index.add_chunks([Chunk(chunk_id="b", content="x")], [[0, 1]])
    assert asked == ["upsert", "get", "count", "get", "get"]
    asked.clear()
    assert len((await index.query([1, 0], mode="vector", k=10)).hits) == 2
    assert asked == ["query", "count", "get"]
    await index.delete()


def test_it_needs_no_chromadb() -> None:
    """The remote provider talks HTTP by itself; chromadb is not even imported."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from corral.providers.vector_io.chroma.config import RemoteChromaConfig\n"
        "from corral.providers.vector_io.chroma.provider import create_remote as create\n"
        "create('farm', RemoteChromaConfig(), Path('.'))\n"
        "assert 'chromadb' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- servers that are not what they should be -----------------------------------------------------


class Script(BaseHTTPRequestHandler):
    """Answers each request with the next of `answers`: (status, body), or None to hang up."""

    answers: list[tuple[int, str] | None]
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        """Answer."""
        self.seen.append(dict(self.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            self.close_connection = True
            return
        status, body = answer
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def scripted(*answers: tuple[int, str] | None) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a server that follows a script; give its url and the headers that it saw."""
    seen: list[dict[str, str]] = []
    handler = type("Scripted", (Script,), {"answers": list(answers), "seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def connected(url: str, **settings: Any) -> Iterator[ChromaServer]:
    """Lend a connection to a server."""
    server = ChromaServer("farm", RemoteChromaConfig(url=url, **settings))
    with server.http.using():
        yield server


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ProviderError),
        (404, NotFound),
        (413, ProviderError),
        (429, Unavailable),
        (500, ProviderError),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
def test_refusals_become_the_contracts_errors(status: int, error: type[Exception]) -> None:
    """Each status has its error; the message names the provider and quotes nothing of the body."""
    with scripted((status, '{"error": "X", "message": "secret text"}')) as (url, _):
        with connected(url) as server, pytest.raises(error, match="farm") as raised:
            server.request("GET", "/x")
        assert type(raised.value) is error
        assert "secret" not in str(raised.value)


def test_a_graph_that_a_kill_has_torn_is_said_with_what_to_do() -> None:
    """The message is as Chroma 1.5.9 answers to every call after such a kill.

    If this fails: somebody whose server was killed is told a number, and drops his vector DB.
    """
    told = "Error executing plan: Failed to apply logs to the hnsw segment writer"
    with (
        scripted((500, json.dumps({"error": "InternalError", "message": told}))) as (url, _),
        connected(url) as server,
        pytest.raises(ProviderError, match="cannot use its graph") as raised,
    ):
        server.request("GET", "/x")
    assert "inline::chroma" in raised.value.hint


def test_what_is_no_json_is_an_error() -> None:
    """A proxy's welcome page is not taken for an answer."""
    with (
        scripted((200, "<html>")) as (url, _),
        connected(url) as server,
        pytest.raises(ProviderError, match="farm"),
    ):
        server.request("GET", "/x")


def test_a_connection_that_breaks_is_tried_again() -> None:
    """Two hang-ups, then an answer: the caller notices nothing. With no retries it does."""
    with scripted(None, None, (200, "7")) as (url, seen), connected(url) as server:
        assert server.request("GET", "/x") == 7
        assert len(seen) == 3
    with (
        scripted(None, (200, "7")) as (url, _),
        connected(url, max_retries=0) as server,
        pytest.raises(Unavailable, match="farm"),
    ):
        server.request("GET", "/x")


def test_a_refusal_is_not_tried_again() -> None:
    """Only the connection is retried: what the server has answered stands."""
    with scripted((503, "{}"), (200, "7")) as (url, seen), connected(url) as server:
        with pytest.raises(Unavailable):
            server.request("GET", "/x")
        assert len(seen) == 1


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    """The port is open and nobody answers: a timeout after timeout_seconds, named, no sooner."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with connected(url, timeout_seconds=0.5) as server:
            before = time.monotonic()
            with pytest.raises(ProviderTimeout, match="farm"):
                server.request("GET", "/x")
            assert 0.4 < time.monotonic() - before < 10


@pytest.mark.parametrize(
    ("url", "checks"), [("http://a", False), ("https://a", True), ("HTTPS://a", True)]
)
def test_the_certificate_of_a_server_is_checked(
    monkeypatch: pytest.MonkeyPatch, url: str, checks: bool
) -> None:
    """However the scheme is written; plain http loads no certificates.

    If this fails with HTTPS://: anybody on the way can pass for the server.
    """
    seen: list[object] = []

    def client(**options: Any) -> httpx.Client:
        seen.append(options["verify"])
        raise httpx.ConnectError("")

    with connected(url, max_retries=0) as server:
        monkeypatch.setattr(httpx, "Client", client)
        with pytest.raises(Unavailable):
            server.request("GET", "/x")
    assert seen == [checks]


def test_headers_are_sent_and_not_shown() -> None:
    """A key reaches the server with every request, and no representation of the settings."""
    headers = {"x-chroma-token": "s3cret"}
    with scripted((200, "1")) as (url, seen):
        config = RemoteChromaConfig.model_validate({"url": url, "headers": headers})
        server = ChromaServer("farm", config)
        with server.http.using():
            server.request("GET", "/x")
    assert seen[0]["x-chroma-token"] == "s3cret"
    assert "s3cret" not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ftp://host"},
        {"url": "http://user:pw@host"},
        {"url": "http://host?x=1"},
        {"url": "nonsense"},
        {"headers": {"x": "line\nbreak"}},
        {"timeout_seconds": 0},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    """At start, by name, and not at the first query."""
    with pytest.raises(ValidationError):
        RemoteChromaConfig.model_validate(settings)


async def test_an_orphan_is_found_and_removed(chroma_server: Server, tmp_path: Path) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays."""
    await check_orphans(provider_of(chroma_server.url, tmp_path))


async def test_installations_delete_only_their_own(chroma_server: Server, tmp_path: Path) -> None:
    """Each lists the other's vector DBs with its id, deletes them by that id only, and may register
    while the other prunes.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    config = {"url": chroma_server.url}
    await check_installations(tmp_path, "remote::chroma", config)
    await check_pruning_beside(tmp_path, "remote::chroma", config)
