"""Connections: their socket options, and what clients learn when the server stops."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from corral.server.app import create_app
from corral.server.connection import Connection

from .harness import JSON, START_SECONDS, ServerProcess, run_config, wait_until


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


def test_a_process_of_several_knows_its_connections_before_the_app() -> None:
    """The module of the class, which a new process unpickles first, does not import the app.

    If this fails: on a busy machine the parent ends each process before it answers a ping, again
    and again, since importing the app takes longer than the five seconds it waits.
    """
    code = f"import sys, {Connection.__module__}; sys.exit('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
        assert answer.status == 200
        assert answer.getheader("connection") == "close"
        assert answer.read()
        assert idle.sock is not None
        assert idle.sock.recv(1) == b""
    assert "Application shutdown complete" in server.stop()
