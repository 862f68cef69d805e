"""Exact vector search over a file's embeddings: in a memory copy, or in the file by sqlite-vec.

Both find candidates by a fast product in single precision and then compute each candidate's score
anew, row by row in double precision, so that equal embeddings get equal scores wherever they lie
and both ways give the same answer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.rows import RowSet, best_rows
from corral.providers.vector_io.sqlite.schema import state

SINGLE_PRECISION_SLACK = 1e-5
"""Bound of the rounding error of a single-precision product, relative to the vectors' lengths;
measured below 1e-6 at 384 dimensions."""
BATCH_ROWS = 8192
"""Rows read at once into the memory copy."""
FEW_ROWS = 0.05
"""Below this share of rows a filter's rows are gathered instead of masked."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """Rows and their raw scores, best first."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _View:
    """One state of the memory copy; later states leave its arrays alone, save `alive`."""

    rows: NDArray[np.int64]
    matrix: NDArray[np.float32]
    squared_norms: NDArray[np.float64]
    alive: NDArray[np.bool_]
    all_alive: bool


class VectorSearch:
    """Finds the nearest embeddings of one file. Safe to use from many threads.

    Args:
        dimension: Numbers in an embedding.
        metric: How embeddings are compared.
        normalized: Whether they are stored with length 1, which makes every metric the cosine.
        memory_mib: Largest memory copy, in MiB; beyond it the file is searched.
    """

    def __init__(
        self, dimension: int, metric: Metric, *, normalized: bool, memory_mib: float
    ) -> None:
        self._dimension = dimension
        self._metric = Metric.DOT if normalized else metric
        self._most_rows = int(memory_mib * 2**20 / (4 * dimension))
        self._copy = _MemoryCopy(dimension, unit=self._metric is Metric.COSINE)

    def search(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Nearest:
        """Return the k nearest rows, and those tied with the last, best first.

        Args:
            connection: In a read transaction.
            query: Shape (dimension,); length 1 where the embeddings are normalized.
            k: How many rows are wanted, >= 1.
            allowed: The rows that may be returned; None for all.

        Returns:
            Raw scores as `api.scoring` takes them: cosine, inner product or minus the distance.
        """
        if state(connection, "count") > self._most_rows:
            self._copy.forget()
            rows, matrix = self._scan_file(connection, query, k, allowed)
        else:
            rows, matrix = self._scan_memory(self._copy.view(connection), query, k, allowed)
        scores = self._exact(matrix, query)
        order = best_rows(scores, k)
        return Nearest(rows[order], scores[order])

    def _scan_memory(
        self, view: _View, query: NDArray[np.float32], k: int, allowed: RowSet | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        places = None
        if allowed is not None or not view.all_alive:
            usable = view.alive if allowed is None else view.alive & allowed.mask(view.rows)
            places = np.flatnonzero(usable)
        if places is None:
            scores = self._approximate(view.matrix, view.squared_norms, query)
        elif len(places) < FEW_ROWS * len(view.rows):
            scores = self._approximate(view.matrix[places], view.squared_norms[places], query)
        else:
            scores = self._approximate(view.matrix, view.squared_norms, query)[places]
        best = best_rows(scores, k, self._slack(view.squared_norms, query))
        chosen = best if places is None else places[best]
        return view.rows[chosen], view.matrix[chosen]

    def _scan_file(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        expression = {
            Metric.COSINE: "-vec_distance_cosine(embedding, ?)",
            Metric.L2: "-pow(vec_distance_l2(embedding, ?), 2)",
            Metric.DOT: "squared_norm - pow(vec_distance_l2(embedding, ?), 2)",
        }[self._metric]
        scan = f"SELECT row, squared_norm, {expression} FROM embeddings ORDER BY row"  # noqa: S608 - own texts
        kinds = [("row", np.int64), ("norm", np.float64), ("score", np.float64)]
        table = np.fromiter(connection.execute(scan, (query.tobytes(),)), dtype=np.dtype(kinds))
        if allowed is not None:
            table = table[allowed.mask(table["row"])]
        best = best_rows(table["score"], k, 2 * self._slack(table["norm"], query))
        rows = table["row"][best].copy()
        read = "SELECT embedding FROM embeddings WHERE row = ?"
        found: Any = connection.executemany(read, ((int(row),) for row in rows))
        blobs = [blob for (blob,) in found]
        matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, self._dimension)
        return rows, matrix

    def _approximate(
        self,
        matrix: NDArray[np.float32],
        squared_norms: NDArray[np.float64],
        query: NDArray[np.float32],
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        products: NDArray[np.float32] = matrix @ query
        if self._metric is Metric.L2:
            return 2.0 * products.astype(np.float64) - squared_norms
        return products

    def _slack(self, squared_norms: NDArray[np.float64], query: NDArray[np.float32]) -> float:
        if not len(squared_norms):
            return 0.0
        longest = float(np.sqrt(squared_norms.max())) if self._metric is not Metric.COSINE else 1.0
        length = float(np.linalg.norm(query.astype(np.float64)))
        if self._metric is Metric.L2:
            return SINGLE_PRECISION_SLACK * (longest + length) ** 2
        return SINGLE_PRECISION_SLACK * max(longest * length, 1.0)

    def _exact(
        self, matrix: NDArray[np.float32], query: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Return the raw scores of some rows in double precision, each row by itself."""
        wide, asked = matrix.astype(np.float64), query.astype(np.float64)
        if self._metric is Metric.L2:
            distances: NDArray[np.float64] = -np.sqrt(((wide - asked) ** 2).sum(axis=1))
            return distances
        products: NDArray[np.float64] = (wide * asked).sum(axis=1)
        if self._metric is Metric.COSINE:
            products /= np.sqrt((wide * wide).sum(axis=1)) * np.sqrt((asked * asked).sum())
        return products


class _MemoryCopy:
    """The embeddings of one file as one matrix that follows the file, each change read once."""

    def __init__(self, dimension: int, *, unit: bool) -> None:
        self._dimension = dimension
        self._unit = unit
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Release the memory."""
        self._version = -1
        self._deletions = 0
        self._used = 0
        self._rows = np.empty(0, dtype=np.int64)
        self._matrix = np.empty((0, self._dimension), dtype=np.float32)
        self._norms = np.empty(0, dtype=np.float64)
        self._alive = np.empty(0, dtype=np.bool_)
        self._dead = 0

    def view(self, connection: apsw.Connection) -> _View:
        """Return a copy of what the connection's transaction sees, or of something newer."""
        version = state(connection, "version")
        with self._lock:
            if version > self._version:
                if self._version < 0:
                    self._start(connection)
                self._append(connection)
                self._bury(connection)
                self._version = version
            used = self._used
            return _View(
                self._rows[:used],
                self._matrix[:used],
                self._norms[:used],
                self._alive[:used],
                self._dead == 0,
            )

    def _start(self, connection: apsw.Connection) -> None:
        self._reserve(state(connection, "count"))
        query = "SELECT coalesce(max(sequence), 0) FROM deletions"
        self._deletions = int(str(connection.execute(query).fetchall()[0][0]))

    def _append(self, connection: apsw.Connection) -> None:
        last = int(self._rows[self._used - 1]) if self._used else 0
        query = "SELECT row, squared_norm, embedding FROM embeddings WHERE row > ? ORDER BY row"
        cursor = connection.execute(query, (last,))
        while batch := list(islice(cursor, BATCH_ROWS)):
            self._append_batch(batch)

    def _append_batch(self, batch: list[tuple[Any, ...]]) -> None:
        rows, norms, blobs = zip(*batch, strict=True)
        start, end = self._used, self._used + len(rows)
        self._reserve(end)
        self._rows[start:end] = rows
        self._norms[start:end] = norms
        flat = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, self._dimension)
        self._matrix[start:end] = flat
        if self._unit:
            self._matrix[start:end] /= np.sqrt(self._norms[start:end, None])
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

    def _bury(self, connection: apsw.Connection) -> None:
        query = "SELECT sequence, row FROM deletions WHERE sequence > ? ORDER BY sequence"
        gone = connection.execute(query, (self._deletions,)).fetchall()
        if not gone:
            return
        sequences, rows = np.array(gone, dtype=np.int64).T
        self._deletions = int(sequences[-1])
        used = self._rows[: self._used]
        places = np.searchsorted(used, rows)
        held = places < self._used
        places, rows = places[held], rows[held]
        places = places[used[places] == rows]
        self._dead += int(self._alive[places].sum())
        self._alive[places] = False
        if self._dead > self._used // 4:
            self._compact()

    def _compact(self) -> None:
        kept = np.flatnonzero(self._alive[: self._used])
        for name in ("_rows", "_matrix", "_norms", "_alive"):
            setattr(self, name, getattr(self, name)[kept])
        self._used, self._dead = len(kept), 0
