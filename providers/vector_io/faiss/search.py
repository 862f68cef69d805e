"""Vector search of inline::faiss: a base that is searched approximately, and the rest exactly.

The chunk file is the truth. Memory holds two parts: the *base*, an HNSW or IVF index over the rows
up to some row, and a *copy* of the embeddings above it, all of which are compared, as in
`inline::sqlite`. A `flat` index has no base, and small vector DBs have none yet.

A base never changes during a search. When the copy has grown, a thread builds a new base from the
old one and the copy, and exchanges both at once. So neither queries nor writes wait for an index
to be built, and a query finds what was just written. It passes over deleted rows in the base; once
they are a third of it, the base is rebuilt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.errors import CorralError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss.base import Base
from corral.providers.vector_io.faiss.client import (
    ApproximateIndex,
    Ivf,
    empty_hnsw,
    empty_ivf,
    lists_for,
)
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.records import BaseFile
from corral.providers.vector_io.kit.exact import Nearest, effective_metric, nearest
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.engine import Lend, VectorSearcher
from corral.providers.vector_io.store.matrix import (
    BATCH_ROWS,
    EmbeddingBatch,
    MemoryCopy,
    read_embeddings,
    read_rows,
    unit_rows,
)

GROWTH = 0.1
"""Share of the base's rows that the copy may reach before both become a new base."""
MIN_GROWTH = 1000
"""Rows that the copy may always have; comparing them takes 0.05 ms."""
MOST_DEAD = 1 / 3
"""Share of the base's rows that may be deleted before it is rebuilt."""
RETRAINED_AT = 4
"""Growth at which an IVF index is trained again, which doubles the number of its centers."""
STRANGE = 1.2
"""Mean distance of new rows from their IVF center, as a multiple of that of old ones, beyond which
the index is trained again: they are about something else."""
FIT_ROWS = 1000
"""Rows, old and new, that are compared for `STRANGE`."""
SLICE_ROWS = {"hnsw": 1024, "ivf": 16_384}
"""Rows added at once; between slices a build can be stopped (0.4 s for 384 dimensions)."""
LAST_ROW = 2**63 - 1
"""The largest row number that SQLite has."""
SAMPLE_PER_LIST = 64
"""Embeddings that k-means sees for each list."""

logger = logging.getLogger(__name__)


class _Abandoned(Exception):
    """The vector DB was closed or emptied during the build of its index."""


class FaissSearch(VectorSearcher):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        file: Where the base is stored.
        lend: Lends a connection to the chunk file, outside a transaction.

    Attributes:
        stopping: Set once it is being closed.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        config: FaissConfig,
        file: Path,
        lend: Lend,
    ) -> None:
        self._dimension = vector_db.embedding_dimension
        self._metric = effective_metric(vector_db)
        self._unit = self._metric is Metric.COSINE
        self._config = config
        self._kind = index_kind(vector_db, config)
        self._lend = lend
        settings = config.model_dump(
            include={"hnsw_m", "hnsw_ef_construction"} if self._kind == "hnsw" else {"ivf_nlist"}
        )
        settings |= {"kind": self._kind, "metric": self._metric, "dimension": self._dimension}
        if self._kind == "ivf":
            settings["codes"] = "int8"
        self._file = BaseFile(file, settings, config)
        self._parts: tuple[Base | None, MemoryCopy] = (None, self._copy_after(0))
        self._building = threading.Lock()
        self.stopping = threading.Event()

    # --- searching ---------------------------------------------------------------------------

    @override
    def begin(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Callable[[], Nearest]:
        base, copy = self._parts
        find = copy.view(connection).begin(connection, query, k, allowed)

        def found() -> Nearest:
            rows, matrix = find()
            if base is not None:
                proposed = base.candidates(connection, query, k, allowed)
                more = read_rows(connection, proposed, self._dimension)
                rows, matrix = np.concatenate([rows, proposed]), np.concatenate([matrix, more])
            self._build_if_due(connection)
            return nearest(rows, matrix, query, k, self._metric)

        return found

    # --- building ----------------------------------------------------------------------------

    @override
    def prepare(self) -> None:
        with self._lend() as connection, transaction(connection, "DEFERRED"):
            self._load(connection)
            self._build_if_due(connection)

    @override
    def written(self) -> None:
        with self._lend() as connection, transaction(connection, "DEFERRED"):
            self._build_if_due(connection)

    def _load(self, connection: apsw.Connection) -> None:
        """Load the base from its file if it fits the chunk file and is no older than ours."""
        if self._kind == "flat":
            return
        base, ours = self._file.load(connection), self._parts[0]
        if base is not None and (ours is None or base.last_row >= ours.last_row):
            self._exchange(base)

    def _build_if_due(self, connection: apsw.Connection) -> None:
        """Start building a new base in a thread if one is due and none is being built."""
        if not self._is_due(connection) or not self._building.acquire(blocking=False):
            return
        if self.stopping.is_set():
            self._building.release()
            return
        threading.Thread(target=self._build, name="faiss-build", daemon=True).start()

    @override
    def settle(self) -> None:
        with self._building:
            pass

    @property
    def covered(self) -> int:
        """The number of rows in the approximate index, deleted ones included; 0 without one."""
        base = self._parts[0]
        return len(base) if base else 0

    @property
    def lists(self) -> int:
        """The number of lists of an IVF index; 0 while there is none."""
        base = self._parts[0]
        return base.index.engine.nlist if base and self._kind == "ivf" else 0

    @override
    def close(self) -> None:
        self.stopping.set()
        self.settle()

    @override
    def discard(self) -> None:
        self._file.delete()

    def _is_due(self, connection: apsw.Connection) -> bool:
        base = self._parts[0]
        if self._kind == "flat":
            return False
        count = state(connection, "count")
        if base is None:
            return count >= self._config.approximate_from
        uncovered = count - (len(base) - base.dead)
        return _is_worn(base) or uncovered > max(MIN_GROWTH, GROWTH * len(base))

    def _build(self) -> None:
        """Build a new base, exchange and store it: what a builder thread does."""
        try:
            with self._lend() as connection:
                with transaction(connection, "DEFERRED"):
                    self._load(connection)  # another process may have made it
                    due, count = self._is_due(connection), state(connection, "count")
                if due and count < self._config.approximate_from:
                    self._exchange(None)
                elif due:
                    base = self._grown(connection, self._parts[0])
                    self._exchange(base)
                    self._file.save(base)
        except _Abandoned:
            logger.debug("The build of a FAISS index was abandoned.")
        except (CorralError, OSError) as error:
            # Queries go on without it, exactly and more slowly, and the next one tries again.
            logger.warning("A FAISS index could not be built or stored: %s", error)
        finally:
            self._building.release()

    def _exchange(self, base: Base | None) -> None:
        self._parts = (base, self._copy_after(base.last_row if base else 0))

    def _copy_after(self, row: int) -> MemoryCopy:
        return MemoryCopy(self._dimension, self._metric, after_row=row)

    def _grown(self, connection: apsw.Connection, old: Base | None) -> Base:
        """Return a base over all rows of the file, leaving the old one as it is."""
        with transaction(connection, "DEFERRED"):
            # Lists are made for what is there now; what comes meanwhile may be something else.
            last = read_state(connection).last_row if self._kind == "ivf" else LAST_ROW
        base = self._start(connection, old)
        for batch in self._above(connection, base.last_row, last):
            if self.stopping.is_set():
                raise _Abandoned
            base.extend(batch)
        if not len(base):
            raise _Abandoned
        return base

    def _start(self, connection: apsw.Connection, old: Base | None) -> Base:
        """Return the base to extend: a copy of the old one, or an empty one."""
        with transaction(connection, "DEFERRED"):
            now = read_state(connection)
            if old is not None and not self._is_outdated(connection, old, now.count):
                return old.copy()
            if not now.count:
                raise _Abandoned
            index: ApproximateIndex
            if self._kind == "hnsw":
                index = empty_hnsw(self._dimension, self._metric, self._config)
                return Base.empty(index, now.deletion, trained=now.count)
            lists = lists_for(now.count, self._config)
            sample = self._sample(connection, lists * SAMPLE_PER_LIST)
        index = empty_ivf(sample, lists, self._metric, self._config)
        return Base.empty(index, now.deletion, trained=now.count)

    def _is_outdated(self, connection: apsw.Connection, base: Base, count: int) -> bool:
        """Return True if a base has to be built from scratch to hold all rows well."""
        if _is_worn(base) or not isinstance(base.index, Ivf):
            return _is_worn(base)
        if count >= RETRAINED_AT * base.trained:
            return True
        known = base.index.misfits(self._sample(connection, FIT_ROWS, last=base.last_row))
        new = base.index.misfits(self._sample(connection, FIT_ROWS, first=base.last_row + 1))
        if not len(known) or not len(new):
            return False
        return float(new.mean()) > STRANGE * float(known.mean())

    def _sample(
        self, connection: apsw.Connection, size: int, first: int = 0, last: int = LAST_ROW
    ) -> NDArray[np.float32]:
        """Return embeddings of rows, shape (n, dimension); the same ones for the same file."""
        between = "SELECT row FROM embeddings WHERE row BETWEEN ? AND ? ORDER BY row"
        found = connection.execute(between, (first, last))
        rows = np.fromiter((row for (row,) in found), dtype=np.int64)
        if len(rows) > size:
            rows = np.sort(np.random.default_rng(0).choice(rows, size, replace=False))
        sample = np.empty((len(rows), self._dimension), dtype=np.float32)
        for start in range(0, len(rows), BATCH_ROWS):  # in double precision all take much memory
            part = read_rows(connection, rows[start : start + BATCH_ROWS], self._dimension)
            norms = (part.astype(np.float64) ** 2).sum(axis=1)
            sample[start : start + len(part)] = unit_rows(part, norms) if self._unit else part
        return sample

    def _above(self, connection: apsw.Connection, row: int, last: int) -> Iterator[EmbeddingBatch]:
        """Yield the rows above one, up to about the last, each batch in a transaction of its own.

        One long transaction would keep SQLite from clearing its log while the index is built.
        """
        while row < last:
            with transaction(connection, "DEFERRED"):
                at_most = min(SLICE_ROWS[self._kind], last - row)
                batches = list(read_embeddings(connection, row, at_most=at_most))
            if not batches:
                return
            batch = _joined(batches)
            unit = unit_rows(batch.matrix, batch.squared_norms) if self._unit else batch.matrix
            yield replace(batch, matrix=unit)
            row = int(batch.rows[-1])


def _joined(batches: Sequence[EmbeddingBatch]) -> EmbeddingBatch:
    columns = zip(*((each.rows, each.squared_norms, each.matrix) for each in batches), strict=True)
    rows, norms, matrix = (np.concatenate(each) for each in columns)
    return EmbeddingBatch(rows, norms, matrix)


def _is_worn(base: Base) -> bool:
    return base.dead > MOST_DEAD * len(base)


def index_kind(vector_db: VectorDB, config: FaissConfig) -> str:
    """Return which index searches a vector DB: flat, hnsw or ivf.

    Inner products of embeddings that are not normalized are always compared one by one: an inner
    product is not a distance, long embeddings are near everything, and graphs and lists miss much.
    """
    if not vector_db.normalize and vector_db.metric is Metric.DOT:
        return "flat"
    return config.index
