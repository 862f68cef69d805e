"""The embeddings of an index in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.memory.filters import Passing

FEW_ROWS = 0.05
"""Share of the rows below which those that pass a filter are gathered instead of masked."""


class Matrix:
    """Embeddings as rows of one matrix without holes: the last row takes a removed one's place."""

    def __init__(self, dimension: int) -> None:
        self.ids: list[str] = []
        self._places: dict[str, int] = {}
        self._store = np.empty((64, dimension), dtype=np.float32)
        self._norms = np.empty(64)  # squared

    @property
    def rows(self) -> NDArray[np.float32]:
        """The embeddings, shape (n, dimension)."""
        return self._store[: len(self.ids)]

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        """Of the rows, shape (n,)."""
        return self._norms[: len(self.ids)]

    def places(self, passing: Passing) -> NDArray[np.intp]:
        """Return the rows of the chunks that pass, ascending."""
        mask = np.full(len(self.ids), passing.negated)
        mask[[self._places[i] for i in passing.ids]] = not passing.negated
        return np.flatnonzero(mask)

    def rough_scores(
        self, query: NDArray[np.float32], metric: Metric, places: NDArray[np.intp] | None
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return a number for each row that orders them as the metric does, but for rounding."""
        few = places is not None and len(places) < FEW_ROWS * len(self.ids)
        rows, norms = self.rows, self.squared_norms
        if few:
            rows, norms = rows[places], norms[places]
        products: NDArray[np.float32] = rows @ query
        scores: NDArray[np.float32] | NDArray[np.float64] = products
        if metric is Metric.L2:
            scores = 2.0 * products.astype(np.float64) - norms
        elif metric is Metric.COSINE:
            scores = products / np.sqrt(norms)
        return scores if few or places is None else scores[places]

    def of(self, chunk_id: str) -> NDArray[np.float32]:
        """Return the embedding of a chunk."""
        row: NDArray[np.float32] = self._store[self._places[chunk_id]]
        return row

    def reserve(self, more: int) -> None:
        """Make room for so many more rows, without which `append` would fail in the middle."""
        missing = len(self.ids) + more - len(self._store)
        if missing > 0:
            grown = max(missing, len(self._store))
            rows = np.empty((grown, self._store.shape[1]), dtype=np.float32)
            norms = np.concatenate([self._norms, np.empty(grown)])
            self._store, self._norms = np.concatenate([self._store, rows]), norms

    def append(self, chunk_id: str, embedding: NDArray[np.float32]) -> None:
        """Add a row, for which there is room."""
        place = len(self.ids)
        self._store[place] = embedding
        wide = embedding.astype(np.float64)
        self._norms[place] = wide @ wide
        self._places[chunk_id] = place
        self.ids.append(chunk_id)

    def remove(self, chunk_id: str) -> None:
        """Remove a row; the last one takes its place."""
        place = self._places.pop(chunk_id)
        last = self.ids.pop()
        if last != chunk_id:
            self._store[place] = self._store[len(self.ids)]
            self._norms[place] = self._norms[len(self.ids)]
            self.ids[place], self._places[last] = last, place
