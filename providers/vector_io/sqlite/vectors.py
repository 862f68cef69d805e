"""Exact vector search over a file's embeddings: in a memory copy, or in the file by sqlite-vec.

Both find candidates by a fast product in single precision and then compute each candidate's score
anew, row by row in double precision, so that equal embeddings get equal scores wherever they lie
and both ways give the same answer.
"""

from __future__ import annotations

from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.ranking.exact import Nearest, nearest, rounding_slack
from corral.providers.ranking.rows import RowSet, best_rows
from corral.providers.vector_io._sqlite.connections import state
from corral.providers.vector_io._sqlite.matrix import MemoryCopy, View

FEW_ROWS = 0.05
"""Below this share of rows a filter's rows are gathered instead of masked."""


class VectorSearch:
    """Finds the nearest embeddings of one file. Safe to use from many threads.

    Args:
        dimension: Numbers in an embedding.
        metric: How embeddings are compared; the inner product where they have length 1.
        memory_mib: Largest memory copy, in MiB; beyond it the file is searched.
    """

    def __init__(self, dimension: int, metric: Metric, *, memory_mib: float) -> None:
        self._dimension = dimension
        self._metric = metric
        self._most_rows = int(memory_mib * 2**20 / (4 * dimension))
        self._copy = MemoryCopy(dimension, unit=self._metric is Metric.COSINE)

    def search(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Nearest:
        """Return the k nearest rows; see `VectorSearcher`."""
        if state(connection, "count") > self._most_rows:
            self._copy.forget()
            rows, matrix = self._scan_file(connection, query, k, allowed)
        else:
            rows, matrix = self._scan_memory(self._copy.view(connection), query, k, allowed)
        return nearest(rows, matrix, query, k, self._metric)

    def _scan_memory(
        self, view: View, query: NDArray[np.float32], k: int, allowed: RowSet | None
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
        best = best_rows(scores, k, rounding_slack(view.squared_norms, query, self._metric))
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
        slack = 2 * rounding_slack(table["norm"], query, self._metric)
        best = best_rows(table["score"], k, slack)
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
