"""A FAISS index with the rows of the chunk file that it covers."""

from __future__ import annotations

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.providers.vector_io.store.covered_rows import CoveredRows
from corral.providers.vector_io.store.faiss.client import ApproximateIndex
from corral.providers.vector_io.store.matrix import EmbeddingBatch


class Base(CoveredRows):
    """A FAISS index; its positions 0 to n - 1 correspond to rows of the chunk file.

    Args:
        rows, squared_norms, alive, deletion: As for `CoveredRows`.
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
        super().__init__(rows, squared_norms, alive, deletion)
        self.index = index
        self.trained = trained

    @classmethod
    def empty(cls, index: ApproximateIndex, deletion: int, trained: int) -> Base:
        """Return a base without rows."""
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
        """Add rows, all above the last one. The base must not be searched at the same time."""
        self.index.add(batch.matrix)
        self.rows = np.concatenate([self.rows, batch.rows])
        self.squared_norms = np.concatenate([self.squared_norms, batch.squared_norms])
        self._alive = np.concatenate([self._alive, np.ones(len(batch.rows), dtype=np.bool_)])

    @override
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        return self.index.places(query, k, usable, self.effort)
