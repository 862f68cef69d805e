"""Exact search over a matrix in memory by FAISS's own loops, without an index object."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.ranking.exact import rounding_slack
from corral.providers.ranking.rows import RowSet
from corral.providers.vector_io._sqlite.matrix import View
from corral.providers.vector_io.faiss.engine import faiss

SPARE = 16
"""Places asked for beyond k, so that few ties with the last one cost no second search."""


def flat_places(
    view: View, query: NDArray[np.float32], k: int, allowed: RowSet | None, metric: Metric
) -> NDArray[np.int64]:
    """Return the places in the view of the k nearest rows, of all that tie with the last, and more.

    Args:
        view: The rows.
        query: Shape (dimension,), contiguous.
        k: At least 1.
        allowed: The rows that may be returned, None for all.
        metric: The inner product of unit rows for cosine.
    """
    usable = usable_places(view.rows, view.alive, view.all_alive, allowed)
    passing = len(view.rows) if usable is None else int(usable.sum())
    slack = rounding_slack(view.squared_norms, query, metric)
    size = min(passing, k + SPARE)
    while size:
        scores, places = _scan(view.matrix, query, size, usable, metric)
        if size == passing or scores[-1] < scores[k - 1] - slack:
            return places
        size = min(passing, 4 * size)
    return np.empty(0, dtype=np.int64)


def usable_places(
    rows: NDArray[np.int64], alive: NDArray[np.bool_], all_alive: bool, allowed: RowSet | None
) -> NDArray[np.bool_] | None:
    """Say for each row whether it may be returned; None where all may."""
    if allowed is None:
        return None if all_alive else alive.copy()
    mask = allowed.mask(rows)
    return mask if all_alive else mask & alive


class Selector:
    """FAISS's view of a mask over places, with the memory that it points to.

    Args:
        usable: Shape (n,), or None for all.
    """

    def __init__(self, usable: NDArray[np.bool_] | None) -> None:
        # FAISS keeps a pointer only: the bits must live as long as the search.
        self._bits = None if usable is None else np.packbits(usable, bitorder="little")
        self.faiss: Any = None if self._bits is None else faiss.IDSelectorBitmap(self._bits)


def _scan(
    matrix: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    usable: NDArray[np.bool_] | None,
    metric: Metric,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores (L2: minus the squared distance) and places, best first."""
    faiss.omp_set_num_threads(1)  # holds for the calling thread, of which there are many
    selector = Selector(usable)
    scores, places = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.int64)
    pointers = [faiss.swig_ptr(query), faiss.swig_ptr(matrix), matrix.shape[1], 1, len(matrix), k]
    pointers += [faiss.swig_ptr(scores), faiss.swig_ptr(places)]
    if metric is Metric.L2:
        faiss.knn_L2sqr(*pointers, None, selector.faiss)
        return -scores, places
    faiss.knn_inner_product(*pointers, selector.faiss)
    return scores, places
