"""The embeddings of an index in memory, and the places of its chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.kit.codes import Codes, Scan, begun, coded


class Matrix:
    """Embeddings as rows of one matrix. A chunk's place, its row, is its number everywhere.

    A place that a chunk has left is given to the next one.

    Args:
        dimension: Numbers in an embedding.

    Attributes:
        ids: The chunk of each place, or what was there last.
        places: By chunk id.
    """

    def __init__(self, dimension: int, metric: Metric) -> None:
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self._free: list[int] = []
        self._metric = metric
        self._store = np.empty((64, dimension), dtype=np.float32)
        self._norms = np.empty(64)  # squared
        self._codes = np.empty((64, dimension), dtype=np.int8)
        self._scales = np.empty(64, dtype=np.float32)
        self._residuals = np.empty(64, dtype=np.float32)
        self._alive = np.empty(64, dtype=np.bool_)

    @property
    def rows(self) -> NDArray[np.float32]:
        """The embeddings, shape (n, dimension)."""
        return self._store[: len(self.ids)]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which places have a chunk, shape (n,)."""
        return self._alive[: len(self.ids)]

    def near(
        self, query: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> NDArray[np.intp]:
        """Return the places of all that can be among the k nearest of those that pass.

        Args:
            query: Shape (dimension,).
            k: At least 1.
            passing: Which places, of chunks, may be returned; None for all.
        """
        used, rows = slice(len(self.ids)), self.rows
        scan = Scan(Codes(self._codes[used], self._scales[used], self._residuals[used]))
        usable = self.alive if passing is None and self._free else passing
        norms = self._norms[used]
        return begun(scan, norms, query, k, self._metric, usable, rows.__getitem__)()[0]

    def reserve(self, more: int) -> None:
        """Make room for so many more rows, without which `extend` would fail in the middle."""
        missing = len(self.ids) + more - len(self._store)
        if missing > 0:
            size = max(missing, len(self._store))
            grown = [
                np.concatenate([old, np.empty((size, *old.shape[1:]), old.dtype)])
                for old in (getattr(self, name) for name in _COLUMNS)
            ]
            for name, column in zip(_COLUMNS, grown, strict=True):
                setattr(self, name, column)

    def extend(self, chunk_ids: Sequence[str], embeddings: NDArray[np.float32]) -> list[int]:
        """Add rows, for which there is room; return their places."""
        reused = [self._free.pop() for _ in chunk_ids[: len(self._free)]]
        places = [*reused, *range(len(self.ids), len(self.ids) + len(chunk_ids) - len(reused))]
        norms = (embeddings.astype(np.float64) ** 2).sum(axis=1)
        codes = coded(embeddings)
        unit = 1 / np.sqrt(norms) if self._metric is Metric.COSINE else 1.0
        self._store[places], self._norms[places], self._codes[places] = (
            embeddings,
            norms,
            codes.codes,
        )
        self._scales[places], self._residuals[places] = codes.scales * unit, codes.residuals * unit
        self._alive[places] = True
        for place, chunk_id in zip(reused, chunk_ids, strict=False):
            self.ids[place] = chunk_id
        self.ids += chunk_ids[len(reused) :]
        self.places.update(zip(chunk_ids, places, strict=True))
        return places

    def remove(self, chunk_id: str) -> int:
        """Remove a row; return its place."""
        place = self.places.pop(chunk_id)
        self._alive[place] = False
        self._free.append(place)
        return place


_COLUMNS = ("_store", "_norms", "_codes", "_scales", "_residuals", "_alive")
