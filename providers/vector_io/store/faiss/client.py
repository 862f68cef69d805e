"""FAISS indexes: HNSW and IVF."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.concurrency import at_low_priority
from corral.providers.vector_io.store.faiss.config import IndexConfig

# FAISS's type stubs (1.15) lack half of the functions used here
faiss: Any = importlib.import_module("faiss")

SPARE = 16
"""Positions requested beyond k: a few tie with the last one, and codes reorder close neighbors."""
FEW = 0.1
"""Below this share of usable positions, all usable ones are compared: a graph walk, or a few lists,
would find too few, and comparing them is cheap."""
TIE = 1e-6
"""Maximum relative difference between FAISS's scores of equal embeddings."""
DEEPER = 2
"""If some positions are unusable, this many times more are requested than would suffice if the
usable ones were evenly distributed. If too few are returned, all are compared."""
MIN_PROBES = 16
"""Minimum number of lists that a query visits, if the operator sets no number."""
PROBES_PER_ROOT = 3
"""A query visits this multiple of the square root of the number of lists. With 12,834 real texts in
329 lists, 54 lists contain 0.989 of the ten nearest (RFC 0009)."""
POINTS_PER_LIST = 39
"""Minimum number of training points per IVF list, required by FAISS."""


Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""FAISS's scores or squared distances, best first, and the positions; shape (1, k) or (k,)."""


class Selector:
    """FAISS's view of a mask over positions; keeps alive the memory that FAISS points to.

    Args:
        usable: Shape (n,), or None for all.
    """

    def __init__(self, usable: NDArray[np.bool_] | None) -> None:
        # FAISS stores only a pointer, so the bits must live as long as the search.
        self._bits = None if usable is None else np.packbits(usable, bitorder="little")
        self.faiss: Any = None if self._bits is None else faiss.IDSelectorBitmap(self._bits)


class ApproximateIndex(ABC):
    """An approximate index over positions 0 to n - 1. Searching is safe from many threads."""

    def __init__(self, engine: Any, config: IndexConfig) -> None:
        self.engine = engine
        self._config = config

    def __len__(self) -> int:
        return int(self.engine.ntotal)

    def copy(self) -> ApproximateIndex:
        """Return a copy that can be extended."""
        return type(self)(faiss.clone_index(self.engine), self._config)

    def add(self, matrix: NDArray[np.float32]) -> None:
        """Append embeddings. The index must not be searched at the same time."""
        _build(self._config, self.engine.add, matrix)

    def places(
        self,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
        effort: int = 1,
    ) -> NDArray[np.int64]:
        """Return the positions of the approximately k nearest embeddings, and of some more.

        If the index finds too few, all embeddings are compared, so k are returned if they exist.

        Args:
            query: Shape (dimension,).
            k: At least 1.
            usable: Mask of the positions that may be returned, shape (n,); None for all.
            effort: Multiple of the configured share of the index to search.
        """
        faiss.omp_set_num_threads(1)  # The setting holds for the calling thread only.
        passing = len(self) if usable is None else int(usable.sum())
        size = min(passing, k + SPARE)
        if not size:
            return np.empty(0, dtype=np.int64)
        nearest = self._nearest(query[None], size, passing, usable, effort)
        while nearest is None or (size < passing and _ties(nearest[0], k)):
            # The index cannot reach every one of several equal embeddings.
            size = size if nearest is None else min(passing, 4 * size)
            nearest = self._compare_all(query[None], size, Selector(usable).faiss)
        places: NDArray[np.int64] = nearest[1].reshape(-1)
        return places

    def _nearest(
        self,
        query: NDArray[np.float32],
        size: int,
        passing: int,
        usable: NDArray[np.bool_] | None,
        effort: int,
    ) -> Found | None:
        """Return the nearest usable positions, or None if too few are found."""
        share = passing / len(self)
        if share < FEW:
            return None
        depth = size if usable is None else min(len(self), int(DEEPER * size / share))
        scores, places = self._search(query, depth, share / effort)
        there = places >= 0  # -1 means nothing found
        if usable is not None:
            there &= usable[places]
        if np.count_nonzero(there) < size:
            return None
        return scores[there][:size], places[there][:size]

    @abstractmethod
    def _search(self, queries: NDArray[np.float32], k: int, share: float) -> Found:
        """Return the k nearest positions, shape (1, k); the share of usable ones sets the effort.

        Unusable positions are included; they show how near the usable ones are.
        """

    @abstractmethod
    def _compare_all(self, queries: NDArray[np.float32], k: int, selector: Any) -> Found:
        """Compare all embeddings in the index; shape (1, k)."""


class Hnsw(ApproximateIndex):
    """A graph of neighbors.

    Malkov and Yashunin: "Efficient and Robust Approximate Nearest Neighbor Search Using
    Hierarchical Navigable Small World Graphs", IEEE TPAMI 42(4), 2020.
    """

    def _search(self, queries: NDArray[np.float32], k: int, share: float) -> Found:
        # The walk also visits unusable positions, so it must be longer.
        effort = max(int(self._config.hnsw_ef_search / share), k)
        parameters = faiss.SearchParametersHNSW(efSearch=effort)
        nearest: Found = self.engine.search(queries, k, params=parameters)
        return nearest

    def _compare_all(self, queries: NDArray[np.float32], k: int, selector: Any) -> Found:
        storage = faiss.downcast_index(self.engine.storage)
        parameters = faiss.SearchParameters(sel=selector)
        nearest: Found = storage.search(queries, k, params=parameters)
        return nearest


class Ivf(ApproximateIndex):
    """Lists around k-means centers.

    Each row is stored as its difference from the center, one byte per number.

    Jégou, Douze, Schmid: "Product Quantization for Nearest Neighbor Search", IEEE TPAMI 33(1),
    2011, section 4, with a scalar quantizer: 8 bits for each dimension's range.
    """

    def _search(self, queries: NDArray[np.float32], k: int, share: float) -> Found:
        most = int(PROBES_PER_ROOT * self.engine.nlist**0.5)
        probes = self._config.ivf_nprobe or max(MIN_PROBES, most)
        return self._probe(queries, k, None, int(probes / share))

    def _compare_all(self, queries: NDArray[np.float32], k: int, selector: Any) -> Found:
        return self._probe(queries, k, selector, self.engine.nlist)

    def misfits(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the distance of each embedding from its center, shape (n,)."""
        centers = self.engine.quantizer.search(matrix, 1)[1][:, 0]
        distances = matrix - self.engine.quantizer.reconstruct_batch(centers)
        lengths: NDArray[np.float64] = np.linalg.norm(distances.astype(np.float64), axis=1)
        return lengths

    def _probe(self, queries: NDArray[np.float32], k: int, selector: Any, probes: int) -> Found:
        nprobe = min(probes, self.engine.nlist)
        parameters = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
        nearest: Found = self.engine.search(queries, k, params=parameters)
        return nearest


def empty_hnsw(dimension: int, metric: Metric, config: IndexConfig) -> Hnsw:
    """Return an empty graph."""
    engine = faiss.IndexHNSWFlat(dimension, config.hnsw_m, _metric(metric))
    engine.hnsw.efConstruction = config.hnsw_ef_construction
    return Hnsw(engine, config)


def lists_for(count: int, config: IndexConfig) -> int:
    """Return the number of lists of an IVF index over this many embeddings.

    FAISS's guidelines: 4 to 16 times the square root of the number; never more than can be trained.
    """
    lists = config.ivf_nlist or int(4 * count**0.5)
    return max(1, min(lists, count // POINTS_PER_LIST))


def empty_ivf(sample: NDArray[np.float32], lists: int, metric: Metric, config: IndexConfig) -> Ivf:
    """Return empty lists around the centers of a sample, shape (n, dimension)."""
    kind = _metric(metric)
    dimension = sample.shape[1]
    centers = faiss.IndexFlat(dimension, kind)
    bits = faiss.ScalarQuantizer.QT_8bit
    engine = faiss.IndexIVFScalarQuantizer(centers, dimension, lists, bits, kind)
    _build(config, engine.train, sample)
    return Ivf(engine, config)


def _build(config: IndexConfig, step: Callable[..., None], matrix: NDArray[np.float32]) -> None:
    def run() -> None:
        faiss.omp_set_num_threads(config.build_threads)  # for this thread only
        step(np.ascontiguousarray(matrix))

    at_low_priority(run)


def _ties(scores: NDArray[np.float32], k: int) -> bool:
    """Return True if the last score equals the k-th, so that more positions may tie with it."""
    kth, last = float(scores.flat[k - 1]), float(scores.flat[-1])
    return abs(kth - last) <= TIE * abs(kth)


def _metric(metric: Metric) -> int:
    # Under cosine, rows have length 1, and so does the query up to a constant factor.
    return int(faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT)
