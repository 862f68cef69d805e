"""Exact vector search over a file's embeddings: in a quantized copy, or with sqlite-vec.

Both find candidates by a fast product and then compute each candidate's score from the stored
embedding, row by row in double precision. So equal embeddings get equal scores, and both give the
same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.scoring import Metric
from corral.providers.vector_io.kit.exact import Nearest, nearest, rounding_slack
from corral.providers.vector_io.kit.rows import RowSet, best_rows
from corral.providers.vector_io.store.engine import VectorSearcher
from corral.providers.vector_io.store.matrix import MemoryCopy, read_rows

MAX_READ_ROWS = 4096
"""While there is no copy, up to this many filtered rows are read from the file: a copy takes longer
to build, and memory that a process that only ingests does not need."""


_SCANS = {
    Metric.COSINE: "SELECT row, squared_norm, -vec_distance_cosine(embedding, ?)"
    " FROM embeddings ORDER BY row",
    Metric.L2: "SELECT row, squared_norm, -pow(vec_distance_l2(embedding, ?), 2)"
    " FROM embeddings ORDER BY row",
    Metric.DOT: "SELECT row, squared_norm, squared_norm - pow(vec_distance_l2(embedding, ?), 2)"
    " FROM embeddings ORDER BY row",
}
"""The statement that scores every row with sqlite-vec, by metric; higher is better."""


class VectorSearch(VectorSearcher):
    """Finds the nearest embeddings of one file. Safe to use from many threads.

    Args:
        dimension: Numbers in an embedding.
        metric: How embeddings are compared; the inner product for embeddings of length 1.
        memory_mib: Maximum size of the copy in memory, in MiB; a larger copy is in a temporary
            file. None for no limit; 0 for no copy: sqlite-vec then searches the file.
        beside: The file, beside which the temporary one is created; None for a database in memory.
        max_read_rows: Maximum filtered rows to read from the database while there is no copy.
    """

    def __init__(
        self,
        dimension: int,
        metric: Metric,
        *,
        memory_mib: float | None = None,
        beside: Path | None = None,
        max_read_rows: int = MAX_READ_ROWS,
    ) -> None:
        self._dimension = dimension
        self._metric = metric
        self._in_file = memory_mib == 0
        self.max_read_rows = max_read_rows
        most_bytes = 2**63 if memory_mib is None else int(memory_mib * 2**20)
        self._copy = MemoryCopy(dimension, metric, most_bytes=most_bytes, beside=beside)

    @override
    def begin(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Callable[[], Nearest]:
        find = self._begun(connection, query, k, allowed)
        return lambda: nearest(*find(), query, k, self._metric)

    def _begun(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Callable[[], tuple[NDArray[np.int64], NDArray[np.float32]]]:
        if self._in_file:
            return partial(self._scan_file, connection, query, k, allowed)
        if allowed is not None and self._is_read(allowed):
            matrix = read_rows(connection, allowed.rows, self._dimension)
            return lambda: (allowed.rows, matrix)
        return self._copy.view(connection).begin(connection, query, k, allowed)

    def _is_read(self, allowed: RowSet) -> bool:
        """Return True if these rows are read from the file and compared there, without a copy."""
        return not (
            self._copy.is_loaded or allowed.negated or len(allowed.rows) > self.max_read_rows
        )

    def _scan_file(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        kinds = [("row", np.int64), ("norm", np.float64), ("score", np.float64)]
        table = np.fromiter(
            connection.execute(_SCANS[self._metric], (query.tobytes(),)), dtype=np.dtype(kinds)
        )
        if allowed is not None:
            table = table[allowed.mask(table["row"])]
        slack = 2 * rounding_slack(table["norm"], query, self._metric)
        best = best_rows(table["score"], k, slack)
        rows = table["row"][best].copy()
        return rows, read_rows(connection, rows, self._dimension)
