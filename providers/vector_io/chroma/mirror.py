"""What Chroma cannot search, in one SQLite file beside it: words, and metadata of every kind.

The file is a copy and nothing else: it follows the collection before each search that needs it
(`journal.py` says how it knows), and is made anew where it is missing, damaged or out of date.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.hits import Candidate
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._sqlite.filters import FilterMemory, attributes
from corral.providers.vector_io._sqlite.postings import LexicalIndex
from corral.providers.vector_io._sqlite.schema import state
from corral.providers.vector_io.chroma import rows
from corral.providers.vector_io.chroma.engine import Collection
from corral.providers.vector_io.chroma.journal import (
    RETIRED_SECONDS,
    Head,
    is_marker,
    read_head,
    read_news,
    written_since,
)
from corral.providers.vector_io.chroma.mirror_file import MirrorFile

FRESH_SECONDS = 86_400
"""How long a file at its head goes without being marked as such."""


class Mirror:
    """The mirror of one vector DB's collection. Safe to use from many threads and processes.

    Args:
        path: Its file, which need not exist.
        collection: What it mirrors.
        vector_db: The registration.
        memory_mib: Bound of the postings kept in memory.
    """

    def __init__(
        self, path: Path, collection: Collection, vector_db: VectorDB, memory_mib: float
    ) -> None:
        self._collection = collection
        self._lexical = LexicalIndex(
            vector_db.field_weights, vector_db.language, memory_mib=memory_mib
        )
        self._filters = FilterMemory()
        self._file = MirrorFile(path, collection.uuid, self._lexical, vector_db.provider_id)
        self._following = threading.Lock()

    def prepare(self) -> None:
        """Make the file where it is missing, damaged or of another collection."""
        self._file.prepare()

    def close(self) -> None:
        """Close the connections to the file."""
        self._file.close()

    def drop(self) -> None:
        """Delete the file with the vector DB."""
        self._file.drop()

    def reading(self) -> AbstractContextManager[apsw.Connection]:
        """Lend a connection that sees one state of the file."""
        return self._file.reading()

    # --- following the collection ------------------------------------------------------------

    def follow(self) -> None:
        """Bring the file to the collection's version, which costs two small requests if it is.

        A write that was acknowledged before this was called is in the file when it returns; one
        that comes meanwhile may be.

        Raises:
            NotFound, Unavailable, ProviderTimeout, ProviderError: The collection cannot be read.
        """
        if not self._file.exists():
            self._collection.count()  # which fails where the collection is gone as well
            self._file.prepare()
        with self.reading() as connection:
            known, age = _head(connection), _age_seconds(connection)
        if age < FRESH_SECONDS and read_head(self._collection) == known:
            return
        with self._following, self._file.writing() as connection:
            if _age_seconds(connection) > RETIRED_SECONDS / 2:
                self._file.clear(connection)
            known = _head(connection)
            head = read_news(self._collection, known)
            if head != known:  # no other thread or process was faster
                self._catch_up(connection, known, head)
            _reach(connection, head)

    def _catch_up(self, connection: apsw.Connection, known: Head, head: Head) -> None:
        """Apply what was written since, and where the number of chunks differs what was deleted."""
        for ids in written_since(self._collection, known, head):
            self._fetch(connection, ids)
        if self.count(connection) != head.count:
            stored = {row_id for row_id in self._collection.get().ids if not is_marker(row_id)}
            held = self.ids(connection)
            self._remove(connection, sorted(held - stored))
            self._fetch(connection, sorted(stored - held))

    def _fetch(self, connection: apsw.Connection, ids: Sequence[str]) -> None:
        for found in rows.read(self._collection, ids, ("metadatas",)):
            self._put(connection, rows.chunks_of(found))

    def _put(self, connection: apsw.Connection, chunks: Sequence[Chunk]) -> None:
        """Add chunks with unique ids; those that are there are replaced."""
        self._remove(connection, [chunk.chunk_id for chunk in chunks])
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

    def _remove(self, connection: apsw.Connection, chunk_ids: Iterable[str]) -> None:
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

    def ids_after(self, connection: apsw.Connection, after: str, limit: int) -> list[str]:
        """Return the first ids that follow one, in ascending order."""
        find = "SELECT chunk_id FROM chunks WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?"
        return [str(i) for (i,) in connection.execute(find, (after, limit))]

    def of_documents(self, connection: apsw.Connection, documents: Iterable[str]) -> set[str]:
        """Return the ids of the chunks of these documents."""
        find = "SELECT chunk_id FROM chunks WHERE document_id = ?"
        return {str(i) for (i,) in connection.executemany(find, ((d,) for d in sorted(documents)))}

    def passing(self, connection: apsw.Connection, filter_: Filter | None) -> list[str]:
        """Return the ids of the chunks that pass a filter, in the order of their rows."""
        found = self._filters.passing(connection, filter_)
        if found is None or found.negated:
            table = connection.execute("SELECT row, chunk_id FROM chunks ORDER BY row").fetchall()
            everyone = np.array([row for row, _ in table], dtype=np.int64)
            mask = np.full(len(table), True) if found is None else found.mask(everyone)
            return [str(table[place][1]) for place in np.flatnonzero(mask)]
        return _ids_of(connection, found.rows.tolist())

    def search(
        self,
        connection: apsw.Connection,
        text: str,
        k: int,
        filter_: Filter | None,
        *,
        fuzzy: bool = False,
    ) -> list[Candidate]:
        """Return the k best chunks that hold a word of the text and pass, best first."""
        hits = self._lexical.search(
            connection,
            text,
            k,
            count=self.count(connection),
            version=state(connection, "version"),
            allowed=self._filters.passing(connection, filter_),
            fuzzy=fuzzy,
        )
        ids = _ids_of(connection, [hit.row for hit in hits])
        found = [
            Candidate(chunk_id, hit.score, matched_terms=hit.terms)
            for chunk_id, hit in zip(ids, hits, strict=True)
        ]
        return sorted(found, key=lambda c: (-c.raw_score, c.chunk_id))[:k]


def _ids_of(connection: apsw.Connection, numbers: Iterable[int]) -> list[str]:
    """Return the ids of the chunks in these rows, which exist, in their order."""
    find = "SELECT chunk_id FROM chunks WHERE row = ?"
    return [str(i) for (i,) in connection.executemany(find, ((n,) for n in numbers))]


def _head(connection: apsw.Connection) -> Head:
    """Return the version of the collection that the file has reached."""
    return Head.load(_text(connection, "head"))


def _age_seconds(connection: apsw.Connection) -> float:
    """Return how long ago the file was found to be at its head."""
    return time.time() - float(_text(connection, "followed_at"))


def _text(connection: apsw.Connection, name: str) -> str:
    found: Any = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchall()
    return str(found[0][0])


def _reach(connection: apsw.Connection, head: Head) -> None:
    """Record the version that the file has now."""
    values = {"head": head.dump(), "followed_at": int(time.time())}
    update = "UPDATE state SET value = ? WHERE name = ?"
    connection.executemany(update, [(value, name) for name, value in values.items()])


def _changed(connection: apsw.Connection, by: int) -> None:
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'count'", (by,))
