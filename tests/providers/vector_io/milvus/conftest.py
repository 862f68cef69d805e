"""A real Milvus Lite server, once for all tests of this folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

URI_VARIABLE = "CORRAL_TEST_MILVUS_URI"
"""Where the second processes of the conformance suite find the server."""


class Server:
    """`milvus-lite server` on a folder and a free port of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        command = [sys.executable, "-m", "milvus_lite.cmdline", "server"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self.folder), *address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("milvus-lite server did not start")

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server for all tests."""
    server = Server(tmp_path_factory.mktemp("milvus"))
    server.start()
    os.environ[URI_VARIABLE] = server.uri
    yield server
    del os.environ[URI_VARIABLE]
    server.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that is not running yet, for a test that starts and kills it."""
    server = Server(tmp_path / "own")
    yield server
    server.kill()
