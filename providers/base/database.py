"""SQLite files of one machine, such as the cache of embeddings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from corral.api.errors import ConfigError, ProviderError, Unavailable
from corral.providers.base.schema_version import check_version, upgrade
from corral.providers.base.wal import use_wal
from corral.providers.concurrency import MicroBatcher, ThreadPool

BUSY_TIMEOUT_MS = 5_000

_COLUMNS = (
    'SELECT tables.name, columns.name, columns.type, columns."notnull", columns.dflt_value,'
    " columns.pk FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
    " WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Schema:
    """The tables of a file.

    Attributes:
        tables: Statements that create the missing tables of version 1. They run at each opening.
        upgrades: One statement for each upgrade from a version to the next.
    """

    tables: tuple[str, ...]
    upgrades: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The newest version."""
        return 1 + len(self.upgrades)

    def apply(self, connection: apsw.Connection, name: str) -> None:
        """Upgrade a file to the newest version, in a write transaction of the caller.

        Raises:
            ConfigError: The file has a newer version.
        """
        check_version(connection, self.version, name)
        for statement in self.tables:
            connection.execute(statement)
        upgrade(connection, ("", *self.upgrades), name)


class Database:
    """One SQLite file, shared safely by tasks and processes.

    Every read sees the writes of other processes. Reading and writing each have a thread and a
    connection: a file that another process has locked blocks only writers, for at most
    `BUSY_TIMEOUT_MS`, but neither the event loop nor readers. `open`, or the first call, creates
    the file with its folder.

    Args:
        schema: The tables. A file with a newer version is rejected.
        remedy: The hint of the error for a damaged file.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        remedy: str,
    ) -> None:
        self.path = path
        self._schema, self._remedy = schema, remedy
        self._reader = ThreadPool(path.name, None, max_threads=1)
        self._reads = MicroBatcher(self._select_all, self._reader.run, concurrency=1)
        self._writes = ThreadPool(path.name, BUSY_TIMEOUT_MS / 1000, max_threads=1)
        self._opening = threading.Lock()
        self._connections: tuple[apsw.Connection, apsw.Connection] | None = None

    def open(self) -> None:
        """Open the file now.

        Raises:
            ConfigError: The file is damaged, cannot be opened, was written by a newer Corral, or
                its tables differ from its version.
            Unavailable: Another process has locked the file.
        """
        with self._errors():
            self._opened()

    async def read(self, query: str, *bindings: apsw.SQLiteValue) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises:
            ConfigError, ProviderError: The file cannot be opened or read.
        """
        return await self._reads.submit((query, bindings))

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Call `work` in a transaction and return its result; an exception rolls back everything.

        `work` runs in the writer thread, and no other process writes at the same time. A write
        survives the end of the process, but a power failure may undo it.

        Raises:
            Unavailable: Another process has locked the file; nothing was written.
            ConfigError, ProviderError: The file cannot be opened or written.
        """
        return await self._writes.run(self._transaction, work)

    async def close(self) -> None:
        """Wait for the running calls, then close the file."""
        if self._connections is not None:
            writer, reader = self._connections
            await self._reader.run(reader.close)
            await self._writes.run(writer.close)

    # --- inside ------------------------------------------------------------------------------

    def _opened(self) -> tuple[apsw.Connection, apsw.Connection]:
        with self._opening:
            if self._connections is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                writer = self._connected()
                try:
                    self._prepare(writer)
                except BaseException:
                    writer.close()
                    raise
                self._connections = writer, self._connected()
            return self._connections

    def _connected(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return connection

    def _prepare(self, writer: apsw.Connection) -> None:
        check_version(writer, self._schema.version, self.path.name)
        if writer.pragma("quick_check") != "ok":
            raise apsw.CorruptError
        use_wal(writer, BUSY_TIMEOUT_MS / 1000)
        writer.execute("PRAGMA synchronous=NORMAL")
        with _immediate(writer):
            self._schema.apply(writer, self.path.name)
            self._check_tables(writer)

    def _check_tables(self, writer: apsw.Connection) -> None:
        """Raise ConfigError if the columns of a file differ from its version's columns."""
        differing = sorted(_expected(self._schema) ^ _columns(writer))
        if differing:
            table, column = differing[0][:2]
            raise ConfigError(
                f"{self.path.name} has schema version {self._schema.version}, but the column "
                f"{table}.{column} differs.",
                hint=f"A version of Corral that was never released made it. {self._remedy}",
            )

    def _select_all(
        self, asked: Sequence[tuple[str, tuple[apsw.SQLiteValue, ...]]]
    ) -> list[list[tuple[Any, ...]]]:
        return [self._select(query, bindings) for query, bindings in asked]

    def _select(self, query: str, bindings: tuple[apsw.SQLiteValue, ...]) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._opened()[1].execute(query, bindings).fetchall()

    def _transaction(self, work: Callable[[apsw.Connection], T]) -> T:
        with self._errors():
            writer = self._opened()[0]
            with _immediate(writer):
                return work(writer)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors."""
        name = self.path.name
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Unavailable(
                f"{name} is locked by another process.",
                hint="Try again; another process that uses this data folder may be stuck.",
            ) from error
        except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
            raise ConfigError(
                f"{self.path} is damaged or cannot be opened ({type(error).__name__}).",
                hint=self._remedy,
                field=name,
            ) from None
        except apsw.Error as error:
            raise ProviderError(
                f"{name} cannot be read or written ({type(error).__name__})."
            ) from error


def _columns(connection: apsw.Connection) -> frozenset[tuple[str, ...]]:
    """Return table, name, type, `NOT NULL`, default and key position of each column."""
    rows = connection.execute(_COLUMNS)
    return frozenset(tuple(map(str, row)) for row in rows)


@cache
def _expected(schema: Schema) -> frozenset[tuple[str, ...]]:
    with closing(apsw.Connection(":memory:")) as connection:
        schema.apply(connection, ":memory:")
        return _columns(connection)


@contextmanager
def _immediate(writer: apsw.Connection) -> Iterator[None]:
    """Run the block in a write transaction; an exception rolls back everything."""
    writer.execute("BEGIN IMMEDIATE")
    try:
        yield
        writer.execute("COMMIT")
    finally:
        if writer.in_transaction:
            writer.execute("ROLLBACK")
