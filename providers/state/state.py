"""The state: one database that tasks, processes and machines share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw
from sqlalchemy import (
    CompoundSelect,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError

from corral.api.errors import Unavailable
from corral.providers.concurrency import MicroBatcher, ThreadPool
from corral.providers.state.opening import WAIT_SECONDS, Place, driver_of, lock, revision_of
from corral.providers.state.tables import HEAD, INSTALLATION, VERSIONS

ANSWER_SECONDS = 10.0
"""Maximum duration of a call to PostgreSQL; longer than `WAIT_SECONDS`."""
FRESH_SECONDS = 0.5
"""Maximum age of cached reads from PostgreSQL before the version is read again."""
MAX_READERS = 4
"""Maximum number of concurrent reads per area from PostgreSQL."""

_VERSION = "SELECT version FROM versions WHERE area = ?"

T = TypeVar("T")
AnySelect: TypeAlias = Select[*tuple[Any, ...]] | CompoundSelect[*tuple[Any, ...]]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]
Rows = Sequence[AnyRow]


class State:
    """The tables of an installation, in SQLite or PostgreSQL.

    Several states, in any number of processes, may share one database. A SQLite file is upgraded
    when it is opened. In PostgreSQL the tables are created if there are none, but only `upgrade`
    changes them later, because servers of the previous version may still use them.

    Args:
        home: The data folder, which contains the SQLite file.
        url: "sqlite", or the URL of a PostgreSQL database.

    Attributes:
        place: The location of the database.
    """

    def __init__(self, home: Path, url: str = "sqlite") -> None:
        self.place = Place(home, url)
        self._areas: dict[str, Area] = {}
        self._opening = threading.Lock()
        self._engines: tuple[Engine, Engine] | None = None
        # SQLite allows one writer at a time. Waiting for a lock in this process is fairer and
        # faster than waiting for SQLite's.
        self._writing = threading.Lock() if self.place.is_sqlite else nullcontext()

    def area(self, name: str, *, cached: bool = False) -> Area:
        """Return an area: a group of tables that is read and written independently of the others.

        Args:
            name: Name of the area. Processes write in an area one at a time.
            cached: True to support `Area.kept`.
        """
        if name not in self._areas:
            self._areas[name] = Area(self, name, cached=cached)
        return self._areas[name]

    def open(self) -> None:
        """Open the database now.

        Raises:
            ConfigError: The database is damaged, cannot be opened, or was written by a newer
                Corral.
            MissingDependency: PostgreSQL's driver is not installed.
            Unavailable: Another process has locked the database, or PostgreSQL does not answer.
        """
        self.opened()

    def upgrade(self) -> tuple[str, str]:
        """Upgrade the tables to the newest revision; return the old revision and the new one.

        Raises:
            ConfigError, MissingDependency, Unavailable: See `open`.
        """
        with self.place.errors(), self._opening:
            writer = self.place.connected()
            try:
                before = revision_of(writer)
                self.place.upgrade(writer)
            finally:
                writer.dispose()
            return before, HEAD

    async def installation(self) -> str:
        """Return the permanent id of this installation: a UUID as 32 hex digits."""
        [(found,)] = await self.area("installation").read(select(INSTALLATION.c.id))
        return str(found)

    def recorded_installation(self) -> str:
        """Return the installation's id without creating tables; "" if it cannot be read."""
        if self.place.is_sqlite and not self.place.path.exists():
            return ""
        engine = self.place.connected(isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                return str(connection.execute(select(INSTALLATION.c.id)).scalar() or "")
        except (DBAPIError, apsw.Error):
            return ""
        finally:
            engine.dispose()

    async def close(self) -> None:
        """Wait for the running calls, then close the database."""
        for area in self._areas.values():
            await area.finish()
        for engine in self._engines or ():
            engine.dispose()

    # --- for the areas -----------------------------------------------------------------------

    def opened(self) -> tuple[Engine, Engine]:
        """Return two engines of the database, for writing and for reading; open it if necessary."""
        with self.place.errors(), self._opening:
            if self._engines is None:
                writer = self.place.connected(pool_pre_ping=not self.place.is_sqlite)
                try:
                    self.place.prepare(writer)
                except BaseException:
                    writer.dispose()
                    raise
                self._engines = writer, self.place.connected(isolation_level="AUTOCOMMIT")
            return self._engines

    @contextmanager
    def transaction(self, area: str, *, durable: bool = True) -> Iterator[Connection]:
        """Yield a connection in a transaction that is the only writer of an area."""
        writer, _ = self.opened()
        with self.place.errors(), self._writing, writer.connect() as connection:
            if self.place.is_sqlite:
                level = "FULL" if durable else "NORMAL"
                driver_of(connection).execute(f"PRAGMA synchronous={level}")
            with connection.begin():
                if not self.place.is_sqlite:
                    lock(connection, area)
                    if not durable:
                        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection


class Area:
    """A group of tables of a state; create it with `State.area`.

    Every read sees the writes of all processes. Reads and writes have separate threads, so neither
    waits for the other.

    Attributes:
        generation: Increases if a read of a cached area sees a new write by any process.
    """

    def __init__(self, state: State, name: str, *, cached: bool) -> None:
        self.state, self._name, self._cached = state, name, cached
        readers = 1 if state.place.is_sqlite else MAX_READERS
        self._reader = ThreadPool(f"state {name}", None, max_threads=readers)
        self._reads = MicroBatcher(self._select_all, self._reader.run, concurrency=readers)
        self._writer = ThreadPool(f"state {name}", WAIT_SECONDS, max_threads=1)
        self._kept: tuple[int | None, dict[Any, Any]] = None, {}
        self._version, self._read_at = -1, 0.0
        self._peeking: Connection | None = None
        self.generation = 0

    async def read(self, query: AnySelect) -> Rows:
        """Return the rows of a query.

        Raises:
            ConfigError, ProviderError: The database cannot be opened or read.
        """
        return await self._answer(self._reads.submit(query))

    async def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Call `work` in a transaction and return its result; an exception rolls it back.

        `work` runs in a thread, and no other process writes in this area at the same time. A write
        that is not `durable` is visible to all readers and survives the end of the process, but a
        power failure may undo it until a durable write follows.

        Raises:
            Unavailable: Another process has locked the database, or it cannot be reached.
            ConfigError, ProviderError: The database cannot be opened or written.
        """
        return await self._answer(self._writer.run(self._transaction, work, durable))

    def kept(self) -> dict[Any, Any]:
        """Return the read cache. It is empty if any process has written in this area since.

        Call this before reading. It takes microseconds and never waits. With PostgreSQL, the cache
        may miss a write by another machine for up to `FRESH_SECONDS`; then it counts as empty until
        a read has seen the version.
        """
        version = self._peek()
        if version is None:
            return {}
        if version != self._kept[0]:
            self._kept = version, {}
        return self._kept[1]

    async def finish(self) -> None:
        """Wait for the running calls, and release the connections."""
        for pool in (self._reader, self._writer):
            with suppress(Unavailable):  # PostgreSQL does not respond.
                await self._answer(pool.close())
        if self._peeking is not None:
            self._peeking.close()
            self._peeking = None

    # --- inside ------------------------------------------------------------------------------

    async def _answer(self, call: Awaitable[T]) -> T:
        """Await a call; give up if PostgreSQL does not respond in time."""
        if self.state.place.is_sqlite:
            return await call
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call
        except TimeoutError:
            raise Unavailable(
                f"{self.state.place.name} does not answer.",
                hint="A write may have happened. Try again.",
            ) from None

    def _select_all(self, queries: Sequence[AnySelect]) -> list[Rows]:
        with self.state.place.errors():
            try:
                return self._selected(queries)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                return self._selected(queries)  # PostgreSQL has restarted since the last read.

    def _selected(self, queries: Sequence[AnySelect]) -> list[Rows]:
        _, reader = self.state.opened()
        with reader.connect() as connection:
            if self._cached:
                self._see(connection)
            return [connection.execute(query).all() for query in queries]

    def _see(self, connection: Connection) -> None:
        """Read the version of the area, before its rows."""
        at = time.monotonic()
        if self.state.place.is_sqlite:
            version = self._version_in(driver_of(connection))
        else:
            query = select(VERSIONS.c.version).where(VERSIONS.c.area == self._name)
            version = connection.execute(query).scalar() or 0
        if version != self._version:
            self._version = version
            self.generation += 1
        self._read_at = at

    def _transaction(self, work: Callable[[Connection], T], durable: bool) -> T:
        with self.state.transaction(self._name, durable=durable) as connection:
            result = work(connection)
            if self._cached:
                row = {"area": self._name, "version": 1}
                upsert(connection, VERSIONS, [row], version=VERSIONS.c.version + 1)
        self._read_at = 0.0
        return result

    def _peek(self) -> int | None:
        """Return the version of the area, or None if it is not known without waiting."""
        if not self.state.place.is_sqlite:
            is_fresh = time.monotonic() < self._read_at + FRESH_SECONDS
            return self._version if is_fresh else None
        try:
            if self._peeking is None:
                _, reader = self.state.opened()
                self._peeking = reader.connect()
                driver_of(self._peeking).set_busy_timeout(0)
            return self._version_in(driver_of(self._peeking))
        except apsw.Error:
            return None

    def _version_in(self, connection: apsw.Connection) -> int:
        """Read the version from SQLite without SQLAlchemy, since every user query needs it."""
        row = connection.execute(_VERSION, (self._name,)).fetchone()
        return int(str(row[0])) if row else 0


def database_time(connection: Connection) -> float:
    """Return the time in Unix seconds, by a clock that all processes with this database share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    epoch = func.extract("epoch", func.clock_timestamp())
    return float(connection.execute(select(epoch)).scalar_one())


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *names: str,
    keys: Sequence[str] = (),
    where: Any = None,
    **values: Any,
) -> None:
    """Insert rows, and update existing rows with the same keys.

    Args:
        rows: Values by column.
        names: Columns of existing rows that take the new values.
        keys: Columns that identify a row; empty for the primary key.
        where: Condition for updating an existing row.
        values: Other new values for existing rows, by column. Without `names` and `values`,
            existing rows stay as they are.
    """
    if not rows:
        return
    # Each database has its own `insert`, and PostgreSQL's takes 0.03 s to import.
    dialect: Any = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    statement = dialect.insert(table)
    changes = {name: statement.excluded[name] for name in names} | values
    keys = keys or [column.name for column in table.primary_key]
    if changes:
        done = statement.on_conflict_do_update(index_elements=keys, set_=changes, where=where)
        connection.execute(done, list(rows))
    else:
        connection.execute(statement.on_conflict_do_nothing(), list(rows))
