"""A real Milvus Lite server, once for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import signal
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
    """`milvus-lite server` on a folder and a free port of 127.0.0.1.

    Args:
        folder: Where its data is.
        memory_bytes: What a collection may hold before it is written to segments; Milvus Lite's
            own default.
    """

    def __init__(self, folder: Path, memory_bytes: int = 128 * 2**20) -> None:
        self.memory_bytes = memory_bytes
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
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start its process, without index files: a killed one may leave a torn one (README)."""
        for indexes in self.folder.glob("collections/*/partitions/*/indexes"):
            shutil.rmtree(indexes)
        # With more workers a started server may open a collection twice, and lose writes (README).
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--max-workers", "1"]
        command = [sys.executable, "-m", "milvus_lite.cmdline", "server"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self.folder), *address],
            env={**os.environ, "MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES": str(self.memory_bytes)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Wait until it takes connections."""
        assert self._process is not None
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

    def freeze(self) -> None:
        """Stop it for a while; it neither answers nor hangs up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


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
    """A server that is not running yet, for a test that starts and kills it.

    It writes segments all the while, so that it is killed in the middle of that, too.
    """
    server = Server(tmp_path / "own", memory_bytes=16 * 2**10)
    yield server
    server.kill()
