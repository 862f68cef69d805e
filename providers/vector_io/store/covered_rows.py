"""An approximate index over the first rows of a chunk file, and which of them still exist."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import StaleRead, deleted_after, read_state
from corral.providers.vector_io.store.matrix import mark_deleted, usable_places

MAX_COMPARED = 1024
"""If a filter leaves at most this many rows of the base, all are read and compared, exactly."""
MAX_DEAD = 1 / 3
"""Share of the base's rows that may be deleted before it is rebuilt."""
SPARE = 16
"""Embeddings requested beyond k, because a few may tie with the last one."""
TIE = 1e-5
"""Maximum difference between an engine's distances of equal embeddings; relative above 1."""
MIN_SHARE = 0.1
"""Below this share of usable rows, all usable rows are compared: an approximate search would find
too few."""
DEEPER = 2
"""If some rows are unusable, this many times more rows are requested than would suffice if the
usable rows were evenly distributed."""

Search = Callable[[int, float], tuple[NDArray[np.int64], NDArray[np.float64]]]
"""Called with a number of embeddings to request, and the share of the rows that may be in the
answer. Returns their positions, -1 for one that is no longer in the file, and their distances,
nearest first."""


class IndexFailed(Exception):
    """The index cannot be searched: it is damaged or closed."""


class CoveredRows(ABC):
    """An approximate index; its positions 0 to n - 1 correspond to rows of the chunk file.

    During a search only its record of deletions changes.

    Args:
        rows: Row numbers by position, ascending, int64.
        squared_norms: Squared lengths of the embeddings by position, float64.
        alive: False for a deleted row, by position.
        deletion: The last deletion that `alive` reflects.

    Attributes:
        effort: Multiple of the share of the index that a query searches.
        recall: Its recall@10 with this effort; None if not measured.
    """

    def __init__(
        self,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
    ) -> None:
        self.rows = rows
        self.squared_norms = squared_norms
        self._alive = alive
        self._deletion = deletion
        self.effort = 1
        self.recall: float | None = None
        self._dead = len(alive) - int(alive.sum())
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last_row(self) -> int:
        """The last row of the file that is covered."""
        return int(self.rows[-1]) if len(self.rows) else 0

    @property
    def dead(self) -> int:
        """The number of rows that are known to be deleted."""
        return self._dead

    @property
    def is_worn(self) -> bool:
        """Return True if so many rows are deleted that the index must be built from scratch."""
        return self.dead > MAX_DEAD * len(self)

    @abstractmethod
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        """Return the positions of the approximately k nearest embeddings, and of some more.

        Args:
            connection: In a read transaction.
            query: Shape (dimension,).
            k: At least 1.
            usable: Mask of the positions that may be returned, shape (n,); None for all.

        Raises:
            IndexFailed: The index is damaged or closed.
        """

    def nearest_places(
        self, k: int, usable: NDArray[np.bool_] | None, search: Search
    ) -> NDArray[np.int64]:
        """Return the answer of `places` from an engine that searches without a filter.

        If it returns too few usable rows, the answer is all usable rows.

        Args:
            k, usable: As for `places`.
            search: Searches the engine.
        """
        mask = np.ones(len(self), dtype=np.bool_) if usable is None else usable
        passing = int(mask.sum())
        limit = min(passing, k + SPARE)
        share = passing / max(len(self), 1)
        while limit < passing and share >= MIN_SHARE:
            depth = limit if usable is None else min(len(self), int(DEEPER * limit / share))
            places, distances = search(depth, share)
            there = (places >= 0) & mask[places]
            places, distances = places[there], distances[there]
            if len(places) < limit:
                break
            if not _ties(distances[:limit], k):
                nearest_rows: NDArray[np.int64] = places[:limit]
                return nearest_rows
            limit *= 4
        everything: NDArray[np.int64] = np.flatnonzero(mask)
        return everything

    def candidates(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> tuple[NDArray[np.int64], bool]:
        """Return candidate rows that include the approximately k nearest.

        The second value is True if they are all rows that may be returned.

        Args:
            connection: In a read transaction; rows that it sees as deleted are not returned.
            query, k, allowed: As for `VectorSearcher.begin`.

        Raises:
            StaleRead: The base reflects rows or deletions that are newer than the transaction.
            IndexFailed: See `places`.
        """
        with self._lock:
            now = read_state(connection)
            if now.last_row < self.last_row or now.deletion < self._deletion:
                raise StaleRead
            self._follow(connection)
            usable = usable_places(self.rows, self._alive, self._dead == 0, allowed)
        if usable is not None and np.count_nonzero(usable) <= MAX_COMPARED:
            return self.rows[usable], True
        return self.rows[self.places(connection, query, k, usable)], False

    def living(self, connection: apsw.Connection) -> tuple[NDArray[np.bool_], int]:
        """Return a mask of the rows that still exist, and the last deletion that it reflects."""
        with self._lock:
            self._follow(connection)
            return self._alive.copy(), self._deletion

    def _follow(self, connection: apsw.Connection) -> None:
        self._deletion, deleted = deleted_after(connection, self._deletion)
        self._dead += mark_deleted(self.rows, self._alive, deleted)


def _ties(distances: NDArray[np.float64], k: int) -> bool:
    """Return True if the last distance equals the k-th, so that more rows may tie with it."""
    kth, last = float(distances[k - 1]), float(distances[-1])
    return abs(kth - last) <= TIE * max(abs(kth), 1.0)


def rows_still_there(
    connection: apsw.Connection, rows: NDArray[np.int64], norms: NDArray[np.float64]
) -> NDArray[np.bool_] | None:
    """Return a mask of the rows that still exist; None if rows or norms differ, or it is empty."""
    if not len(rows):
        return None
    query = "SELECT row, squared_norm FROM embeddings WHERE row <= ? ORDER BY row"
    kinds = np.dtype([("row", np.int64), ("norm", np.float64)])
    table = np.fromiter(connection.execute(query, (int(rows[-1]),)), dtype=kinds)
    places = np.searchsorted(rows, table["row"])
    if (rows[places] != table["row"]).any() or (norms[places] != table["norm"]).any():
        return None
    alive = np.zeros(len(rows), dtype=np.bool_)
    alive[places] = True
    return alive
