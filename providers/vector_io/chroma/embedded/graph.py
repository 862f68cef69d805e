"""The graph of a collection: whether a kill has torn its files, and what restores them (RFC 0012).

Chroma writes a graph's files in place. A kill that falls into that leaves a mix of two states,
which fails for ever, or finds too little without a word. So Corral keeps Chroma's log of
embeddings, from which Chroma builds a graph that has no files, and notes what the files looked like
when they were last whole.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from corral.api.errors import ProviderError
from corral.providers.vector_io.chroma.embedded.files import (
    FILES,
    ID_MAP,
    Embedding,
    Shape,
    stored_embeddings,
)
from corral.providers.vector_io.store.connections import driver_errors, transaction

DATABASE = "chroma.sqlite3"
NOTE = "corral.json"
"""Records what the files of a graph looked like when they were last whole."""
BUSY_SECONDS = 10

_LOG = logging.getLogger(__name__)
_UPSERT = 2
_KEEP = json.dumps({"automatically_purge": False, "_type": "EmbeddingsQueueConfigurationInternal"})

_COLLECTIONS = """
SELECT c.id, c.dimension, c.schema_str, v.id, m.id
FROM collections c
JOIN segments v ON v.collection = c.id AND v.scope = 'VECTOR'
JOIN segments m ON m.collection = c.id AND m.scope = 'METADATA'
"""

_LOGGED = """
SELECT e.embedding_id, q.vector
FROM embeddings e
LEFT JOIN embeddings_queue q ON q.seq_id = e.seq_id AND q.topic = :topic AND q.id = e.embedding_id
WHERE e.segment_id = :rows
ORDER BY e.id
"""

_NOT_LOGGED = """
SELECT e.embedding_id, e.seq_id
FROM embeddings e
LEFT JOIN embeddings_queue q ON q.seq_id = e.seq_id AND q.topic = :topic AND q.id = e.embedding_id
WHERE e.segment_id = :rows AND q.vector IS NULL
"""

_LOG_ROWS = "SELECT count(*) FROM embeddings_queue WHERE topic = :topic"
_LIVING_ROWS = "SELECT count(*) FROM embeddings WHERE segment_id = :rows"
_TIDY = """
DELETE FROM embeddings_queue
WHERE topic = :topic
AND seq_id < (SELECT min(seq_id) FROM max_seq_id WHERE segment_id IN (:graph, :rows))
AND seq_id NOT IN (SELECT seq_id FROM embeddings WHERE segment_id = :rows)
"""
"""Deletes what later rows of the log replace. The last that the graph has stays: SQLite counts on
from the largest number there is, and Chroma takes smaller ones for known."""


@dataclass(frozen=True, slots=True)
class Segments:
    """A collection in Chroma's tables.

    Attributes:
        graph: The id of its graph, by which the folder is called.
        rows: The id under which its rows are kept.
    """

    collection: str
    dimension: int
    schema: dict[str, Any]
    graph: str
    rows: str

    @property
    def names(self) -> dict[str, str]:
        """Return what the statements on it need."""
        topic = f"persistent://default/default/{self.collection}"
        return {"topic": topic, "graph": self.graph, "rows": self.rows}

    def shape(self) -> Shape | None:
        """Return what its configuration says of the graph's files, if it does."""
        try:
            found = self.schema["keys"]["#embedding"]["float_list"]["vector_index"]["config"]
            neighbors = int(found["hnsw"]["max_neighbors"])
            return Shape(self.dimension, neighbors, found["space"] == "cosine")
        except (KeyError, TypeError):
            return None


class Graph:
    """The graph of one collection in an open folder. Safe to use from many threads."""

    def __init__(self, folder: Path, segments: Segments) -> None:
        self._folder = folder / segments.graph
        self._segments = segments
        self._writing = threading.Lock()
        self._noted = _noted(self._folder)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let nobody else change the graph meanwhile; note its files if they were persisted."""
        with self._writing:
            yield
            now = _state_of(self._folder)
            if now is not None and now != self._noted:
                self._note(now)

    def _note(self, now: object) -> None:
        try:
            for name in FILES:  # the note must not outlive them, even where power fails
                with (self._folder / name).open("r+b") as file:
                    os.fsync(file.fileno())
            new = self._folder / f"{NOTE}.new"
            new.write_text(json.dumps(now), "ascii")
            new.replace(self._folder / NOTE)
            self._noted = now
        except OSError as error:
            kind = type(error).__name__
            _LOG.warning("%s is noted at the next write (%s).", self._folder, kind)

    def distrust(self) -> None:
        """Have it restored when the folder is opened next: Chroma failed to use it."""
        (self._folder / NOTE).unlink(missing_ok=True)


def connected(path: Path) -> apsw.Connection:
    """Open Chroma's database, which exists and which nothing else of this process writes.

    Chroma has an SQLite library of its own, and locks of files hold between processes only. So this
    one would take the journal of a write that is under way for one that a kill has left, and roll
    it back: that destroys the file.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_SECONDS * 1000)
    return connection


def reader(path: Path) -> apsw.Connection:
    """Open Chroma's database while Chroma may write; reading fails while it has a journal."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_SECONDS * 1000)
    return connection


def graph_of(folder: Path, collection: str, provider_id: str) -> Graph:
    """Return the graph of a collection, which exists; while Chroma writes, wait."""
    deadline = time.monotonic() + BUSY_SECONDS
    with driver_errors(provider_id):
        while True:
            try:
                with closing(reader(folder / DATABASE)) as connection:
                    known = {each.collection: each for each in _collections(connection)}
                return Graph(folder, known[collection])
            except (apsw.Error, KeyError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)


def _collections(connection: apsw.Connection) -> list[Segments]:
    return [
        Segments(str(uuid), int(dimension or 0), json.loads(schema or "{}"), str(graph), str(rows))
        for uuid, dimension, schema, graph, rows in connection.execute(_COLLECTIONS)
    ]


def keep_log(folder: Path, provider_id: str) -> None:
    """Have Chroma keep its log, of which it would purge what a graph's files hold."""
    with driver_errors(provider_id), closing(connected(folder / DATABASE)) as connection:
        if _purges(connection):
            insert = "INSERT OR REPLACE INTO embeddings_queue_config(id, config_json_str)"
            connection.execute(f"{insert} VALUES (1, ?)", (_KEEP,))


def restore(folder: Path, provider_id: str) -> dict[str, int]:
    """Restore the torn graphs of a folder that nobody has open, and return what cannot be.

    The log is completed first; then a graph that is not as it was noted goes, and Chroma builds it
    from the log when it is asked next. A kill repeats all that.

    Returns:
        How many chunks have no embedding any more, by collection.
    """
    if not (folder / DATABASE).exists():
        return {}
    lost: dict[str, int] = {}
    with driver_errors(provider_id), closing(connected(folder / DATABASE)) as connection:
        purges = _purges(connection)
        for segments in _collections(connection):
            graph = folder / segments.graph
            whole = _is_whole(connection, segments, graph)
            if whole and not purges:
                _tidy(connection, segments)
                continue
            with transaction(connection):
                missing = _complete_log(connection, segments, graph)
                if not missing and not whole:
                    delete = "DELETE FROM max_seq_id WHERE segment_id = :graph"
                    connection.execute(delete, segments.names)
            if missing:
                lost[segments.collection] = missing
            elif not whole:
                _LOG.warning(
                    "%s: restoring the graph %s from the log.", provider_id, segments.graph
                )
                _delete(graph, provider_id)
    return lost


def _tidy(connection: apsw.Connection, segments: Segments) -> None:
    """Delete what is replaced from the log, where that is half of it."""
    logged, living = (
        int(str(connection.execute(count, segments.names).fetchall()[0][0]))
        for count in (_LOG_ROWS, _LIVING_ROWS)
    )
    if logged > 2 * living:
        with transaction(connection):
            connection.execute(_TIDY, segments.names)


def _delete(graph: Path, provider_id: str) -> None:
    try:
        if graph.exists():
            shutil.rmtree(graph)
    except OSError as error:
        raise ProviderError(f"{provider_id}: cannot delete {graph} ({error.strerror}).") from error


def _purges(connection: apsw.Connection) -> bool:
    found = connection.execute("SELECT config_json_str FROM embeddings_queue_config").fetchall()
    return not found or bool(json.loads(str(found[0][0])).get("automatically_purge", True))


def _is_whole(connection: apsw.Connection, segments: Segments, graph: Path) -> bool:
    """Return True if the files are as they were noted, or Chroma will not read them."""
    if (graph / ID_MAP).exists():
        state = _state_of(graph)
        return state is not None and state == _noted(graph)
    persisted = "SELECT 1 FROM max_seq_id WHERE segment_id = :graph"
    return not connection.execute(persisted, segments.names).fetchall()


def _complete_log(connection: apsw.Connection, segments: Segments, graph: Path) -> int:
    """Add to the log the embeddings that only the graph has; return how many neither has."""

    gone = [(str(i), int(n)) for i, n in connection.execute(_NOT_LOGGED, segments.names)]
    shape = segments.shape()
    stored: dict[str, Embedding] = {}
    if gone and shape:
        stored = stored_embeddings(graph, shape, partial(_logged, connection, segments))
    insert = "INSERT INTO embeddings_queue(seq_id, operation, topic, id, vector, encoding)"
    connection.executemany(
        f"{insert} VALUES (?, {_UPSERT}, ?, ?, ?, 'FLOAT32')",
        (
            (number, segments.names["topic"], i, stored[i].astype("<f4").tobytes())
            for i, number in gone
            if i in stored
        ),
    )
    return sum(i not in stored for i, _ in gone)


def _logged(connection: apsw.Connection, segments: Segments) -> list[tuple[str, Embedding | None]]:
    found = connection.execute(_LOGGED, segments.names)
    return [(str(i), None if v is None else np.frombuffer(v, "<f4")) for i, v in found]


def _state_of(graph: Path) -> object:
    """Return what tells one state of a graph's files from another; None if it was never whole."""
    try:
        found = [(graph / name).stat() for name in FILES]
    except FileNotFoundError:
        return None
    return [[one.st_size, one.st_mtime_ns] for one in found]


def _noted(graph: Path) -> object:
    try:
        return json.loads((graph / NOTE).read_text("ascii"))
    except (OSError, ValueError):
        return None
