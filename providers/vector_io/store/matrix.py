"""The embeddings of a chunk file in memory, one byte per number, updated incrementally."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.kit.codes import BYTES_BESIDES, Codes, Scan, begun, coded
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import StaleRead, deleted_after, read_state
from corral.providers.vector_io.store.connections import state

BATCH_ROWS = 1024
"""Rows read and quantized per batch, so that they fit the processor's cache."""


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of the copy in memory; later updates do not change its arrays.

    Attributes:
        rows: Row numbers, ascending, int64, shape (n,).
        scan: The scan of the embeddings' codes, shared by concurrent queries.
        squared_norms: Squared lengths of the embeddings, float64, shape (n,).
        alive: False for a deleted row, shape (n,).
        all_alive: True if no row is deleted.
    """

    rows: NDArray[np.int64]
    scan: Scan
    squared_norms: NDArray[np.float64]
    alive: NDArray[np.bool_]
    all_alive: bool
    metric: Metric

    @property
    def codes(self) -> Codes:
        """The codes of the embeddings."""
        return self.scan.stored

    def begin(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Callable[[], tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Return a function for the rows that can be among the k nearest, with their embeddings.

        Until it is called, the query waits for a shared pass over the codes.

        Args:
            connection: In the transaction of the view.
            query, k, allowed: As for `VectorSearcher.begin`.
        """
        usable = usable_places(self.rows, self.alive, self.all_alive, allowed)

        def read(places: NDArray[np.intp]) -> NDArray[np.float32]:
            return read_rows(connection, self.rows[places], len(query))

        finish = begun(self.scan, self.squared_norms, query, k, self.metric, usable, read)

        def found() -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            places, matrix = finish()
            return self.rows[places], matrix

        return found


def usable_places(
    rows: NDArray[np.int64], alive: NDArray[np.bool_], all_alive: bool, allowed: RowSet | None
) -> NDArray[np.bool_] | None:
    """Return a mask of the rows that may be returned; None if all may."""
    if allowed is None:
        return None if all_alive else alive.copy()
    mask = allowed.mask(rows)
    return mask if all_alive else mask & alive


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """A batch of rows, ascending: numbers, squared norms and embeddings."""

    rows: NDArray[np.int64]
    squared_norms: NDArray[np.float64]
    matrix: NDArray[np.float32]


def read_embeddings(
    connection: apsw.Connection, after_row: int, *, at_most: int = -1
) -> Iterator[EmbeddingBatch]:
    """Yield the embeddings of the rows above a row number, in batches, ascending.

    Args:
        connection: In a read transaction that lasts for the whole iteration.
        after_row: Yield the rows above this one; 0 for all.
        at_most: Maximum number of rows, -1 for no limit.
    """
    query = "SELECT row, squared_norm, embedding FROM embeddings WHERE row > ? ORDER BY row LIMIT ?"
    cursor = connection.execute(query, (after_row, at_most))
    while batch := list(islice(cursor, BATCH_ROWS)):
        rows, norms, blobs = zip(*batch, strict=True)
        squared_norms = np.array(norms, dtype=np.float64)
        matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(rows), -1)
        yield EmbeddingBatch(np.array(rows, dtype=np.int64), squared_norms, matrix)


def read_rows(
    connection: apsw.Connection, rows: NDArray[np.int64], dimension: int
) -> NDArray[np.float32]:
    """Return the stored embeddings of existing rows, shape (n, dimension), in order.

    SQLite concatenates them, because fetching each row would wait for the interpreter's lock.
    """
    query = (
        "SELECT CAST(group_concat(embedding, '') AS BLOB)"
        " FROM json_each(?) CROSS JOIN embeddings ON row = value"
    )
    parts = []
    for start in range(0, len(rows), BATCH_ROWS):
        wanted = json.dumps(rows[start : start + BATCH_ROWS].tolist())
        found: Any = connection.execute(query, (wanted,)).fetchone()
        parts.append(found[0] or b"")
    return np.frombuffer(b"".join(parts), "<f4").reshape(-1, dimension)


def unit_rows(
    matrix: NDArray[np.float32], squared_norms: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return rows scaled to length 1."""
    scaled: NDArray[np.float32] = (matrix / np.sqrt(squared_norms[:, None])).astype(np.float32)
    return scaled


def mark_deleted(rows: NDArray[np.int64], alive: NDArray[np.bool_], gone: NDArray[np.int64]) -> int:
    """Mark deleted rows as not alive, and return the number of rows that were alive.

    Args:
        rows: Ascending, shape (n,).
        alive: Shape (n,); mutated.
        gone: The deleted rows, in any order; rows outside `rows` are ignored.
    """
    places = np.searchsorted(rows, gone)
    held = places < len(rows)
    places = places[held][rows[places[held]] == gone[held]]
    newly = int(alive[np.unique(places)].sum())
    alive[places] = False
    return newly


class MemoryCopy:
    """A quantized copy of the embeddings of one file, updated incrementally.

    Args:
        dimension: Numbers in an embedding.
        after_row: The copy contains the rows above this one, for engines that index the other rows
            elsewhere.
        most_bytes: Larger codes are in a memory-mapped temporary file.
        beside: The file; a temporary file is created beside it and disappears with the process.
    """

    def __init__(
        self,
        dimension: int,
        metric: Metric,
        *,
        after_row: int = 0,
        most_bytes: int = 2**63,
        beside: Path | None = None,
    ) -> None:
        self._dimension = dimension
        self._metric = metric
        self._after_row = after_row
        self._most_bytes = most_bytes
        self._beside = beside
        self._lock = threading.Lock()
        self._version = -1
        self._view: View | None = None
        self._deletion = 0
        self._used = 0
        self._rows = np.empty(0, dtype=np.int64)
        self._codes = np.empty((0, dimension), dtype=np.int8)
        self._scales = np.empty(0, dtype=np.float32)
        self._residuals = np.empty(0, dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._alive = np.empty(0, dtype=np.bool_)
        self._dead = 0

    @property
    def is_loaded(self) -> bool:
        """True once the file has been read."""
        return self._version >= 0

    def view(self, connection: apsw.Connection) -> View:
        """Return a view of the state that the connection's transaction sees.

        Raises:
            StaleRead: The copy has seen a newer state.
        """
        version = state(connection, "version")
        with self._lock:
            if version < self._version:
                raise StaleRead
            if version > self._version:
                self._view = None  # it holds arrays
                if self._version < 0:
                    self._start(connection)
                self._append(connection)
                self._mark_deleted(connection)
                self._version = version
            self._view = self._view or self._new_view()
            return self._view

    def _new_view(self) -> View:
        used = slice(self._used)
        codes = Codes(self._codes[used], self._scales[used], self._residuals[used])
        return View(
            self._rows[used],
            Scan(codes),
            self._norms[used],
            self._alive[used],
            self._dead == 0,
            self._metric,
        )

    def _start(self, connection: apsw.Connection) -> None:
        now = read_state(connection)
        if not self._after_row:
            self._reserve(now.count)
        self._deletion = now.deletion

    def _append(self, connection: apsw.Connection) -> None:
        last = int(self._rows[self._used - 1]) if self._used else self._after_row
        for batch in read_embeddings(connection, last):
            start, end = self._used, self._used + len(batch.rows)
            self._reserve(end)
            codes = coded(batch.matrix)
            unit = 1 / np.sqrt(batch.squared_norms) if self._metric is Metric.COSINE else 1.0
            self._rows[start:end] = batch.rows
            self._norms[start:end] = batch.squared_norms
            self._codes[start:end] = codes.codes
            self._scales[start:end] = codes.scales * unit
            self._residuals[start:end] = codes.residuals * unit
            self._alive[start:end] = True
            self._used = end

    def _reserve(self, size: int) -> None:
        if size <= len(self._rows):
            return
        capacity = max(size, len(self._rows) * 5 // 4, 1024)
        for name in _COLUMNS:
            old = getattr(self, name)
            new = self._empty((capacity, *old.shape[1:]), old.dtype)
            new[: self._used] = old[: self._used]
            setattr(self, name, new)

    def _empty(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
        """Return a new array; a large one is in a file."""
        is_codes = len(shape) == 2
        if not is_codes or shape[0] * (self._dimension + BYTES_BESIDES) <= self._most_bytes:
            return np.empty(shape, dtype=kind)
        folder, name = (self._beside.parent, self._beside.stem) if self._beside else (None, "")
        with tempfile.TemporaryFile(dir=folder, prefix=f"{name}.codes.") as file:
            return np.memmap(file, dtype=kind, mode="w+", shape=shape)

    def _mark_deleted(self, connection: apsw.Connection) -> None:
        self._deletion, gone = deleted_after(connection, self._deletion)
        if not len(gone):
            return
        self._alive = self._alive.copy()  # existing views keep the old one
        self._dead += mark_deleted(self._rows[: self._used], self._alive[: self._used], gone)
        if self._dead > self._used // 4:
            self._compact()

    def _compact(self) -> None:
        alive = np.flatnonzero(self._alive[: self._used])
        for name in _COLUMNS:
            old = getattr(self, name)
            new = self._empty((len(alive), *old.shape[1:]), old.dtype)
            np.take(old, alive, axis=0, out=new)
            setattr(self, name, new)
        self._used, self._dead = len(alive), 0


_COLUMNS = ("_rows", "_codes", "_scales", "_residuals", "_norms", "_alive")
