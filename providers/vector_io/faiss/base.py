"""An approximate index with the rows of the chunk file that it covers."""

from __future__ import annotations

import threading

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.providers.vector_io.faiss.client import ApproximateIndex
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import (
    StaleRead,
    deleted_after,
    read_state,
)
from corral.providers.vector_io.store.matrix import (
    EmbeddingBatch,
    mark_deleted,
    usable_places,
)


class Base:
    """An approximate index, whose places 0 to n - 1 are rows of the chunk file.

    During a search nothing but its knowledge of deletions changes.

    Args:
        rows: Row numbers by place, ascending, int64.
        squared_norms: Of the stored embeddings, by place, float64.
        alive: False for a deleted row, by place.
        deletion: The last deletion that `alive` knows.
        trained: Number of embeddings in the file when the index was built from scratch.
    """

    def __init__(
        self,
        index: ApproximateIndex,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
        trained: int,
    ) -> None:
        self.index = index
        self.rows = rows
        self.squared_norms = squared_norms
        self.trained = trained
        self._alive = alive
        self._deletion = deletion
        self._dead = len(alive) - int(alive.sum())
        self._lock = threading.Lock()

    @classmethod
    def empty(cls, index: ApproximateIndex, deletion: int, trained: int) -> Base:
        """Return a base of no rows yet."""
        none = np.empty(0, dtype=np.int64)
        no_norms = np.empty(0, dtype=np.float64)
        return cls(index, none, no_norms, np.empty(0, dtype=np.bool_), deletion, trained)

    def copy(self) -> Base:
        """Return a copy that can be extended."""
        with self._lock:
            alive, deletion = self._alive.copy(), self._deletion
        index = self.index.copy()
        return Base(index, self.rows, self.squared_norms, alive, deletion, self.trained)

    def extend(self, batch: EmbeddingBatch) -> None:
        """Add rows, all above the last one. The base must not be searched meanwhile."""
        self.index.add(batch.matrix)
        self.rows = np.concatenate([self.rows, batch.rows])
        self.squared_norms = np.concatenate([self.squared_norms, batch.squared_norms])
        self._alive = np.concatenate([self._alive, np.ones(len(batch.rows), dtype=np.bool_)])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last_row(self) -> int:
        """The row up to which the file is covered."""
        return int(self.rows[-1]) if len(self.rows) else 0

    @property
    def dead(self) -> int:
        """How many rows are known to be deleted."""
        return self._dead

    def candidates(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> NDArray[np.int64]:
        """Return rows among which about the k nearest are.

        Args:
            connection: In a read transaction; rows that it sees as deleted are not returned.
            query, k, allowed: As `VectorSearcher.search` takes them.

        Raises:
            StaleRead: The base knows rows or deletions that the transaction does not see.
        """
        with self._lock:
            now = read_state(connection)
            if now.last_row < self.last_row or now.deletion < self._deletion:
                raise StaleRead
            self._deletion, gone = deleted_after(connection, self._deletion)
            self._dead += mark_deleted(self.rows, self._alive, gone)
            usable = usable_places(self.rows, self._alive, self._dead == 0, allowed)
        found: NDArray[np.int64] = self.rows[self.index.places(query, k, usable)]
        return found
