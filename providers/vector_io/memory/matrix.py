"""The embeddings of an index in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.ranking.codes import Codes, Scan, begun, coded
from corral.providers.vector_io.memory.filters import ChunkIds

FEW_ROWS = 0.05
"""Share of the rows below which those that pass a filter are gathered instead of masked."""


class Matrix:
    """Embeddings as rows of one matrix without holes: the last row takes a removed one's place.

    Args:
        dimension: Numbers in an embedding.
    """

    def __init__(self, dimension: int, metric: Metric) -> None:
        self.ids: list[str] = []
        self._metric = metric
        self._places: dict[str, int] = {}
        self._store = np.empty((64, dimension), dtype=np.float32)
        self._norms = np.empty(64)  # squared
        self._codes = np.empty((64, dimension), dtype=np.int8)
        self._scales = np.empty(64, dtype=np.float32)
        self._residuals = np.empty(64, dtype=np.float32)

    @property
    def rows(self) -> NDArray[np.float32]:
        """The embeddings, shape (n, dimension)."""
        return self._store[: len(self.ids)]

    def places(self, passing: ChunkIds) -> NDArray[np.intp]:
        """Return the rows of the chunks that pass, ascending."""
        mask = np.full(len(self.ids), passing.negated)
        mask[[self._places[i] for i in passing.ids]] = not passing.negated
        return np.flatnonzero(mask)

    def near(
        self, query: NDArray[np.float32], k: int, places: NDArray[np.intp] | None
    ) -> NDArray[np.intp]:
        """Return all of some rows that can be among the k nearest of them.

        Args:
            query: Shape (dimension,).
            k: At least 1.
            places: The rows to choose from, ascending; None for all.
        """
        used = slice(len(self.ids))
        codes = Codes(self._codes[used], self._scales[used], self._residuals[used])
        norms, rows, usable = self._norms[used], self.rows, None
        if places is not None and len(places) < FEW_ROWS * len(self.ids):
            scan, norms = Scan(codes[places]), norms[places]
            find = begun(scan, norms, query, k, self._metric, None, lambda p: rows[places[p]])
            return places[find()[0]]
        if places is not None:
            usable = np.zeros(len(self.ids), dtype=np.bool_)
            usable[places] = True
        find = begun(Scan(codes), norms, query, k, self._metric, usable, rows.__getitem__)
        return find()[0]

    def of(self, chunk_id: str) -> NDArray[np.float32]:
        """Return the embedding of a chunk."""
        row: NDArray[np.float32] = self._store[self._places[chunk_id]]
        return row

    def reserve(self, more: int) -> None:
        """Make room for so many more rows, without which `extend` would fail in the middle."""
        missing = len(self.ids) + more - len(self._store)
        if missing > 0:
            size = max(missing, len(self._store))
            grown = [
                np.concatenate([old, np.empty((size, *old.shape[1:]), old.dtype)])
                for old in (self._store, self._norms, self._codes, self._scales, self._residuals)
            ]
            self._store, self._norms, self._codes, self._scales, self._residuals = grown

    def extend(self, chunk_ids: Sequence[str], embeddings: NDArray[np.float32]) -> None:
        """Add rows, for which there is room."""
        start = len(self.ids)
        new = slice(start, start + len(chunk_ids))
        norms = (embeddings.astype(np.float64) ** 2).sum(axis=1)
        codes = coded(embeddings)
        unit = 1 / np.sqrt(norms) if self._metric is Metric.COSINE else 1.0
        self._store[new], self._norms[new], self._codes[new] = embeddings, norms, codes.codes
        self._scales[new], self._residuals[new] = codes.scales * unit, codes.residuals * unit
        self._places.update({chunk_id: start + n for n, chunk_id in enumerate(chunk_ids)})
        self.ids += chunk_ids

    def remove(self, chunk_id: str) -> None:
        """Remove a row; the last one takes its place."""
        place = self._places.pop(chunk_id)
        last = self.ids.pop()
        if last != chunk_id:
            end = len(self.ids)
            for column in (self._store, self._norms, self._codes, self._scales, self._residuals):
                column[place] = column[end]
            self.ids[place], self._places[last] = last, place
