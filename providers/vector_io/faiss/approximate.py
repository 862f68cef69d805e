"""HNSW and IVF: approximate search over the embeddings of one state of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.engine import faiss
from corral.providers.vector_io.faiss.flat import SPARE, Selector

FEW = 0.1
"""Below this share of usable places all of them are compared: a graph walk, or a few lists, would
pass too few of them, and comparing them costs little."""
MIN_PROBES = 16
"""Fewest lists of a query where the operator names no number."""
POINTS_PER_LIST = 39
"""Fewest training points of an IVF list; FAISS's own bound."""


class ApproximateIndex(ABC):
    """An approximate index over places 0 to n - 1. Searching is safe from many threads.

    Args:
        engine: The FAISS index.
        config: The provider's settings.
    """

    def __init__(self, engine: Any, config: FaissConfig) -> None:
        self.engine = engine
        self._config = config

    def __len__(self) -> int:
        return int(self.engine.ntotal)

    def copy(self) -> ApproximateIndex:
        """Return a copy that can be added to."""
        return type(self)(faiss.clone_index(self.engine), self._config)

    def add(self, matrix: NDArray[np.float32]) -> None:
        """Add embeddings at the next places. Nobody may search the index meanwhile."""
        faiss.omp_set_num_threads(self._config.build_threads)
        self.engine.add(np.ascontiguousarray(matrix))

    def embeddings(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the embeddings at some places, exactly as they were added."""
        found: NDArray[np.float32] = self.engine.reconstruct_batch(places)
        return found

    def places(
        self, query: NDArray[np.float32], k: int, usable: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Return the places of about the k nearest embeddings, and of some more.

        Never fewer than there are: where the index finds too few, all embeddings are compared.

        Args:
            query: Shape (dimension,).
            k: At least 1.
            usable: Which places may be returned, shape (n,); None for all.
        """
        faiss.omp_set_num_threads(1)  # holds for the calling thread, of which there are many
        passing = len(self) if usable is None else int(usable.sum())
        wanted = min(passing, k + SPARE)
        if not wanted:
            return np.empty(0, dtype=np.int64)
        selector = Selector(usable)
        share = passing / len(self)
        if share >= FEW:
            found = self._search(query[None], wanted, selector.faiss, share).reshape(-1)
            found = found[found >= 0]  # -1 stands for nothing found
            if len(found) == wanted:
                return found
        return self._compare_all(query[None], wanted, selector.faiss).reshape(-1)

    @abstractmethod
    def _search(
        self, queries: NDArray[np.float32], k: int, selector: Any, share: float
    ) -> NDArray[np.int64]:
        """Search with the effort that a share of usable places asks for; shape (1, k)."""

    @abstractmethod
    def _compare_all(
        self, queries: NDArray[np.float32], k: int, selector: Any
    ) -> NDArray[np.int64]:
        """Search exactly; shape (1, k)."""


class Hnsw(ApproximateIndex):
    """A graph of neighbors.

    Malkov and Yashunin: "Efficient and Robust Approximate Nearest Neighbor Search Using
    Hierarchical Navigable Small World Graphs", IEEE TPAMI 42(4), 2020.
    """

    def _search(
        self, queries: NDArray[np.float32], k: int, selector: Any, share: float
    ) -> NDArray[np.int64]:
        # The walk also passes what may not be returned; so it has to be longer.
        effort = int(max(self._config.hnsw_ef_search, k) / share)
        parameters = faiss.SearchParametersHNSW(efSearch=effort, sel=selector)
        places: NDArray[np.int64] = self.engine.search(queries, k, params=parameters)[1]
        return places

    def _compare_all(
        self, queries: NDArray[np.float32], k: int, selector: Any
    ) -> NDArray[np.int64]:
        storage = faiss.downcast_index(self.engine.storage)
        parameters = faiss.SearchParameters(sel=selector)
        places: NDArray[np.int64] = storage.search(queries, k, params=parameters)[1]
        return places


class Ivf(ApproximateIndex):
    """Lists around centers found by k-means.

    Jégou, Douze, Schmid: "Product Quantization for Nearest Neighbor Search", IEEE TPAMI 33(1),
    2011, section 4, without the quantization.
    """

    def _search(
        self, queries: NDArray[np.float32], k: int, selector: Any, share: float
    ) -> NDArray[np.int64]:
        probes = self._config.ivf_nprobe or max(MIN_PROBES, self.engine.nlist // 4)
        return self._probe(queries, k, selector, int(probes / share))

    def _compare_all(
        self, queries: NDArray[np.float32], k: int, selector: Any
    ) -> NDArray[np.int64]:
        return self._probe(queries, k, selector, self.engine.nlist)

    def _probe(
        self, queries: NDArray[np.float32], k: int, selector: Any, probes: int
    ) -> NDArray[np.int64]:
        nprobe = min(probes, self.engine.nlist)
        parameters = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
        places: NDArray[np.int64] = self.engine.search(queries, k, params=parameters)[1]
        return places


def empty_hnsw(dimension: int, metric: Metric, config: FaissConfig) -> Hnsw:
    """Return a graph without a node."""
    engine = faiss.IndexHNSWFlat(dimension, config.hnsw_m, _metric(metric))
    engine.hnsw.efConstruction = config.hnsw_ef_construction
    return Hnsw(engine, config)


def lists_for(count: int, config: FaissConfig) -> int:
    """Return how many lists an IVF index over so many embeddings has.

    FAISS's guidelines: 4 to 16 times the root; never so many that they cannot be trained.
    """
    lists = config.ivf_nlist or int(4 * count**0.5)
    return max(1, min(lists, count // POINTS_PER_LIST))


def empty_ivf(sample: NDArray[np.float32], lists: int, metric: Metric, config: FaissConfig) -> Ivf:
    """Return empty lists around the centers of a sample, shape (n, dimension)."""
    faiss.omp_set_num_threads(config.build_threads)
    kind = _metric(metric)
    dimension = sample.shape[1]
    engine = faiss.IndexIVFFlat(faiss.IndexFlat(dimension, kind), dimension, lists, kind)
    engine.train(np.ascontiguousarray(sample))
    engine.make_direct_map()  # from a place to its embedding
    return Ivf(engine, config)


def _metric(metric: Metric) -> int:
    # Rows under cosine have length 1, and so has a query that differs from it by a factor only.
    return int(faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT)
