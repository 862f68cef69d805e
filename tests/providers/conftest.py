"""The databases that a state can be in, for the tests of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest

from corral.providers.state.opening import SCHEMA

from .vector_io.pgvector.conftest import PASSWORD, Server, postgresql


def url_of(server: Server) -> str:
    """Return the URL of a server's database."""
    secret = quote(PASSWORD, safe="")
    return f"postgresql://postgres:{secret}@127.0.0.1:{server.port}/postgres"


@pytest.fixture(scope="session")
def state_server() -> Iterator[Server]:
    """Run a PostgreSQL server for the states of the session."""
    with postgresql() as server:
        yield server


@pytest.fixture
def postgresql_url(state_server: Server) -> str:
    """Return the URL of an empty state in PostgreSQL."""
    with psycopg.connect(state_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    return url_of(state_server)


@pytest.fixture(params=["sqlite", "postgresql"])
def state_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty state, in each database."""
    if request.param == "sqlite":
        return "sqlite"
    url: str = request.getfixturevalue("postgresql_url")
    return url
