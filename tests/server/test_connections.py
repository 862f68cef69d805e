"""Connections: their socket options, and how a server stops."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from corral.server.app import create_app
from corral.server.connection import Connection

from ..chat_service import Pause, Script, running_chat, said
from .harness import JSON, START_SECONDS, Json, ServerProcess, run_config, wait_until
from .openai.answers import with_model


def test_an_accepted_connection_sends_at_once(tmp_path: Path) -> None:
    """A connection has TCP_NODELAY, on asyncio and the socket that several processes share.

    If this fails: with `--workers`, a request takes 40 ms where acknowledgements are delayed.
    """
    app = create_app(run_config(), tmp_path)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, loop="asyncio", http=Connection, log_config=None
    )
    server = uvicorn.Server(config)
    shared = config.bind_socket()  # as uvicorn binds it for several processes
    assert shared.proto == 0
    thread = threading.Thread(target=server.run, kwargs={"sockets": [shared]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        url = f"http://127.0.0.1:{shared.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=60) as client:
            client.get("/v1/health").raise_for_status()
            (connection,) = server.server_state.connections
            assert isinstance(connection, Connection)
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        shared.close()


@pytest.fixture(params=[1, 2])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Yield a server of one process, and of two, whose processes are ready."""
    workers: int = request.param
    running = ServerProcess(tmp_path, workers=workers)
    try:
        ready = "startup complete"
        wait_until(lambda: running.log.read_text().count(ready) >= workers, START_SECONDS)
        yield running
    finally:
        running.stop()  # killed, it would leave its processes behind


@contextmanager
def connected(server: ServerProcess) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection that the server keeps alive after a first answer."""
    address = httpx.URL(server.url)
    connection = http.client.HTTPConnection(address.host, address.port or 0, timeout=60)
    with closing(connection):
        connection.request("GET", "/v1/health")
        answer = connection.getresponse()
        assert answer.getheader("connection") is None
        assert answer.read()
        yield connection


def test_a_stopping_server_closes_its_connections(server: ServerProcess) -> None:
    """An answer after SIGTERM has `Connection: close`; idle connections are closed.

    If this fails: a client sends its next request on a connection that is about to close, and gets
    an error for each server that is replaced.
    """
    with connected(server) as busy, connected(server) as idle:
        body = b'{"vector_db_id": "db", "embedding_model": "hashing"}'
        busy.putrequest("POST", "/v1/vector-dbs")
        for name, value in {**JSON, "content-length": str(len(body))}.items():
            busy.putheader(name, value)
        busy.endheaders(body[:10])
        server.terminate()
        wait_until(lambda: "Waiting for connections to close" in server.log.read_text())
        busy.send(body[10:])
        answer = busy.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        assert answer.read()
        assert idle.sock is not None
        assert idle.sock.recv(1) == b""
    assert server.wait() == 0
    assert "Application shutdown complete" in server.log.read_text()


DRAIN_SECONDS = 3.0
LARGE = bytes(range(256)) * 2**17
"""32 MiB: more than the buffers between two processes hold."""


@pytest.fixture(params=[1, 2])
def draining(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Yield a server of one process, and of two, that goes on serving after SIGTERM."""
    workers: int = request.param
    config = run_config()
    config.server.drain_seconds = DRAIN_SECONDS
    running = ServerProcess(tmp_path, config, workers=workers)
    try:
        ready = "startup complete"
        wait_until(lambda: running.log.read_text().count(ready) >= workers, START_SECONDS)
        yield running
    finally:
        running.stop()


def upload(server: ServerProcess, data: bytes) -> str:
    """Upload a file, and return the path of its content."""
    sent = {"file": ("data.bin", data)}
    form = {"purpose": "assistants"}
    answer = httpx.post(f"{server.url}/v1/files", files=sent, data=form, timeout=60)
    return f"/v1/files/{answer.raise_for_status().json()['id']}/content"


def test_a_server_drains_before_it_stops(draining: ServerProcess) -> None:
    """After SIGTERM it is not ready, serves on, finishes what runs, and exits with 0.

    New and kept-alive connections are served for `drain_seconds`, with `Connection: close`; a
    download and a request that began before are completed even after that.

    If this fails: each replica that is replaced costs its clients errors.
    """
    address = httpx.URL(draining.url)
    slow = http.client.HTTPConnection(address.host, address.port or 0, timeout=60)
    download = http.client.HTTPConnection(address.host, address.port or 0, timeout=60)
    body = b'{"vector_db_id": "db", "embedding_model": "hashing"}'
    content = upload(draining, LARGE)
    with ExitStack() as stack:
        stack.enter_context(closing(slow))
        stack.enter_context(closing(download))
        alive = stack.enter_context(connected(draining))
        download.request("GET", content)
        stream = download.getresponse()
        stack.callback(stream.close)
        first = stream.read(1000)
        slow.putrequest("POST", "/v1/vector-dbs")
        for name, value in {**JSON, "content-length": str(len(body))}.items():
            slow.putheader(name, value)
        slow.endheaders(body[:10])
        draining.terminate()

        def ready() -> int:
            return httpx.get(f"{draining.url}/v1/ready", timeout=60).status_code

        wait_until(lambda: ready() == 503)
        alive.request("GET", "/v1/health")
        answer = alive.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        assert answer.read()
        wait_until(lambda: "Waiting for connections to close" in draining.log.read_text())
        slow.send(body[10:])
        registered = slow.getresponse()
        assert (registered.status, registered.getheader("connection")) == (200, "close")
        assert registered.read()
        assert first + stream.read() == LARGE
    assert draining.wait() == 0
    assert "timeout graceful shutdown exceeded" not in draining.log.read_text()


def test_streamed_answers_are_finished(tmp_path: Path) -> None:
    """Answers that stream during SIGTERM are complete, after `drain_seconds` too.

    If this fails: each replica that is replaced cuts off the answers that people read.
    """
    pause = Pause(is_silent=True)
    first, *rest = said("Oak", " is green.").events
    asked: list[tuple[str, Json, str]] = [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, "[DONE]"),
        ("/v1/responses", {"input": "hi"}, "response.completed"),
    ]
    with running_chat() as service, ExitStack() as stack:
        service.scripts = [Script([first, pause, *rest])]
        config = with_model(service)
        config.server.drain_seconds = 0.5
        server = ServerProcess(tmp_path, config)
        stack.callback(server.kill)
        stack.callback(pause.released.set)
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        streams = []
        for path, more, _ in asked:
            body = {"model": "tiny", "stream": True, **more}
            answer = stack.enter_context(client.stream("POST", path, json=body))
            lines = answer.iter_lines()
            assert any("Oak" in line for line in lines)  # the first piece is here
            streams.append(lines)
        server.terminate()
        wait_until(lambda: "Waiting for connections to close" in server.log.read_text())
        pause.released.set()
        for lines, (*_, end) in zip(streams, asked, strict=True):
            rest_of_it = "".join(lines)
            assert " is green." in rest_of_it
            assert end in rest_of_it
        assert server.wait() == 0


def test_a_second_signal_ends_the_draining(draining: ServerProcess) -> None:
    """After another SIGTERM the server stops at once, with 0."""
    draining.terminate()
    wait_until(lambda: "Not ready from now on" in draining.log.read_text())
    draining.terminate()
    assert draining.wait() == 0
