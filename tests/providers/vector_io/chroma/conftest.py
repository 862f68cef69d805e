"""A real Chroma server on this machine, and one that can be stopped and started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..real_server import folder_in_memory

URL_VARIABLE = "CORRAL_TEST_CHROMA_URL"
"""Where the conformance suite's other process finds the server."""

# What `chroma` does, less the import of the Python package: 0.05 s for 0.9 s of processor time.
PROGRAM = (
    "import sys, chromadb_rust_bindings; chromadb_rust_bindings.cli(['chroma', *sys.argv[1:]])"
)


class Server:
    """`chroma run` on a free port of 127.0.0.1, over one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start its process."""
        where = ["--path", str(self._folder), "--host", "127.0.0.1", "--port", str(self._port)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "run", *where],
            env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.process is not None
        deadline = time.monotonic() + 30
        with httpx.Client(base_url=self.url, verify=False, timeout=1) as client:
            while time.monotonic() < deadline:
                assert self.process.poll() is None, "chroma run ended"
                try:
                    client.get("/api/v2/heartbeat").raise_for_status()
                    return
                except httpx.TransportError:
                    time.sleep(0.05)
        raise TimeoutError("chroma run does not answer")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=30)
            self.process = None

    def freeze(self) -> None:
        """Stop it for a while; it neither answers nor hangs up."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Stand in for pytest's own."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="session")
def chroma_server() -> Iterator[Server]:
    """A server for all tests of the session."""
    with folder_in_memory() as folder:
        server = Server(folder)
        server.start()
        os.environ[URL_VARIABLE] = server.url
        yield server
        server.kill()
        os.environ.pop(URL_VARIABLE, None)  # a second such server may have removed it


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, not started yet."""
    server = Server(tmp_path / "server")
    yield server
    server.kill()
