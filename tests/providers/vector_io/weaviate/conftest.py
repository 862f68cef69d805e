"""One server for all tests of remote::weaviate, a stand-in where there is no other."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .real_server import Json, Server, address, program, remove
from .stand_in import StandIn

CONFIG = "CORRAL_TEST_WEAVIATE_CONFIG"
"""Where the second processes of the conformance suite find the provider's settings."""


@contextmanager
def running() -> Iterator[Json]:
    """Lend the settings of the server at hand: a named one, one of a program, or a stand-in."""
    named = address()
    if named is not None:
        named["collection_prefix"] = f"Corral_{uuid.uuid4().hex[:8]}_"  # others may use it, too
        yield named
        remove(named)
    elif program():
        with TemporaryDirectory() as folder:
            server = Server(Path(folder))
            server.launch()
            try:
                server.wait()
                yield server.config
            finally:
                server.kill()
    else:
        stand_in = StandIn()
        yield stand_in.config
        stand_in.stop()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[None]:
    """Run a server for all tests; other processes that a test starts find it by the environment."""
    with running() as config, pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG, json.dumps(config))
        yield


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A stand-in of the test's own, to be stopped, slowed and broken."""
    stand_in = StandIn()
    yield stand_in
    stand_in.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A real server of the test's own, not started yet."""
    server = Server(tmp_path / "server")
    yield server
    server.kill()
