"""What the tests of remote::qdrant talk to: a server where there is one, and a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..real_server import Json, running
from .qdrant_service import Service, running_service
from .real_server import QdrantServer

CONFIG = "CORRAL_TEST_QDRANT_CONFIG"
"""Where the second processes of the conformance suite find the provider's settings."""


@contextmanager
def stand_in() -> Iterator[Json]:
    """Lend the settings of a stand-in."""
    with running_service() as found:
        yield {"url": found.url}


@pytest.fixture(scope="session")
def shared_server() -> Iterator[None]:
    """Run a server for all tests, with any proxy of the environment passed by."""
    with pytest.MonkeyPatch.context() as patch, running(QdrantServer, stand_in) as config:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv(CONFIG, json.dumps(config))
        yield


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QdrantServer]:
    """A real server of the test's own, not started yet."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = QdrantServer(tmp_path / "server")
    yield server
    server.kill()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running stand-in, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service() as found:
        yield found
