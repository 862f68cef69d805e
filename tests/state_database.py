"""Runs tests that know no state on states in PostgreSQL: `CORRAL_TEST_STATE=postgresql`.

A state in SQLite belongs to its data folder. Here each data folder gets a database of its own on
one server instead, in the processes that the tests start too. `make test-state` runs the tests of
the server that way. Tests about SQLite have the marker `sqlite_state`, and are left out.

With `CORRAL_TEST_STATE=shared` the configuration of servers says the same, and their vectors are in
a remote engine: they act as replicas of an installation on several machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from corral.providers.state.opening import Place

if TYPE_CHECKING:  # sitecustomize.py runs this module before corral.providers.state.state
    from corral.providers.state.state import AnySelect, Rows

VARIABLE = "CORRAL_TEST_STATE"
SERVER = "CORRAL_TEST_STATE_URL"
"""Environment variable with the server's URL, for the processes that tests start."""
ENGINE = "CORRAL_TEST_ENGINE"
"""Environment variable with the settings of the remote engine, in JSON."""
TEMPLATE = "state_template"
"""The database with Corral's tables from which the others are copied."""
ON_POSTGRESQL = Path(__file__).with_name("on_postgresql")
"""The folder that makes new processes call `use`."""

_creating = threading.Lock()
_created: set[str] = set()
_HOMES = """
    SELECT datname, description FROM pg_database
    JOIN pg_shdescription ON objoid = pg_database.oid AND datname LIKE 'state\\_%'
"""


def wanted() -> bool:
    """Return True if the tests run on states in PostgreSQL."""
    name = os.environ.get(VARIABLE, "sqlite")
    assert name in ("sqlite", "postgresql", "shared"), f"{VARIABLE}={name}"
    return name != "sqlite"


def is_shared() -> bool:
    """Return True if the configuration of servers says that machines share their state."""
    return os.environ.get(VARIABLE) == "shared"


def shared_sections() -> dict[str, Any]:
    """Return the sections of run.yaml for a shared state, if the tests run on one."""
    if not is_shared():
        return {}
    far = {"provider_id": "far", "provider_type": "remote::qdrant"}
    vector_io = [{**far, "config": json.loads(os.environ[ENGINE])}]
    return {"state": os.environ[SERVER], "providers": {"vector_io": vector_io}}


def start(url: str, remote: dict[str, Any] | None = None) -> None:
    """Use a server, and perhaps a remote engine, in this process and those that it starts."""
    os.environ[SERVER], os.environ[ENGINE] = url, json.dumps(remote)
    with _connection() as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    template = Place(Path(), _url(TEMPLATE))
    engine = template.connected()
    template.upgrade(engine)
    engine.dispose()
    paths = [str(ON_POSTGRESQL), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    use()


def use() -> None:
    """Open the states of data folders on the server."""
    opened: Callable[[Place, Path, str], None] = Place.__init__

    def on_server(place: Place, home: Path, url: str) -> None:
        own = url in ("sqlite", os.environ[SERVER])
        opened(place, home, database_of(home) if own else url)

    Place.__init__ = on_server  # type: ignore[assignment, method-assign]  # no setting says it


def database_of(home: Path) -> str:
    """Return the URL of a data folder's database, created at the first call."""
    return _url(_created_for(home, TEMPLATE))


def rows_of(home: Path, query: AnySelect) -> Rows:
    """Return the rows of a query in the state of a data folder, which a server may have open."""
    engine = Place(home, "sqlite").connected(isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            return connection.execute(query).all()
    finally:
        engine.dispose()


def copy_home(home: Path, copied: Path) -> None:
    """Copy a data folder with its state; no process may have it open."""
    shutil.copytree(home, copied, dirs_exist_ok=True)
    if wanted():
        _created_for(copied, _created_for(home, TEMPLATE))


def drop(folder: Path) -> None:
    """Drop the databases of the data folders in a folder, of all processes."""
    with _creating, _connection() as connection:
        for name, home in connection.execute(_HOMES).fetchall():
            if folder in (Path(home), *Path(home).parents):
                _created.discard(name)
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _created_for(home: Path, template: str) -> str:
    """Return the name of a data folder's database, copied from another at the first call."""
    home = home.absolute()
    name = "state_" + hashlib.sha256(bytes(home)).hexdigest()[:16]
    with _creating:
        if name not in _created:
            with _connection() as connection:
                _create(connection, name, home, template)
            _created.add(name)
    return name


def _create(connection: psycopg.Connection, name: str, home: Path, template: str) -> None:
    """Copy a database, unless another process did, and note the data folder."""
    connection.execute("SELECT pg_advisory_lock(1)")
    query = "SELECT 1 FROM pg_database WHERE datname = %s"
    if connection.execute(query, [name]).fetchone() is None:
        # Half of the default's time, which writes all pages into the log.
        copy = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
        connection.execute(copy.encode())
        comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
        where = sql.Identifier(name), sql.Literal(str(home))
        connection.execute(comment.format(*where))
        if template == TEMPLATE:
            with psycopg.connect(_url(name), autocommit=True) as own:
                own.execute("UPDATE corral.installation SET id = %s", [uuid4().hex])


def _url(database: str) -> str:
    scheme, server, *_ = urlsplit(os.environ[SERVER])
    return f"{scheme}://{server}/{database}"


def _connection() -> psycopg.Connection:
    return psycopg.connect(os.environ[SERVER], autocommit=True)
