"""What the tests of remote::weaviate talk to: a server where there is one, and a stand-in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..real_server import Json, running
from .real_server import WeaviateServer
from .stand_in import StandIn

CONFIG = "CORRAL_TEST_WEAVIATE_CONFIG"
"""Where the second processes of the conformance suite find the provider's settings."""


@contextmanager
def stand_in() -> Iterator[Json]:
    """Lend the settings of a stand-in."""
    found = StandIn()
    yield found.config
    found.stop()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[None]:
    """Run a server for all tests; other processes that a test starts find it by the environment."""
    with running(WeaviateServer, stand_in) as found, pytest.MonkeyPatch.context() as patch:
        config = found | {"collection_prefix": f"Corral_{uuid.uuid4().hex[:8]}_"}
        patch.setenv(CONFIG, json.dumps(config))
        yield
        if WeaviateServer.running():
            remove(config)  # others may use it, too


def remove(config: Json) -> None:
    """Delete all collections with the prefix of these settings."""
    key = config.get("api_key")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(
        base_url=config["url"], headers=headers, trust_env=False, verify=False, timeout=30
    ) as client:
        for one in client.get("/v1/schema").raise_for_status().json()["classes"]:
            if one["class"].startswith(config["collection_prefix"]):
                client.delete(f"/v1/schema/{one['class']}").raise_for_status()


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A stand-in of the test's own, to be stopped, slowed and broken."""
    own = StandIn()
    yield own
    own.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[WeaviateServer]:
    """A real server of the test's own, not started yet."""
    server = WeaviateServer(tmp_path / "server")
    yield server
    server.kill()
