"""A SQLite file for keyword search and metadata filters that Chroma lacks.

The file only mirrors the collection. It is updated before each search that needs it (see
`journal.py`), and rebuilt if it is missing, damaged or out of date.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np

from corral.api.chunks import Chunk
from corral.api.errors import NotFound, Unavailable
from corral.api.filters import Filter
from corral.api.hits import KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.base.schema_version import check_version
from corral.providers.vector_io.chroma.client import Collection
from corral.providers.vector_io.chroma.keyword.journal import (
    RETIRED_SECONDS,
    Head,
    read_head,
    read_news,
    written_since,
)
from corral.providers.vector_io.chroma.records import chunks_of, is_marker
from corral.providers.vector_io.kit.folders import make_folder
from corral.providers.vector_io.store.changes import StaleRead, read_state
from corral.providers.vector_io.store.connections import (
    Connections,
    Damaged,
    connect,
    delete_files,
    state,
)
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.postings import KEYWORD_VERSION, KeywordIndex
from corral.providers.vector_io.store.rows import (
    chunk_ids_of,
    count_up,
    insert_attributes,
    rows_of_chunks,
)

T = TypeVar("T")

LAYOUT = 2
"""The schema version of the tables; a file with an older layout is rebuilt."""
BUSY_SECONDS = 60
"""Maximum wait for another process that updates the file."""
FRESH_SECONDS = 86_400
"""Maximum age of the time stamp that marks a file as up to date."""

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

-- What filters see of the metadata, as `store.filters` reads it.
CREATE TABLE attributes (
    key TEXT NOT NULL,
    value ANY NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (key, value, row)
) STRICT, WITHOUT ROWID;
CREATE INDEX attributes_row ON attributes(row);
"""

_DELETIONS = """
-- Deleted rows, in the order of their deletion, for what is in memory to follow.
CREATE TABLE IF NOT EXISTS deletions (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    row INTEGER NOT NULL
) STRICT;
"""


class Mirror:
    """The mirror of one vector DB's collection. Safe to use from many threads and processes.

    Args:
        path: The mirror's file, which need not exist.
        collection: The mirrored collection; a file of another collection is rebuilt.
        memory_mib: Maximum memory for cached postings, in MiB.
    """

    def __init__(
        self, path: Path, collection: Collection, vector_db: VectorDB, memory_mib: float
    ) -> None:
        self._path = path
        self._collection = collection
        self._provider_id = vector_db.provider_id
        self._keyword = KeywordIndex(
            vector_db.field_weights, vector_db.language, memory_mib=memory_mib
        )
        self._filters = FilterCache()
        self._following = threading.Lock()
        self._origin = f"{collection.uuid} {LAYOUT} {KEYWORD_VERSION}"
        # A power failure may undo the last updates, which are then applied again.
        self._connections = Connections(
            f"{self._provider_id} (mirror)",
            partial(connect, path, BUSY_SECONDS, synchronous="NORMAL", newest=LAYOUT),
        )

    # --- the file ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the file, or rebuild it if it is damaged or mirrors something else.

        Raises:
            ProviderError: The file cannot be written.
            ConfigError: A newer Corral wrote the file.
        """
        try:
            self._make()
        except Damaged:
            self._delete()
            self._make()

    def _make(self) -> None:
        make_folder(self._path.parent, self._provider_id, self._path)
        with self._connections.writing() as connection:
            version = check_version(connection, LAYOUT, self._path.name)
            connection.execute(_DELETIONS)
            if _origin(connection) != self._origin:
                self._clear(connection)
            if version < LAYOUT:
                connection.execute(f"PRAGMA user_version={LAYOUT}")

    def _clear(self, connection: apsw.Connection) -> None:
        """Empty the file, but keep counting versions and rows, which others may have cached."""
        self._forget()
        version, last_row = 0, 0
        if _origin(connection):
            old = read_state(connection)
            version, last_row = old.version + 1, old.last_row
            connection.execute("INSERT INTO deletions(row) SELECT row FROM chunks")
        self._keyword.drop(connection)
        for table in ("state", "chunks", "attributes"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for _ in connection.execute(_TABLES):
            pass
        insert = "INSERT INTO state VALUES ('origin', ?), ('version', ?)"
        connection.execute(insert, (self._origin, version))
        connection.execute("INSERT INTO sqlite_sequence VALUES ('chunks', ?)", (last_row,))
        self._keyword.create(connection)

    def close(self) -> None:
        """Close the connections; later calls raise Unavailable."""
        closed = f"{self._provider_id}: the vector DB is closed."
        self._connections.refuse(lambda: Unavailable(closed))

    def drop(self) -> None:
        """Delete the file with the vector DB; later calls raise NotFound."""
        deleted = f"{self._provider_id}: the vector DB is deleted."
        self._connections.refuse(lambda: NotFound(deleted, field="vector_db_id"))
        self._delete()

    def _delete(self) -> None:
        self._forget()
        self._connections.close()
        delete_files(self._path)

    # --- following ---------------------------------------------------------------------------

    def follow(self) -> None:
        """Update the file to the collection's version.

        If it is current, this takes two small requests. Afterwards the file contains every write
        that was acknowledged before this call, and possibly later ones.

        Raises:
            NotFound, Unavailable, ProviderTimeout, ProviderError: The collection cannot be read.
        """
        self._connections.check()
        if not self._path.exists():  # another process may have deleted the vector DB
            self._collection.count()  # This fails too if the collection is gone.
            self.prepare()
        with self._connections.reading() as connection:
            before, age = _head(connection), _age_seconds(connection)
        news = read_head(self._collection) if age < FRESH_SECONDS else None
        if news == before:
            return
        with self._following, self._connections.writing() as connection:
            if _age_seconds(connection) > RETIRED_SECONDS / 2:
                self._clear(connection)
            known = _head(connection)
            # If another thread or process was faster, the read rows may be older than the file.
            head = read_news(self._collection, known, news if known == before else None)
            if head != known:
                self._catch_up(connection, known, head)
            _reach(connection, head)

    def _catch_up(self, connection: apsw.Connection, known: Head, head: Head) -> None:
        """Apply the writes since the last update, and deletions if the chunk counts differ."""
        for ids in written_since(self._collection, known, head):
            self._fetch(connection, ids)
        if state(connection, "count") != head.count:
            stored = {row_id for row_id in self._collection.get().ids if not is_marker(row_id)}
            held = {str(i) for (i,) in connection.execute("SELECT chunk_id FROM chunks")}
            self._remove(connection, held - stored)
            self._fetch(connection, sorted(stored - held))

    def _fetch(self, connection: apsw.Connection, ids: Sequence[str]) -> None:
        for found in self._collection.read(ids, ("metadatas",)):
            self._put(connection, chunks_of(found))

    def _put(self, connection: apsw.Connection, chunks: Sequence[Chunk]) -> None:
        """Add chunks with unique ids, replacing existing ones."""
        self._remove(connection, [chunk.chunk_id for chunk in chunks])
        inserted: Any = connection.executemany(
            "INSERT INTO chunks(chunk_id, document_id) VALUES (?, ?) RETURNING row",
            [(chunk.chunk_id, chunk.document_id) for chunk in chunks],
        )
        rows = [int(row) for (row,) in inserted]
        insert_attributes(connection, rows, chunks)
        terms = [self._keyword.analyze(chunk) for chunk in chunks]
        self._keyword.add(connection, zip(rows, terms, strict=True))
        count_up(connection, len(rows))

    def _remove(self, connection: apsw.Connection, chunk_ids: Iterable[str]) -> None:
        """Remove chunks; unknown ids are ignored."""
        rows = sorted(rows_of_chunks(connection, chunk_ids))
        for delete in ("DELETE FROM chunks WHERE row = ?", "DELETE FROM attributes WHERE row = ?"):
            connection.executemany(delete, ((row,) for row in rows))
        self._keyword.delete(connection, rows)
        connection.executemany("INSERT INTO deletions(row) VALUES (?)", ((row,) for row in rows))
        count_up(connection, -len(rows))

    # --- reading -----------------------------------------------------------------------------

    def read(self, read: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Update the file, then call a function with a connection in one read transaction."""
        self.follow()
        while True:
            try:
                return self._connections.read(read, *arguments, **options)
            # A faster query has seen a newer state, or the file was replaced.
            except StaleRead:
                self._forget()

    def _forget(self) -> None:
        self._keyword.forget()
        self._filters.forget()

    def passing(self, connection: apsw.Connection, filter_: Filter | None) -> list[str]:
        """Return the ids of the chunks that pass a filter, in the order of their rows."""
        found = self._filters.passing(connection, filter_)
        if found is None or found.negated:
            table = connection.execute("SELECT row, chunk_id FROM chunks ORDER BY row").fetchall()
            everyone = np.array([row for row, _ in table], dtype=np.int64)
            mask = np.full(len(table), True) if found is None else found.mask(everyone)
            return [str(table[place][1]) for place in np.flatnonzero(mask)]
        return list(chunk_ids_of(connection, found.rows.tolist()).values())

    def search(
        self,
        connection: apsw.Connection,
        text: str,
        k: int,
        filter_: Filter | None,
        by: TermStatistics | None = None,
        *,
        fuzzy: bool = False,
    ) -> KeywordLeg:
        """Return the k best chunks that contain a word of the text and pass, best first."""
        allowed = self._filters.passing(connection, filter_)
        return self._keyword.candidates(connection, text, k, allowed, by, fuzzy=fuzzy)

    def statistics(self, connection: apsw.Connection, text: str, *, fuzzy: bool) -> TermStatistics:
        """Return the terms of a text for `search`."""
        return self._keyword.statistics(connection, text, fuzzy=fuzzy)


def _head(connection: apsw.Connection) -> Head:
    """Return the version of the collection up to which the file is updated."""
    return Head.load(_text(connection, "head"))


def _age_seconds(connection: apsw.Connection) -> float:
    """Return the seconds since the file was last up to date."""
    return time.time() - float(_text(connection, "followed_at"))


def _text(connection: apsw.Connection, name: str) -> str:
    found: Any = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchall()
    return str(found[0][0])


def _reach(connection: apsw.Connection, head: Head) -> None:
    """Record the version up to which the file is updated."""
    values = {"head": head.dump(), "followed_at": int(time.time())}
    update = "UPDATE state SET value = ? WHERE name = ?"
    connection.executemany(update, [(value, name) for name, value in values.items()])


def _origin(connection: apsw.Connection) -> str:
    """Return the collection, layout and keyword version of a file; "" for an empty one."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'state'"
    if not connection.execute(tables).fetchall()[0][0]:
        return ""
    found = connection.execute("SELECT value FROM state WHERE name = 'origin'").fetchall()
    return str(found[0][0]) if found else ""
