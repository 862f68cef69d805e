"""One stand-in for all tests of remote::weaviate; its ports are in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .stand_in import StandIn

PORTS = "CORRAL_TEST_WEAVIATE_PORTS"


@pytest.fixture(scope="session", autouse=True)
def ports() -> Iterator[None]:
    """Start the stand-in; other processes that a test starts find it by the environment."""
    stand_in = StandIn()
    os.environ[PORTS] = f"{stand_in.http_port} {stand_in.grpc_port}"
    yield
    del os.environ[PORTS]
    stand_in.stop()


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A stand-in of the test's own, to be stopped, slowed and broken."""
    stand_in = StandIn()
    yield stand_in
    stand_in.stop()
