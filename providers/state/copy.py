"""Copy a whole state into another database, in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
from sqlalchemy import (
    Column,
    Connection,
    Table,
    delete,
    event,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from corral.api.errors import ConfigError, Conflict, ContractViolation, Unavailable
from corral.providers.state.opening import APPLICATION, Place, revision_of
from corral.providers.state.tables import INSTALLATION, JOBS, LEASES, METADATA, VECTOR_DBS, VERSIONS

BATCH = 100
"""Number of rows in memory at a time; the document of one job can have 64 MiB."""

COPIED = [table for table in METADATA.sorted_tables if table is not LEASES]
"""All tables but the leases, which belong to running processes."""

CLOSING_SECONDS = 1.0
"""Maximum wait until PostgreSQL notices that a process has closed its connections."""

_IN_EMPTY_STATES = {INSTALLATION, VERSIONS}


def copy_state(
    source: Place, target: Place, registration: Callable[[str], str] = str
) -> dict[str, int]:
    """Copy all tables except the leases; return the number of rows by table.

    The target takes over the installation's id. The copy is a single transaction, and no other
    process can write to either database during it.

    Args:
        source: The database to read.
        target: The database to write. It gets its tables if it has none.
        registration: Converts the registration of a vector DB, as JSON.

    Raises:
        Conflict: Source and target are the same database, or the target has rows.
        Unavailable: Another process uses one of the databases.
        ConfigError: The source has no tables, or a database has the tables of another version.
    """
    if source.name == target.name:
        raise Conflict(f"FROM and TO are the same: {source.name}.")
    _prepare(source, has_tables=True)
    _prepare(target, has_tables=False)
    with _alone(source, "SHARE") as reading, _alone(target, "ACCESS EXCLUSIVE") as writing:
        _empty(target, writing)
        for table in COPIED:
            for rows in _batches(reading, table):
                for row in rows if table is VECTOR_DBS else ():
                    row["registration"] = registration(row["registration"])
                writing.execute(insert(table), rows)
            if (column := table.autoincrement_column) is not None:
                _set_last(writing, column, _last(reading, column))
        _name_hosts(writing)
        return {table.name: _counted(reading, writing, table) for table in COPIED}


def _prepare(place: Place, *, has_tables: bool) -> None:
    """Create or check the tables of a database; if `has_tables`, they must exist."""
    if has_tables and place.is_sqlite and not place.path.exists():
        raise ConfigError(f"{place.path} does not exist.", hint="Name its folder with --home.")
    with place.errors():
        engine = place.connected()
        try:
            if has_tables and not revision_of(engine):
                raise ConfigError(f"{place.name} has no tables of Corral.")
            place.prepare(engine)
        finally:
            engine.dispose()


@contextmanager
def _alone(place: Place, mode: str) -> Iterator[Connection]:
    """Yield a connection in a transaction, while no other process can write to the database.

    Args:
        place: The database.
        mode: The lock mode of the tables in PostgreSQL.
    """
    engine = place.connected()
    if place.is_sqlite:
        event.listen(engine, "connect", lambda new, _: _lock_file(place, new.apsw))
    else:
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    try:
        with place.errors(), engine.connect() as connection, connection.begin():
            if not place.is_sqlite:
                _lock_tables(place, connection, mode)
            yield connection
    finally:
        engine.dispose()


def _lock_file(place: Place, connection: apsw.Connection) -> None:
    """Keep all other processes from opening a SQLite file."""
    try:
        connection.set_busy_timeout(0)  # Waiting is useless: a server holds the file until it ends.
        connection.pragma("locking_mode", "EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE; COMMIT")
    except apsw.BusyError:
        raise _in_use(place) from None


def _lock_tables(place: Place, connection: Connection, mode: str) -> None:
    # The other database may need longer than FROZEN_SECONDS for a batch.
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    # Lock before the first query, which takes the snapshot.
    names = ", ".join(table.name for table in METADATA.sorted_tables)
    connection.exec_driver_sql(f"LOCK TABLE {names} IN {mode} MODE")
    others = text(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + CLOSING_SECONDS
    while connection.scalar(others, {"name": APPLICATION}):
        if time.monotonic() > deadline:
            raise _in_use(place)
        time.sleep(0.05)
        connection.execute(select(func.pg_stat_clear_snapshot()))


def _in_use(place: Place) -> Unavailable:
    hint = "Stop all servers and commands that use it, then try again."
    return Unavailable(f"A server or a command uses {place.name}.", hint=hint)


def _empty(place: Place, connection: Connection) -> None:
    """Check that the target has no rows; delete its installation id and version numbers."""
    for table in COPIED:
        if table not in _IN_EMPTY_STATES and connection.execute(select(table).limit(1)).first():
            raise Conflict(
                f"{place.name} is not empty: the table {table.name} has rows.",
                hint="Nothing was copied. Copy into a database, or a data folder, without a state.",
            )
    for table in _IN_EMPTY_STATES:
        connection.execute(delete(table))


def _batches(connection: Connection, table: Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a table in batches, ordered by key."""
    keys = list(table.primary_key)
    query = select(table).order_by(*keys).limit(BATCH)
    following = query
    while rows := connection.execute(following).mappings().all():
        yield [dict(row) for row in rows]
        last = tuple_(*(rows[-1][key.name] for key in keys))
        following = query.where(tuple_(*keys) > last)


def _name_hosts(connection: Connection) -> None:
    """Set the host of each job to that in its vector DB's registration, which may have changed."""
    for row in connection.execute(select(VECTOR_DBS)).all():
        vector_db = json.loads(row.registration)
        own = (
            JOBS.c.tenant == row.tenant,
            JOBS.c.vector_db_id == row.identifier,
            JOBS.c.vector_db_created_at == vector_db["created_at"],
        )
        connection.execute(update(JOBS).where(*own).values(host=vector_db.get("host", "")))


def _last(connection: Connection, column: Column[int]) -> int:
    """Return the last number given out for a column, even if its row was deleted; 0 if none was."""
    if connection.dialect.name == "sqlite":
        query = "SELECT seq FROM sqlite_sequence WHERE name = :table"
    else:
        query = "SELECT pg_sequence_last_value(pg_get_serial_sequence(:table, :column)::regclass)"
    return int(connection.scalar(text(query), _names(column)) or 0)


def _set_last(connection: Connection, column: Column[int], number: int) -> None:
    """Set the last number given out for a column."""
    values = _names(column) | {"number": number}
    if connection.dialect.name != "sqlite":
        if number:
            query = "SELECT setval(pg_get_serial_sequence(:table, :column), :number)"
            connection.execute(text(query), values)
        return
    connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), values)
    connection.execute(text("INSERT INTO sqlite_sequence VALUES (:table, :number)"), values)


def _names(column: Column[int]) -> dict[str, Any]:
    return {"table": column.table.name, "column": column.name}


def _counted(reading: Connection, writing: Connection, table: Table) -> int:
    """Return the number of rows of a table; it must be the same in both databases."""
    query = select(func.count()).select_from(table)
    source, target = (int(connection.scalar(query) or 0) for connection in (reading, writing))
    if source != target:
        raise ContractViolation(f"{table.name} has {source} rows, its copy {target}.")
    return target
