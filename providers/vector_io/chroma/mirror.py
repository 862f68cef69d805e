"""What Chroma cannot search, in one SQLite file beside it: words, and metadata of every kind.

The file is a copy and nothing else: it follows the collection before each search that needs it
(`journal.py` says how it knows), and is made anew where it is missing, damaged or out of date.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import numpy as np

from corral.api.chunks import Chunk
from corral.api.embedding_index import Candidate
from corral.api.errors import ProviderError, Unavailable
from corral.api.filters import Filter
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma import rows
from corral.providers.vector_io.chroma.engine import Collection
from corral.providers.vector_io.chroma.journal import (
    RETIRED_SECONDS,
    Head,
    is_marker,
    read_head,
    written_since,
)
from corral.providers.vector_io.chunk_file import state
from corral.providers.vector_io.chunk_filters import FilterMemory, attributes
from corral.providers.vector_io.lexical import LexicalIndex
from corral.providers.vector_io.text import ANALYZER_VERSION

LAYOUT = 1
"""Changes with the tables; a file of another layout is made anew."""
BUSY_SECONDS = 60
"""How long a thread or process waits for another one that brings the file up to date."""
FRESH_SECONDS = 86_400
"""How long a file at its head goes without being marked as such."""
SUFFIXES = ("", "-wal", "-shm")

_TABLES = """
CREATE TABLE state (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO state VALUES ('count', 0), ('head', '[0]');
INSERT INTO state VALUES ('followed_at', unixepoch());

-- A row is never changed: what replaces a chunk is a new row.
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk_id TEXT NOT NULL UNIQUE,
    document_id TEXT
) STRICT;
CREATE INDEX chunks_document ON chunks(document_id) WHERE document_id IS NOT NULL;

-- What filters see of the metadata, a row for each element of a list; a boolean is a blob.
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


class Mirror:
    """The file of one vector DB. Safe to use from many threads and processes.

    Args:
        path: The file; it need not exist.
        collection: Chroma's id of the collection; the file of another one is not used.
        vector_db: The registration.
        memory_mib: Bound of the postings kept in memory.
    """

    def __init__(self, path: Path, collection: str, vector_db: VectorDB, memory_mib: float) -> None:
        self._path = path
        self._origin = f"{collection} {LAYOUT} {ANALYZER_VERSION}"
        self._name = vector_db.provider_id
        self._lexical = LexicalIndex(
            vector_db.field_weights, vector_db.language, memory_mib=memory_mib
        )
        self._filters = FilterMemory()
        self._connections: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()

    # --- following the collection ------------------------------------------------------------

    def prepare(self) -> None:
        """Make the file, or make it anew where it is damaged or of another collection."""
        try:
            self._make()
        except Damaged:
            self.delete()
            self._make()

    def _make(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self.writing() as connection:
            if _origin(connection) != self._origin:
                self._clear(connection)

    def _clear(self, connection: apsw.Connection) -> None:
        """Empty the file, in the caller's transaction. Its version goes on, for what is kept."""
        version = state(connection, "version") + 1 if _origin(connection) else 0
        self._lexical.drop(connection)
        for table in ("state", "chunks", "attributes"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for _ in connection.execute(_TABLES):
            pass
        connection.execute("INSERT INTO state VALUES ('origin', ?)", (self._origin,))
        connection.execute("INSERT INTO state VALUES ('version', ?)", (version,))
        self._lexical.create(connection)

    def follow(self, collection: Collection) -> None:
        """Bring the file to the collection's version, which costs two small requests if it is.

        A write that was acknowledged before this was called is in the file when it returns; one
        that comes meanwhile may be.

        Raises:
            NotFound, Unavailable, ProviderTimeout, ProviderError: The collection cannot be read.
        """
        with self.reading() as connection:
            known, age = self.head(connection), self._age_seconds(connection)
        if age < FRESH_SECONDS and read_head(collection) == known:
            return
        with self.writing() as connection:
            head = read_head(collection)
            if self._age_seconds(connection) > RETIRED_SECONDS / 2:
                self._clear(connection)
            elif head == self.head(connection) and self._age_seconds(connection) < FRESH_SECONDS:
                return  # another thread or process was faster
            self._catch_up(connection, collection, head)
            self._reach(connection, head)

    def _catch_up(self, connection: apsw.Connection, collection: Collection, head: Head) -> None:
        """Apply what was written since, and where the number of chunks differs what was deleted."""
        for ids in written_since(collection, self.head(connection).markers, head):
            self._fetch(connection, collection, ids)
        if self.count(connection) != head.count:
            stored = {row_id for row_id in collection.get().ids if not is_marker(row_id)}
            held = self.ids(connection)
            self.remove(connection, sorted(held - stored))
            self._fetch(connection, collection, sorted(stored - held))

    def _fetch(
        self, connection: apsw.Connection, collection: Collection, ids: Sequence[str]
    ) -> None:
        for found in rows.read(collection, ids, ("metadatas",)):
            self.put(connection, rows.chunks_of(found))

    def head(self, connection: apsw.Connection) -> Head:
        """Return the version of the collection that the file has reached."""
        return Head.load(str(_state(connection, "head")))

    def _age_seconds(self, connection: apsw.Connection) -> float:
        """Return how long ago the file was found to be at its head."""
        return time.time() - float(str(_state(connection, "followed_at")))

    def _reach(self, connection: apsw.Connection, head: Head) -> None:
        """Record the version that the file has now."""
        values = {"head": head.dump(), "followed_at": int(time.time())}
        update = "UPDATE state SET value = ? WHERE name = ?"
        connection.executemany(update, [(value, name) for name, value in values.items()])

    def put(self, connection: apsw.Connection, chunks: Sequence[Chunk]) -> None:
        """Add chunks with unique ids; those that are there are replaced."""
        self.remove(connection, [chunk.chunk_id for chunk in chunks])
        inserted = connection.executemany(
            "INSERT INTO chunks(chunk_id, document_id) VALUES (?, ?) RETURNING row",
            [(chunk.chunk_id, chunk.document_id) for chunk in chunks],
        )
        numbers = [int(str(row)) for (row,) in inserted]
        connection.executemany(
            "INSERT OR IGNORE INTO attributes VALUES (?, ?, ?)",
            [
                (key, value, row)
                for row, chunk in zip(numbers, chunks, strict=True)
                for key, value in attributes(chunk.metadata)
            ],
        )
        terms = [self._lexical.analyze(chunk) for chunk in chunks]
        self._lexical.add(connection, zip(numbers, terms, strict=True))
        _changed(connection, len(numbers))

    def remove(self, connection: apsw.Connection, chunk_ids: Iterable[str]) -> None:
        """Remove chunks; unknown ids are ignored."""
        find = "SELECT row FROM chunks WHERE chunk_id = ?"
        found = connection.executemany(find, ((chunk_id,) for chunk_id in chunk_ids))
        numbers = [int(str(row)) for (row,) in found]
        for table in ("chunks", "attributes"):
            connection.executemany(f"DELETE FROM {table} WHERE row = ?", ((n,) for n in numbers))  # noqa: S608 - own names
        self._lexical.delete(connection, numbers)
        _changed(connection, -len(numbers))

    # --- searching ---------------------------------------------------------------------------

    def count(self, connection: apsw.Connection) -> int:
        """Return the number of chunks."""
        return state(connection, "count")

    def ids(self, connection: apsw.Connection) -> set[str]:
        """Return the ids of all chunks."""
        return {str(i) for (i,) in connection.execute("SELECT chunk_id FROM chunks")}

    def of_documents(self, connection: apsw.Connection, documents: Iterable[str]) -> set[str]:
        """Return the ids of the chunks of these documents."""
        find = "SELECT chunk_id FROM chunks WHERE document_id = ?"
        return {str(i) for (i,) in connection.executemany(find, ((d,) for d in sorted(documents)))}

    def passing(self, connection: apsw.Connection, filter_: Filter | None) -> list[str]:
        """Return the ids of the chunks that pass a filter, in the order of their rows."""
        found = self._filters.passing(connection, filter_)
        table = connection.execute("SELECT row, chunk_id FROM chunks ORDER BY row").fetchall()
        if found is None:
            return [str(chunk_id) for _, chunk_id in table]
        mask = found.mask(np.array([row for row, _ in table], dtype=np.int64))
        return [str(table[place][1]) for place in np.flatnonzero(mask)]

    def search(
        self, connection: apsw.Connection, text: str, k: int, filter_: Filter | None
    ) -> list[Candidate]:
        """Return the k best chunks that hold a word of the text and pass, best first."""
        hits = self._lexical.search(
            connection,
            text,
            k,
            count=self.count(connection),
            version=state(connection, "version"),
            allowed=self._filters.passing(connection, filter_),
        )
        find = "SELECT chunk_id FROM chunks WHERE row = ?"
        ids = [str(i) for (i,) in connection.executemany(find, ((hit.row,) for hit in hits))]
        found = [
            Candidate(chunk_id, hit.score, matched_terms=hit.terms)
            for chunk_id, hit in zip(ids, hits, strict=True)
        ]
        return sorted(found, key=lambda c: (-c.raw_score, c.chunk_id))[:k]

    # --- connections -------------------------------------------------------------------------

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
            try:
                connection = self._connections.get_nowait()
            except queue.Empty:
                connection = _connect(self._path)
            try:
                connection.execute(f"BEGIN {kind}")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.close(force=True)  # which rolls back
                raise
            self._connections.put(connection)

    def close(self) -> None:
        """Close the connections."""
        while True:
            try:
                self._connections.get_nowait().close()
            except queue.Empty:
                return

    def delete(self) -> None:
        """Delete the file."""
        self.close()
        for suffix in reversed(SUFFIXES):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)


def _connect(path: Path) -> apsw.Connection:
    """Open the file. A loss of power may undo the last steps, which are then followed again."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_SECONDS * 1000)
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _origin(connection: apsw.Connection) -> str:
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'state'"
    if not connection.execute(tables).fetchall()[0][0]:
        return ""
    return str(_state(connection, "origin"))


def _state(connection: apsw.Connection, name: str) -> object:
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return "" if row is None else row[0]


def _changed(connection: apsw.Connection, by: int) -> None:
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'count'", (by,))


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
