"""The SQLite file that holds the chunks of one vector DB, for engines without a place for texts.

Its tables, their versions, and how connections to it are opened. The layout and its reasons are in
RFC 0006.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError, ProviderError, Unavailable
from corral.providers.vector_io._sqlite.postings import LEXICAL_VERSION, LexicalIndex
from corral.providers.wal import use_wal

CACHE_KIB = 32 * 1024
REINDEX_BATCH = 1000

_TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO state VALUES ('version', 0), ('count', 0), ('analyzer', 0);

-- A row is never changed and its number never used again: what replaces a chunk is a new row.
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk_id TEXT NOT NULL UNIQUE,
    document_id TEXT,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    chunk_metadata TEXT
) STRICT;
CREATE INDEX chunks_document ON chunks(document_id) WHERE document_id IS NOT NULL;

-- float32, little-endian; apart from the texts, so that a scan of one does not read the other.
CREATE TABLE embeddings (
    row INTEGER PRIMARY KEY,
    embedding BLOB NOT NULL,
    squared_norm REAL NOT NULL
) STRICT;

-- What filters see of the metadata, a row for each element of a list. A boolean is a blob of one
-- byte, so that SQLite's own order of types keeps booleans, numbers and strings apart.
CREATE TABLE attributes (
    key TEXT NOT NULL,
    value ANY NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)
) STRICT, WITHOUT ROWID;

-- Rows that are gone, in the order of their going, for memory copies to follow.
CREATE TABLE deletions (sequence INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL) STRICT;
"""


def _create(connection: apsw.Connection) -> None:
    for _ in connection.execute(_TABLES):
        pass


MIGRATIONS: tuple[Callable[[apsw.Connection], None], ...] = (_create,)
"""Step n takes a file from schema version n to n + 1; the steps of released versions never change.
The keyword index is not among them: it is made anew when `LEXICAL_VERSION` differs."""


def connect(
    path: Path, busy_timeout_seconds: float, extension: str | None = None
) -> apsw.Connection:
    """Open a connection to an existing file.

    synchronous=FULL makes a write that returned outlive a loss of power.

    Args:
        path: The file.
        busy_timeout_seconds: How long a write waits for another process's write.
        extension: A library with functions to load into SQLite, None for none.

    Raises:
        apsw.CantOpenError: The file does not exist.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(int(busy_timeout_seconds * 1000))
    if extension is not None:
        connection.enable_load_extension(True)
        connection.load_extension(extension)
        connection.enable_load_extension(False)
    use_wal(connection, busy_timeout_seconds)
    for pragma in ("synchronous=FULL", f"cache_size=-{CACHE_KIB}"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def prepare(connection: apsw.Connection, lexical: LexicalIndex) -> None:
    """Bring a file to this version's schema and this analyzer's keyword index, in one transaction.

    Raises:
        ConfigError: A newer Corral wrote the file.
    """
    current = _schema_version(connection) == len(MIGRATIONS)
    if current and state(connection, "analyzer") == LEXICAL_VERSION:
        return
    with transaction(connection):
        found = _schema_version(connection)  # again: another process may have been faster
        if found > len(MIGRATIONS):
            raise ConfigError(
                f"The file has schema version {found}, this Corral knows {len(MIGRATIONS)}.",
                hint="Upgrade Corral.",
            )
        for step in MIGRATIONS[found:]:
            step(connection)
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
        if state(connection, "analyzer") != LEXICAL_VERSION:
            _reindex(connection, lexical)


def _schema_version(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("user_version")))


def _reindex(connection: apsw.Connection, lexical: LexicalIndex) -> None:
    """Make the keyword index anew from the stored texts."""
    lexical.drop(connection)
    lexical.create(connection)
    query = "SELECT row, content, metadata FROM chunks WHERE row > ? ORDER BY row LIMIT ?"
    last = 0
    while batch := connection.execute(query, (last, REINDEX_BATCH)).fetchall():
        rows = [(int(str(row)), lexical.analyze(_text(text, meta))) for row, text, meta in batch]
        lexical.add(connection, rows)
        last = rows[-1][0]
    connection.execute("UPDATE state SET value = ? WHERE name = 'analyzer'", (LEXICAL_VERSION,))
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")


def _text(content: object, metadata: object) -> Chunk:
    return Chunk.model_construct(content=str(content), metadata=json.loads(str(metadata)))


def state(connection: apsw.Connection, name: str) -> int:
    """Return a number of the `state` table: version, count or analyzer."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise ProviderError(f"The file has no {name} in its state table; it is damaged.")
    return int(row[0])


@contextmanager
def transaction(connection: apsw.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run a block as one transaction; an error undoes it and goes on."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def driver_errors(provider_id: str) -> Iterator[None]:
    """Translate the driver's errors, here and nowhere else. Their texts may quote data: dropped."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Unavailable(
            f"{provider_id}: the file is locked by another process.", hint="Try again."
        ) from error
    except apsw.FullError as error:
        raise ProviderError(f"{provider_id}: the disk is full.", hint="Make room.") from error
    except apsw.Error as error:
        raise ProviderError(f"{provider_id}: SQLite failed ({type(error).__name__}).") from error
