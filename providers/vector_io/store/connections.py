"""Connections to a SQLite file: opening, lending to threads, closing, and error translation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
from typing_extensions import override

from corral.api.errors import CorralError, ProviderError, Unavailable
from corral.providers.base.schema_version import check_version
from corral.providers.base.wal import use_wal
from corral.providers.vector_io.store.cached_postings import term_frequency

T = TypeVar("T")

CACHE_KIB = 32 * 1024
SUFFIXES = ("", "-wal", "-shm")
"""The files of one SQLite database."""

IN_MEMORY = Path(":memory:")
"""The path of a database without a file, which SQLite keeps in the memory of one connection."""


class Damaged(ProviderError):
    """The file is not a database, or is corrupt."""


class Connections:
    """A pool of connections to one file, each lent to one thread. Safe to use from many threads.

    After an error a connection is closed, since its state is unknown.
    """

    def __init__(self, provider_id: str, connect: Callable[[], apsw.Connection]) -> None:
        self._provider_id = provider_id
        self._connect = connect
        self._idle: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        self._refusal: Callable[[], CorralError] | None = None

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """Lend a connection, outside of a transaction."""
        self.check()
        with driver_errors(self._provider_id):
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                yield connection
            except BaseException:
                connection.close(force=True)
                raise
            self._idle.put(connection)
            if self._refusal:  # set in the meantime
                self.close()

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lend a connection in a read transaction."""
        with self.lend() as connection, transaction(connection, "DEFERRED"):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Lend a connection in a write transaction: all changes or none."""
        with self.lend() as connection, transaction(connection):
            yield connection

    def read(self, read: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function with a connection in one read transaction."""
        with self.reading() as connection:
            return read(connection, *arguments, **options)

    def check(self) -> None:
        """Raise the error of `refuse`, if it was called."""
        if self._refusal:
            raise self._refusal()

    def refuse(self, error: Callable[[], CorralError]) -> None:
        """Reject further loans with this error, if it is the first.

        Close lent connections on return.
        """
        self._refusal = self._refusal or error
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


class MemoryConnection(Connections):
    """The only connection of a database in memory, lent to one thread at a time.

    Closing it would lose the data, so an error only rolls back the transaction, and `close` does
    nothing. `refuse` frees the memory.
    """

    def __init__(self, provider_id: str, connect: Callable[[], apsw.Connection]) -> None:
        super().__init__(provider_id, connect)
        self._lock = threading.Lock()
        self._connection = connect()

    @override
    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """Wait for the connection and lend it, outside of a transaction."""
        with self._lock, driver_errors(self._provider_id):
            self.check()
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @override
    def close(self) -> None:
        """Do nothing: the connection holds the data."""

    @override
    def refuse(self, error: Callable[[], CorralError]) -> None:
        """Reject further loans with this error, if it is the first, and free the memory."""
        super().refuse(error)
        with self._lock:
            self._connection.close()


def connect(
    path: Path,
    busy_timeout_seconds: float,
    extension: str | None = None,
    *,
    synchronous: str = "FULL",
    newest: int | None = None,
) -> apsw.Connection:
    """Open a connection to an existing file.

    Args:
        busy_timeout_seconds: Maximum wait of a write for another process's write.
        extension: A library with functions to load into SQLite, None for none.
        synchronous: With FULL, acknowledged writes survive a power failure; with NORMAL, which is
            faster, a power failure may undo the last writes.
        newest: The schema version that this Corral writes; None for a file without versions.

    Raises:
        apsw.CantOpenError: The file does not exist.
        ConfigError: The file has a newer schema version; nothing is changed in it.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(int(busy_timeout_seconds * 1000))
    if newest is not None:
        try:
            check_version(connection, newest, path.name)
        except BaseException:
            connection.close()
            raise
    if extension is not None:
        connection.enable_load_extension(True)
        connection.load_extension(extension)
        connection.enable_load_extension(False)
    use_wal(connection, busy_timeout_seconds)
    connection.register_fts5_function("term_frequency", term_frequency)
    for pragma in (f"synchronous={synchronous}", f"cache_size=-{CACHE_KIB}"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def delete_files(path: Path) -> None:
    """Delete a database with its WAL files; a missing file is not an error."""
    for suffix in reversed(SUFFIXES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


@contextmanager
def transaction(connection: apsw.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run a block as one transaction; roll back on an error and raise it."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def state(connection: apsw.Connection, name: str) -> int:
    """Return a number of the `state` table: version, count or analyzer."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise ProviderError(f"The file has no {name} in its state table; it is damaged.")
    return int(row[0])


@contextmanager
def driver_errors(provider_id: str) -> Iterator[None]:
    """Translate the driver's errors, only here. Their texts may quote data, so they are dropped."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Unavailable(
            f"{provider_id}: the file is locked by another process.", hint="Try again."
        ) from error
    except apsw.FullError as error:
        raise ProviderError(f"{provider_id}: the disk is full.", hint="Free some space.") from error
    except apsw.Error as error:
        kind = Damaged if isinstance(error, apsw.NotADBError | apsw.CorruptError) else ProviderError
        raise kind(f"{provider_id}: SQLite failed ({type(error).__name__}).") from error
