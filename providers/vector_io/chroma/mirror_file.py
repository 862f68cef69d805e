"""The SQLite file of a mirror: its tables, and the connections to it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from corral.api.errors import CorralError, NotFound, ProviderError, Unavailable
from corral.providers.vector_io._sqlite.postings import LEXICAL_VERSION, LexicalIndex
from corral.providers.vector_io._sqlite.schema import state
from corral.providers.wal import use_wal

LAYOUT = 2
"""Changes with the tables; a file of another layout is made anew."""
BUSY_SECONDS = 60
"""How long a process waits for another one that brings the file up to date."""
SUFFIXES = ("", "-wal", "-shm")
"""The files of one SQLite database."""

_TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO state VALUES ('count', 0), ('head', '[0]'), ('followed_at', unixepoch());

-- A row is never changed: what replaces a chunk is a new row.
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk_id TEXT NOT NULL UNIQUE,
    document_id TEXT
) STRICT;
CREATE INDEX chunks_document ON chunks(document_id) WHERE document_id IS NOT NULL;

-- What filters see of the metadata, as `_sqlite.filters` reads it.
CREATE TABLE attributes (
    key TEXT NOT NULL,
    value ANY NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)
) STRICT, WITHOUT ROWID;
CREATE INDEX attributes_row ON attributes(row);
"""


class Damaged(ProviderError):
    """The file is no database, or a broken one."""


class MirrorFile:
    """The file and its connections. Safe to use from many threads and processes.

    Args:
        path: It need not exist.
        collection: Chroma's id of the collection that it mirrors; a file of another is made anew.
        lexical: The keyword index in it.
        provider_id: For messages.
    """

    def __init__(
        self, path: Path, collection: str, lexical: LexicalIndex, provider_id: str
    ) -> None:
        self._path = path
        self._origin = f"{collection} {LAYOUT} {LEXICAL_VERSION}"
        self._lexical = lexical
        self._name = provider_id
        self._connections: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        self._ended: Callable[[], CorralError] | None = None

    def prepare(self) -> None:
        """Make the file, or make it anew where it is damaged or of something else.

        Raises:
            ProviderError: It cannot be written.
        """
        try:
            self._make()
        except Damaged:
            self._delete()
            self._make()

    def exists(self) -> bool:
        """Return True if the file is there: who drops the vector DB deletes it for all processes.

        Raises:
            NotFound: It was dropped here.
            Unavailable: It was closed.
        """
        if self._ended:
            raise self._ended()
        return self._path.exists()

    def _make(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        except OSError as error:
            raise ProviderError(
                f"{self._name}: cannot write to {self._path.parent} ({error.strerror})."
            ) from error
        with self.writing() as connection:
            if _origin(connection) != self._origin:
                self.clear(connection)

    def clear(self, connection: apsw.Connection) -> None:
        """Empty the file, in the caller's transaction. Its version goes on, for what is kept."""
        version = state(connection, "version") + 1 if _origin(connection) else 0
        self._lexical.drop(connection)
        for table in ("state", "chunks", "attributes"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for _ in connection.execute(_TABLES):
            pass
        insert = "INSERT INTO state VALUES ('origin', ?), ('version', ?)"
        connection.execute(insert, (self._origin, version))
        self._lexical.create(connection)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lend a connection that sees one state of the file."""
        with self._transaction("DEFERRED") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Lend a connection for changes, which are made all or not at all."""
        with self._transaction("IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[apsw.Connection]:
        with _driver_errors(self._name):
            connection = self._connection()
            try:
                connection.execute(f"BEGIN {kind}")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close(force=True)  # which rolls back
                raise
            self._connections.put(connection)
            if self._ended:  # meanwhile
                self._close_idle()

    def _connection(self) -> apsw.Connection:
        if self._ended:
            raise self._ended()
        try:
            return self._connections.get_nowait()
        except queue.Empty:
            return _connect(self._path)

    def close(self) -> None:
        """Close the connections, those in use when they are given back; later calls are refused."""
        self._ended = self._ended or self._closed
        self._close_idle()

    def drop(self) -> None:
        """Delete the file with the vector DB; later calls are refused."""
        self._ended = self._dropped
        self._delete()

    def _close_idle(self) -> None:
        while True:
            try:
                self._connections.get_nowait().close()
            except queue.Empty:
                return

    def _delete(self) -> None:
        self._close_idle()
        for suffix in reversed(SUFFIXES):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def _closed(self) -> CorralError:
        return Unavailable(f"{self._name}: the vector DB is closed.")

    def _dropped(self) -> CorralError:
        return NotFound(f"{self._name}: the vector DB is deleted.", field="vector_db_id")


def _connect(path: Path) -> apsw.Connection:
    """Open the file. A loss of power may undo the last steps, which are then followed again."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_SECONDS * 1000)
    use_wal(connection, BUSY_SECONDS)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _origin(connection: apsw.Connection) -> str:
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'state'"
    if not connection.execute(tables).fetchall()[0][0]:
        return ""
    found = connection.execute("SELECT value FROM state WHERE name = 'origin'").fetchall()
    return str(found[0][0]) if found else ""


@contextmanager
def _driver_errors(provider_id: str) -> Iterator[None]:
    """Translate SQLite's errors, here and nowhere else. Their texts may quote data: dropped."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Unavailable(
            f"{provider_id}: another process is building the mirror.", hint="Try again."
        ) from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise Damaged(
            f"{provider_id}: the mirror is damaged.", hint="Start again; it is then made anew."
        ) from error
    except apsw.Error as error:
        raise ProviderError(
            f"{provider_id}: the mirror failed ({type(error).__name__})."
        ) from error
