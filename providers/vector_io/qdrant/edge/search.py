"""Vector search of inline::qdrant: a Qdrant Edge shard over the chunk file, or none for few chunks.

Another process builds the shard from the chunk file; it is never written again. The shard is in a
folder beside the chunk file, which one process opens; other processes compare every embedding
exactly.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge import shard as edge
from corral.providers.vector_io.store.approximate import Abandoned, ApproximateSearcher
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.covered_rows import CoveredRows, IndexFailed, rows_still_there
from corral.providers.vector_io.store.engine import Lend
from corral.providers.vector_io.store.index_folder import IndexFolder, covered_rows

GROWTH = 0.2
"""Once newer rows exceed this share of the shard's points, the shard is rebuilt."""
SPARE = 16
"""Points requested beyond k, because a few may tie with the last one."""
TIE = 1e-6
"""Maximum relative difference between the engine's scores of equal embeddings."""
WALKING_SHARE = 0.3
"""Minimum share of usable points for a graph walk, with filtering of its result. Below it, the
engine compares the usable points alone: 2 ms for 10,000."""
DEEPER = 2
"""If some points are unusable, the walk returns this many times more points than would suffice if
the usable ones were evenly distributed."""
RETRY_SECONDS = 10.0
"""Wait before the next attempt to open the folder or to build a shard."""

logger = logging.getLogger(__name__)


class ShardBase(CoveredRows):
    """A shard with the rows of the chunk file that it covers.

    Args:
        shard: An open shard.
        hnsw_ef: Minimum number of candidates of a graph walk.
    """

    def __init__(
        self,
        shard: edge.Shard,
        hnsw_ef: int,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
    ) -> None:
        super().__init__(rows, squared_norms, alive, deletion)
        self.shard = shard
        self._hnsw_ef = hnsw_ef

    @override
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        passing = len(self) if usable is None else int(usable.sum())
        limit = min(passing, k + SPARE)
        if not limit:
            return np.empty(0, dtype=np.int64)
        points = self._walked(query, limit, passing, usable)
        while len(points[0]) < limit or (limit < passing and _ties(points[1], k)):
            # Equal embeddings are poorly linked, so the walk may not reach all ties.
            limit = limit if len(points[0]) < limit else min(passing, 4 * limit)
            rows = None if usable is None else self.rows[usable]
            points = self.shard.nearest(query, limit, rows, None)
            if len(points[0]) < limit:
                raise IndexFailed("The shard lacks points.")
        places: NDArray[np.int64] = np.searchsorted(self.rows, points[0])
        if (places >= len(self.rows)).any() or (self.rows[places] != points[0]).any():
            raise IndexFailed("The shard has points of its own.")
        return places

    def _walked(
        self, query: NDArray[np.float32], limit: int, passing: int, usable: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the approximately nearest usable points with scores; it may find too few."""
        share = passing / len(self)
        if usable is None:
            return self.shard.nearest(query, limit, None, max(self._hnsw_ef, limit))
        if share < WALKING_SHARE:
            return self.shard.nearest(query, limit, self.rows[usable], None)
        depth = min(len(self), int(DEEPER * limit / share))
        rows, scores = self.shard.nearest(query, depth, None, max(self._hnsw_ef, depth))
        places = np.minimum(np.searchsorted(self.rows, rows), len(self) - 1)
        there = usable[places]
        return rows[there][:limit], scores[there][:limit]


class EdgeSearch(ApproximateSearcher[ShardBase]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        file: The chunk file.
        lend: Lends a connection to it, outside a transaction.

    Attributes:
        file: As given.
    """

    def __init__(
        self, vector_db: VectorDB, config: QdrantEdgeConfig, file: Path, lend: Lend
    ) -> None:
        super().__init__(vector_db, lend, "Qdrant", _build_from(vector_db, config), GROWTH)
        self._hnsw_ef = config.hnsw_ef
        self.file = file
        settings = {"format": 1, "dimension": self._dimension, "metric": self._metric.value}
        self._folder = IndexFolder(file.with_suffix(".edge"), settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._not_before = 0.0

    @override
    def may_build(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        self._not_before = time.monotonic() + RETRY_SECONDS
        return self._folder.take()

    @override
    def load(self, connection: apsw.Connection) -> ShardBase | None:
        place = self._folder.current()
        if place is None or self._parts[0] is not None or not self._folder.take():
            return None
        try:
            return self._opened(connection, place)
        except (IndexFailed, OSError, ValueError):
            logger.warning("%s cannot be read; it will be rebuilt", self._folder.path.name)
            self._folder.forget()
            self._folder.sweep()
            return None

    def _opened(self, connection: apsw.Connection, place: Path) -> ShardBase:
        rows, norms = covered_rows(place)
        alive = rows_still_there(connection, rows, norms)
        if alive is None:
            raise IndexFailed("The shard is not of this chunk file.")
        deletion = read_state(connection).deletion
        return ShardBase(edge.Shard(place), self._hnsw_ef, rows, norms, alive, deletion)

    @override
    def build(self, connection: apsw.Connection, old: ShardBase | None) -> ShardBase:
        if not state(connection, "count"):
            raise Abandoned
        place = self._folder.new_place()
        try:
            self.make_shard(place)
            with transaction(connection, "DEFERRED"):
                if not state(connection, "count"):  # The file is empty by now.
                    raise Abandoned
                base = self._opened(connection, place)
            self._folder.switch(place)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, IndexFailed):
                raise ProviderError("Qdrant Edge failed.") from error
            raise
        self._not_before = 0.0
        return base

    def make_shard(self, place: Path) -> None:
        """Build a shard in another process.

        Raises:
            Abandoned: The vector DB was closed.
            ProviderError: The process failed.
        """
        arguments = [self.file, place, self._dimension, self._metric.value]
        # -P: do not import a folder named corral from the working directory.
        command = [sys.executable, "-P", "-m", edge.__name__, *map(str, arguments)]
        with self._starting:
            if self.stopping.is_set():
                raise Abandoned
            self._process = subprocess.Popen(  # noqa: S603 - runs this interpreter, not a shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # the output may quote data
            )
        status = self._process.wait()
        self._process = None
        if self.stopping.is_set():
            raise Abandoned
        if status:
            raise ProviderError(f"The process that makes the shard ended with {status}.")

    @override
    def retire(self, base: ShardBase) -> None:
        base.shard.close()
        self._folder.sweep()

    @override
    def forget(self, base: ShardBase) -> None:
        self._folder.forget()
        self._folder.sweep()

    @override
    def settle(self) -> None:
        super().settle()
        self.written()  # another build may be due
        super().settle()

    @override
    def close(self) -> None:
        with self._starting:
            self.stopping.set()
            if self._process:
                self._process.kill()
        super().close()
        base = self._parts[0]
        if base is not None:
            base.shard.close()
        self._folder.release()

    @override
    def discard(self) -> None:
        self._folder.delete()


def _build_from(vector_db: VectorDB, config: QdrantEdgeConfig) -> int | None:
    """Return the minimum number of chunks for a shard; None for never.

    Inner products of embeddings that are not normalized are always compared one by one: an inner
    product is not a distance, long embeddings are near everything, and graphs miss much.
    """
    if config.exact or (effective_metric(vector_db) is Metric.DOT and not vector_db.normalize):
        return None
    return config.approximate_from


def _ties(scores: NDArray[np.float64], k: int) -> bool:
    """Return True if the last score equals the k-th, so that more points may tie with it."""
    kth, last = float(scores[k - 1]), float(scores[-1])
    return abs(kth - last) <= TIE * abs(kth)
