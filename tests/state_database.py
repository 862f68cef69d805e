"""Runs tests that know no state on states in PostgreSQL: `CORRAL_TEST_STATE=postgresql`.

A state in SQLite belongs to its data folder. Here each data folder gets a database of its own on
one server instead. `make test-state` runs the tests of OpenAI's API so.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from corral.providers.state.opening import Place
from corral.providers.state.state import State

VARIABLE = "CORRAL_TEST_STATE"
SERVER = "CORRAL_TEST_STATE_URL"
"""Environment variable with the server's URL, for the processes that tests start."""
TEMPLATE = "state_template"
"""The database with Corral's tables from which the others are copied."""

_creating = threading.Lock()
_databases: dict[str, Path] = {}


def wanted() -> bool:
    """Return True if the tests run on states in PostgreSQL."""
    name = os.environ.get(VARIABLE, "sqlite")
    assert name in ("sqlite", "postgresql"), f"{VARIABLE} must be sqlite or postgresql"
    return name == "postgresql"


def start(url: str) -> None:
    """Use a server in this process and those that it starts."""
    os.environ[SERVER] = url
    with _connection() as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    State(Path(), _url(TEMPLATE)).upgrade()
    use()


def use() -> None:
    """Open the states of data folders on the server."""
    opened: Callable[[Place, Path, str], None] = Place.__init__

    def on_server(place: Place, home: Path, url: str) -> None:
        opened(place, home, database_of(home) if url == "sqlite" else url)

    Place.__init__ = on_server  # type: ignore[assignment, method-assign]  # no setting says it


def prelude() -> str:
    """Return Python that a new process runs first, to use the same databases."""
    return f"import runpy; runpy.run_path({__file__!r})['use'](); " if SERVER in os.environ else ""


def database_of(home: Path) -> str:
    """Return the URL of a data folder's database, created at the first call."""
    home = home.absolute()
    name = "state_" + hashlib.sha256(bytes(home)).hexdigest()[:16]
    with _creating, _connection() as connection:
        if name not in _databases:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, [name]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}".encode())
                with psycopg.connect(_url(name), autocommit=True) as own:
                    own.execute("UPDATE corral.installation SET id = %s", [uuid4().hex])
            _databases[name] = home
    return _url(name)


def drop(folder: Path) -> None:
    """Drop the databases of the data folders in a folder."""
    with _creating:
        for name in [name for name, home in _databases.items() if folder in (home, *home.parents)]:
            del _databases[name]
            with _connection() as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _url(database: str) -> str:
    scheme, server, *_ = urlsplit(os.environ[SERVER])
    return f"{scheme}://{server}/{database}"


def _connection() -> psycopg.Connection:
    return psycopg.connect(os.environ[SERVER], autocommit=True)
