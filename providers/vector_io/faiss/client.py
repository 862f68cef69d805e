"""FAISS itself: HNSW and IVF indexes."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.faiss.config import FaissConfig

faiss: Any = importlib.import_module("faiss")  # its type stubs (1.15) lack half of what we use

SPARE = 16
"""Places asked for beyond k: a few tie with the last one, and codes mistake neighbors' order."""
FEW = 0.1
"""Below this share of usable places all of them are compared: a graph walk, or a few lists, would
meet too few of them, and comparing them is cheap."""
TIE = 1e-6
"""Relative difference of FAISS's scores of equal embeddings, at most."""
DEEPER = 2
"""Where not all places are usable, so many times more are asked for than would hold enough if those
that are lay anywhere. They lie elsewhere where too few of them come: all are compared then."""
MIN_PROBES = 16
"""Minimum number of lists of a query if the operator sets no number."""
PROBES_PER_ROOT = 3
"""Lists of a query for each root of their number. Of 12,834 real texts in 329 lists, 54 lists hold
0.989 of the ten nearest (RFC 0009)."""
POINTS_PER_LIST = 39
"""Minimum number of training points of an IVF list; FAISS's own bound."""


Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""FAISS's scores or squared distances, best first, and the places; shape (1, k) or (k,)."""


class Selector:
    """FAISS's view of a mask over places, with the memory that it points to.

    Args:
        usable: Shape (n,), or None for all.
    """

    def __init__(self, usable: NDArray[np.bool_] | None) -> None:
        # FAISS keeps a pointer only: the bits must live as long as the search.
        self._bits = None if usable is None else np.packbits(usable, bitorder="little")
        self.faiss: Any = None if self._bits is None else faiss.IDSelectorBitmap(self._bits)


class ApproximateIndex(ABC):
    """An approximate index over places 0 to n - 1. Searching is safe from many threads."""

    def __init__(self, engine: Any, config: FaissConfig) -> None:
        self.engine = engine
        self._config = config

    def __len__(self) -> int:
        return int(self.engine.ntotal)

    def copy(self) -> ApproximateIndex:
        """Return a copy that can be added to."""
        return type(self)(faiss.clone_index(self.engine), self._config)

    def add(self, matrix: NDArray[np.float32]) -> None:
        """Add embeddings at the next places. The index must not be searched at the same time."""
        faiss.omp_set_num_threads(self._config.build_threads)
        self.engine.add(np.ascontiguousarray(matrix))

    def places(
        self, query: NDArray[np.float32], k: int, usable: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Return the places of about the k nearest embeddings, and of some more.

        Never fewer than exist: if the index finds too few, all embeddings are compared.

        Args:
            query: Shape (dimension,).
            k: At least 1.
            usable: Which places may be returned, shape (n,); None for all.
        """
        faiss.omp_set_num_threads(1)  # The setting holds for the calling thread only.
        passing = len(self) if usable is None else int(usable.sum())
        wanted = min(passing, k + SPARE)
        if not wanted:
            return np.empty(0, dtype=np.int64)
        found = self._nearest(query[None], wanted, passing, usable)
        while found is None or (wanted < passing and _ties(found[0], k)):
            # Not all embeddings that are equal to one are in reach of it.
            wanted = wanted if found is None else min(passing, 4 * wanted)
            found = self._compare_all(query[None], wanted, Selector(usable).faiss)
        places: NDArray[np.int64] = found[1].reshape(-1)
        return places

    def _nearest(
        self,
        query: NDArray[np.float32],
        wanted: int,
        passing: int,
        usable: NDArray[np.bool_] | None,
    ) -> Found | None:
        """Return the nearest of the usable places, or None if too few of them come up."""
        share = passing / len(self)
        if share < FEW:
            return None
        depth = wanted if usable is None else min(len(self), int(DEEPER * wanted / share))
        scores, places = self._search(query, depth, share)
        there = places >= 0  # -1 means nothing found
        if usable is not None:
            there &= usable[places]
        if np.count_nonzero(there) < wanted:
            return None
        return scores[there][:wanted], places[there][:wanted]

    @abstractmethod
    def _search(self, queries: NDArray[np.float32], k: int, share: float) -> Found:
        """Return the k nearest of all with the effort that a share of usable places asks for.

        What is not usable is left in: it shows how near the usable places are. Shape (1, k).
        """

    @abstractmethod
    def _compare_all(self, queries: NDArray[np.float32], k: int, selector: Any) -> Found:
        """Compare everything that the index holds; shape (1, k)."""


class Hnsw(ApproximateIndex):
    """A graph of neighbors.

    Malkov and Yashunin: "Efficient and Robust Approximate Nearest Neighbor Search Using
    Hierarchical Navigable Small World Graphs", IEEE TPAMI 42(4), 2020.
    """

    def _search(self, queries: NDArray[np.float32], k: int, share: float) -> Found:
        # The walk also meets what may not be returned, so it must be longer.
        effort = max(int(self._config.hnsw_ef_search / share), k)
        parameters = faiss.SearchParametersHNSW(efSearch=effort)
        found: Found = self.engine.search(queries, k, params=parameters)
        return found

    def _compare_all(self, queries: NDArray[np.float32], k: int, selector: Any) -> Found:
        storage = faiss.downcast_index(self.engine.storage)
        parameters = faiss.SearchParameters(sel=selector)
        found: Found = storage.search(queries, k, params=parameters)
        return found


class Ivf(ApproximateIndex):
    """Lists around centers found by k-means, of one byte a number: the row less its center.

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
        found: Found = self.engine.search(queries, k, params=parameters)
        return found


def empty_hnsw(dimension: int, metric: Metric, config: FaissConfig) -> Hnsw:
    """Return an empty graph."""
    engine = faiss.IndexHNSWFlat(dimension, config.hnsw_m, _metric(metric))
    engine.hnsw.efConstruction = config.hnsw_ef_construction
    return Hnsw(engine, config)


def lists_for(count: int, config: FaissConfig) -> int:
    """Return the number of lists of an IVF index over this many embeddings.

    FAISS's guidelines: 4 to 16 times the root; never so many that they cannot be trained.
    """
    lists = config.ivf_nlist or int(4 * count**0.5)
    return max(1, min(lists, count // POINTS_PER_LIST))


def empty_ivf(sample: NDArray[np.float32], lists: int, metric: Metric, config: FaissConfig) -> Ivf:
    """Return empty lists around the centers of a sample, shape (n, dimension)."""
    faiss.omp_set_num_threads(config.build_threads)
    kind = _metric(metric)
    dimension = sample.shape[1]
    centers = faiss.IndexFlat(dimension, kind)
    bits = faiss.ScalarQuantizer.QT_8bit
    engine = faiss.IndexIVFScalarQuantizer(centers, dimension, lists, bits, kind)
    engine.train(np.ascontiguousarray(sample))
    return Ivf(engine, config)


def _ties(scores: NDArray[np.float32], k: int) -> bool:
    """Return True if the last score equals the k-th: more may tie with it."""
    kth, last = float(scores.flat[k - 1]), float(scores.flat[-1])
    return abs(kth - last) <= TIE * abs(kth)


def _metric(metric: Metric) -> int:
    # Rows under cosine have length 1, and so has a query that differs from it by a factor only.
    return int(faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT)
