"""Vector search of inline::lancedb: a LanceDB table over the chunk file.

The chunk file is the truth. The table contains the row, id, text, metadata and embedding of each
chunk, and can be deleted at any time. A build adds a version to the table. Versions never change,
so any number of processes can search the versions that they have opened while one process writes
the next.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.lancedb.config import LanceDBConfig
from corral.providers.vector_io.lancedb.table import Slice, Snapshot, write
from corral.providers.vector_io.store.approximate import Abandoned, ApproximateSearcher
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.covered_rows import CoveredRows, IndexFailed, rows_still_there
from corral.providers.vector_io.store.engine import Lend
from corral.providers.vector_io.store.index_folder import IndexFolder
from corral.providers.vector_io.store.matrix import BATCH_ROWS

GROWTH = 0.2
"""Once newer rows exceed this share of the table's rows, they are added to it."""
RETRY_SECONDS = 10.0
"""Wait before the next attempt to build if one has failed or another process is building."""

logger = logging.getLogger(__name__)


class LanceDBBase(CoveredRows):
    """A version of a table with the rows of the chunk file that it covers.

    Args:
        snapshot: The version.
        nprobes: Number of partitions that a query reads if all rows are usable.
        rows, squared_norms, alive, deletion: As for `CoveredRows`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        nprobes: int,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
    ) -> None:
        super().__init__(rows, squared_norms, alive, deletion)
        self.snapshot = snapshot
        self._nprobes = nprobes

    @override
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        def search(depth: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
            rows, distances = self.snapshot.nearest(query, depth, int(self._nprobes / share))
            places = np.minimum(np.searchsorted(self.rows, rows), len(self) - 1)
            if (self.rows[places] != rows).any():
                raise IndexFailed("The table has rows of its own.")
            return places, distances

        return self.nearest_places(k, usable, search)


class LanceDBSearch(ApproximateSearcher[LanceDBBase]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        folder: Folder of the table.
        lend: Lends a connection to the chunk file, outside a transaction.
    """

    def __init__(
        self, vector_db: VectorDB, config: LanceDBConfig, folder: Path, lend: Lend
    ) -> None:
        # Inner products of embeddings of varying length are not a distance; partitions miss many.
        is_distance = vector_db.normalize or vector_db.metric is not Metric.DOT
        build_from = config.approximate_from if is_distance else None
        super().__init__(vector_db, lend, "LanceDB", build_from, GROWTH)
        self._config = config
        settings = {"format": 1, "dimension": self._dimension, "metric": self._metric.value}
        self._folder = IndexFolder(folder, settings)
        self._not_before = 0.0

    @override
    def may_build(self) -> bool:
        return time.monotonic() >= self._not_before

    @override
    def load(self, connection: apsw.Connection) -> LanceDBBase | None:
        place = self._folder.current()
        if place is None:
            return None
        try:
            snapshot, ours = Snapshot(place), self._parts[0]
            if ours is not None and ours.snapshot == snapshot:
                return None
            return self._opened(connection, snapshot)
        except IndexFailed:
            logger.warning("%s cannot be read; it will be rebuilt", self._folder.path.name)
            self._forget(place)
            return None

    def _opened(self, connection: apsw.Connection, snapshot: Snapshot) -> LanceDBBase:
        rows, norms = snapshot.rows()
        alive = rows_still_there(connection, rows, norms)
        if alive is None:
            raise IndexFailed("The table is not of this chunk file.")
        deletion = read_state(connection).deletion
        return LanceDBBase(snapshot, self._config.nprobes, rows, norms, alive, deletion)

    @override
    def build(self, connection: apsw.Connection, old: LanceDBBase | None) -> LanceDBBase:
        self._not_before = time.monotonic() + RETRY_SECONDS
        if not self._folder.take():  # Another process is building.
            raise Abandoned
        try:
            extended = old is not None and not old.is_worn and self._is_current(old.snapshot)
            base = self._built(connection, old if extended else None)
        except IndexFailed as error:
            self._folder.release()
            raise ProviderError("LanceDB failed.") from error
        except BaseException:
            self._folder.release()
            raise
        self._not_before = 0.0
        return base

    def _is_current(self, snapshot: Snapshot) -> bool:
        """Return True if no other process has written a version since.

        Raises:
            Abandoned: Another process has written a version.
        """
        if self._folder.current() != snapshot.place:
            return False
        if Snapshot(snapshot.place) != snapshot:
            raise Abandoned  # The next search that needs a build loads the new version.
        return True

    def _built(self, connection: apsw.Connection, old: LanceDBBase | None) -> LanceDBBase:
        """Write the rows of the file as a new version; create the table if `old` is None."""
        with transaction(connection, "DEFERRED"):
            count = state(connection, "count")
        if not count:
            raise Abandoned
        place = old.snapshot.place if old else self._folder.new_place()
        partitions = self._config.partitions or max(1, math.isqrt(count))
        try:
            after = old.last_row if old else 0
            snapshot = old.snapshot if old else None
            write(place, snapshot, self._above(connection, after), min(partitions, count))
            with transaction(connection, "DEFERRED"):
                base = self._opened(connection, Snapshot(place))
            self._folder.switch(place)
        except BaseException:
            if old is None:
                shutil.rmtree(place, ignore_errors=True)
            raise
        return base

    def _above(self, connection: apsw.Connection, row: int) -> Iterator[Slice]:
        """Yield the rows above a row number.

        Raises:
            Abandoned: The vector DB is being closed, or has no such rows.
        """
        is_empty = True
        for batch, chunks in self.slices(connection, row, BATCH_ROWS):
            yield Slice(batch, chunks)
            is_empty = False
        if self.stopping.is_set() or is_empty:
            raise Abandoned

    @override
    def save(self, base: LanceDBBase) -> None:
        self._folder.sweep()
        self._folder.release()

    @override
    def forget(self, base: LanceDBBase) -> None:
        self._forget(base.snapshot.place)

    def _forget(self, place: Path) -> None:
        """Delete a table that failed, unless another process is building one."""
        if self._folder.current() == place and self._folder.take():
            self._folder.forget()
            self._folder.sweep()
            self._folder.release()

    @override
    def discard(self) -> None:
        self._folder.delete()
