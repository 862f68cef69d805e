"""The embeddings of a chunk file as one matrix in memory, which follows the file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.providers.vector_io._sqlite.changes import StaleRead, deleted_after, last_deletion
from corral.providers.vector_io._sqlite.connections import state

BATCH_ROWS = 8192
"""Rows read at once."""


@dataclass(frozen=True, slots=True)
class View:
    """One state of the memory copy; later states do not change its arrays.

    Attributes:
        rows: Row numbers, ascending, int64, shape (n,).
        matrix: float32, shape (n, dimension).
        squared_norms: Of the stored embeddings, float64, shape (n,).
        alive: False for a deleted row, shape (n,).
        all_alive: True if no row is deleted.
    """

    rows: NDArray[np.int64]
    matrix: NDArray[np.float32]
    squared_norms: NDArray[np.float64]
    alive: NDArray[np.bool_]
    all_alive: bool


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """Some rows of the file: numbers, squared norms and embeddings, in the order of the numbers."""

    rows: NDArray[np.int64]
    squared_norms: NDArray[np.float64]
    matrix: NDArray[np.float32]


def read_embeddings(
    connection: apsw.Connection, after_row: int, *, unit: bool, at_most: int = -1
) -> Iterator[EmbeddingBatch]:
    """Yield the embeddings of the rows above one, in batches, in the order of the rows.

    Args:
        connection: In a read transaction that lasts for the whole iteration.
        after_row: The row above which to begin, 0 for all.
        unit: Pass True to scale the embeddings to length 1.
        at_most: How many rows in all, -1 for no limit.
    """
    query = "SELECT row, squared_norm, embedding FROM embeddings WHERE row > ? ORDER BY row LIMIT ?"
    cursor = connection.execute(query, (after_row, at_most))
    while batch := list(islice(cursor, BATCH_ROWS)):
        rows, norms, blobs = zip(*batch, strict=True)
        squared_norms = np.array(norms, dtype=np.float64)
        matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(rows), -1)
        if unit:
            matrix = (matrix / np.sqrt(squared_norms[:, None])).astype(np.float32)
        yield EmbeddingBatch(np.array(rows, dtype=np.int64), squared_norms, matrix)


def read_rows(
    connection: apsw.Connection, rows: NDArray[np.int64], dimension: int, *, unit: bool
) -> NDArray[np.float32]:
    """Return the embeddings of some rows that exist, shape (n, dimension), in their order."""
    query = "SELECT embedding FROM embeddings WHERE row = ?"
    found: Any = connection.executemany(query, ((row,) for row in rows.tolist()))
    matrix = np.frombuffer(b"".join(blob for (blob,) in found), "<f4").reshape(-1, dimension)
    if unit:
        wide = matrix.astype(np.float64)
        matrix = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    return matrix


def mark_deleted(rows: NDArray[np.int64], alive: NDArray[np.bool_], gone: NDArray[np.int64]) -> int:
    """Mark deleted rows as not alive, and return how many were alive until now.

    Args:
        rows: Ascending, shape (n,).
        alive: Shape (n,); changed.
        gone: The deleted rows, in any order; those that are not in `rows` are ignored.
    """
    places = np.searchsorted(rows, gone)
    held = places < len(rows)
    places = places[held][rows[places[held]] == gone[held]]
    newly = int(alive[np.unique(places)].sum())
    alive[places] = False
    return newly


class MemoryCopy:
    """The embeddings of one file as one matrix that follows the file, each change read once.

    Args:
        dimension: Numbers in an embedding.
        unit: Pass True to scale the embeddings to length 1.
        after_row: The row above which the copy begins, for engines that hold the rest elsewhere.
    """

    def __init__(self, dimension: int, *, unit: bool, after_row: int = 0) -> None:
        self._dimension = dimension
        self._unit = unit
        self._after_row = after_row
        self._lock = threading.Lock()
        self._reset()

    def forget(self) -> None:
        """Release the memory."""
        with self._lock:
            self._reset()

    def _reset(self) -> None:
        self._version = -1
        self._deletion = 0
        self._used = 0
        self._rows = np.empty(0, dtype=np.int64)
        self._matrix = np.empty((0, self._dimension), dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._alive = np.empty(0, dtype=np.bool_)
        self._dead = 0

    def view(self, connection: apsw.Connection) -> View:
        """Return a copy of what the connection's transaction sees.

        Raises:
            StaleRead: The copy has seen something newer.
        """
        version = state(connection, "version")
        with self._lock:
            if version < self._version:
                raise StaleRead
            if version > self._version:
                if self._version < 0:
                    self._start(connection)
                self._append(connection)
                self._mark_deleted(connection)
                self._version = version
            used = self._used
            return View(
                self._rows[:used],
                self._matrix[:used],
                self._norms[:used],
                self._alive[:used],
                self._dead == 0,
            )

    def _start(self, connection: apsw.Connection) -> None:
        if not self._after_row:
            self._reserve(state(connection, "count"))
        self._deletion = last_deletion(connection)

    def _append(self, connection: apsw.Connection) -> None:
        last = int(self._rows[self._used - 1]) if self._used else self._after_row
        for batch in read_embeddings(connection, last, unit=self._unit):
            start, end = self._used, self._used + len(batch.rows)
            self._reserve(end)
            self._rows[start:end] = batch.rows
            self._norms[start:end] = batch.squared_norms
            self._matrix[start:end] = batch.matrix
            self._alive[start:end] = True
            self._used = end

    def _reserve(self, size: int) -> None:
        if size <= len(self._rows):
            return
        capacity = max(size, len(self._rows) * 3 // 2, 1024)
        for name in ("_rows", "_matrix", "_norms", "_alive"):
            old = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), dtype=old.dtype)
            new[: self._used] = old[: self._used]
            setattr(self, name, new)

    def _mark_deleted(self, connection: apsw.Connection) -> None:
        self._deletion, gone = deleted_after(connection, self._deletion)
        if not len(gone):
            return
        self._alive = self._alive.copy()  # views keep the old one
        self._dead += mark_deleted(self._rows[: self._used], self._alive[: self._used], gone)
        if self._dead > self._used // 4:
            self._compact()

    def _compact(self) -> None:
        alive = np.flatnonzero(self._alive[: self._used])
        for name in ("_rows", "_matrix", "_norms", "_alive"):
            setattr(self, name, getattr(self, name)[alive])
        self._used, self._dead = len(alive), 0
