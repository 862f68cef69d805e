"""Vector search of inline::faiss: an HNSW or IVF index for large vector DBs; none for `flat`.

A new base is built from the old one and the newer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack, override

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.store.approximate import Abandoned, ApproximateSearcher, Options
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import transaction
from corral.providers.vector_io.store.engine import Lend
from corral.providers.vector_io.store.faiss.base import Base
from corral.providers.vector_io.store.faiss.client import (
    ApproximateIndex,
    Ivf,
    empty_hnsw,
    empty_ivf,
    lists_for,
)
from corral.providers.vector_io.store.faiss.config import IndexConfig
from corral.providers.vector_io.store.faiss.records import BaseFile
from corral.providers.vector_io.store.matrix import (
    BATCH_ROWS,
    EmbeddingBatch,
    read_embeddings,
    read_rows,
    unit_rows,
)
from corral.providers.vector_io.store.recall import LowRecall

GROWTH = 0.1
"""Once the rows that are not in the base exceed this share of its rows, a new base is built."""
RETRAINED_AT = 4
"""Growth at which an IVF index is trained again, with twice as many centers."""
STRANGE = 1.2
"""An IVF index is trained again if the mean distance of new rows from their centers exceeds this
multiple of the old rows' mean: the new rows then differ in content."""
FIT_ROWS = 1000
"""Maximum number of old and of new rows that are compared for `STRANGE`."""
SLICE_ROWS = {"hnsw": 1024, "ivf": 16_384}
"""Rows added per slice; a build can be stopped between slices (0.4 s for 384 dimensions)."""
LAST_ROW = 2**63 - 1
"""The largest row number in SQLite."""
SAMPLE_PER_LIST = 64
"""Embeddings per list that k-means is trained on."""


class FaissSearch(ApproximateSearcher[Base]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        file: Where the base is stored.
        lend: Lends a connection to the chunk file, outside a transaction.
        options: As for `ApproximateSearcher`.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        config: IndexConfig,
        file: Path,
        lend: Lend,
        **options: Unpack[Options],
    ) -> None:
        kind = index_kind(vector_db, config)
        build_from = None if kind == "flat" else config.approximate_from
        super().__init__(vector_db, lend, "FAISS", build_from, GROWTH, **options)
        self._unit = self._metric is Metric.COSINE
        self._config = config
        self._kind = kind
        settings = config.model_dump(
            include={"hnsw_m", "hnsw_ef_construction"} if self._kind == "hnsw" else {"ivf_nlist"}
        )
        settings |= {"kind": self._kind, "metric": self._metric, "dimension": self._dimension}
        if self._kind == "ivf":
            settings["codes"] = "int8"
        self._file = BaseFile(file, settings, config)

    # --- building ----------------------------------------------------------------------------

    @override
    def load(self, connection: apsw.Connection) -> Base | LowRecall | None:
        return self._file.load(connection)

    @override
    def save(self, base: Base) -> None:
        self._file.save(base)

    @override
    def save_refusal(self, refusal: LowRecall) -> None:
        self._file.save(refusal)

    @override
    def discard(self) -> None:
        self._file.delete()

    @property
    def lists(self) -> int:
        """The number of lists of an IVF index; 0 while there is none."""
        base = self._parts[0]
        return base.index.engine.nlist if base and self._kind == "ivf" else 0

    @override
    def build(self, connection: apsw.Connection, old: Base | None) -> Base:
        with transaction(connection, "DEFERRED"):
            # The number of lists fits the current rows; the number after the build may differ.
            last = read_state(connection).last_row if self._kind == "ivf" else LAST_ROW
        base = self._start(connection, old)
        for batch in self._above(connection, base.last_row, last):
            if self.stopping.is_set():
                raise Abandoned
            base.extend(batch)
        if not len(base):
            raise Abandoned
        return base

    def _start(self, connection: apsw.Connection, old: Base | None) -> Base:
        """Return the base to extend: a copy of the old one, or an empty one."""
        with transaction(connection, "DEFERRED"):
            now = read_state(connection)
            if old is not None and not self._is_outdated(connection, old, now.count):
                return old.copy()
            if not now.count:
                raise Abandoned
            index: ApproximateIndex
            if self._kind == "hnsw":
                index = empty_hnsw(self._dimension, self._metric, self._config)
                return Base.empty(index, now.deletion, trained=now.count)
            lists = lists_for(now.count, self._config)
            sample = self._sample(connection, lists * SAMPLE_PER_LIST)
        index = empty_ivf(sample, lists, self._metric, self._config)
        return Base.empty(index, now.deletion, trained=now.count)

    def _is_outdated(self, connection: apsw.Connection, base: Base, count: int) -> bool:
        """Return True if the base must be built from scratch to represent all rows well."""
        if base.is_worn or not isinstance(base.index, Ivf):
            return base.is_worn
        if count >= RETRAINED_AT * base.trained:
            return True
        old = base.index.misfits(self._sample(connection, FIT_ROWS, last=base.last_row))
        new = base.index.misfits(self._sample(connection, FIT_ROWS, first=base.last_row + 1))
        if not len(old) or not len(new):
            return False
        return float(new.mean()) > STRANGE * float(old.mean())

    def _sample(
        self, connection: apsw.Connection, size: int, first: int = 0, last: int = LAST_ROW
    ) -> NDArray[np.float32]:
        """Return a sample of embeddings, shape (n, dimension); deterministic for a given file."""
        between = "SELECT row FROM embeddings WHERE row BETWEEN ? AND ? ORDER BY row"
        numbers = connection.execute(between, (first, last))
        rows = np.fromiter((row for (row,) in numbers), dtype=np.int64)
        if len(rows) > size:
            rows = np.sort(np.random.default_rng(0).choice(rows, size, replace=False))
        sample = np.empty((len(rows), self._dimension), dtype=np.float32)
        # converting all of them to double precision takes much memory
        for start in range(0, len(rows), BATCH_ROWS):
            part = read_rows(connection, rows[start : start + BATCH_ROWS], self._dimension)
            norms = (part.astype(np.float64) ** 2).sum(axis=1)
            sample[start : start + len(part)] = unit_rows(part, norms) if self._unit else part
        return sample

    def _above(self, connection: apsw.Connection, row: int, last: int) -> Iterator[EmbeddingBatch]:
        """Yield batches of rows above `after`, up to about the last row, each in a separate
        transaction.

        One long transaction would prevent SQLite from truncating its log during the build.
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


def index_kind(vector_db: VectorDB, config: IndexConfig) -> str:
    """Return the kind of index for a vector DB: flat, hnsw or ivf.

    Inner products of embeddings that are not normalized are always compared one by one: an inner
    product is not a distance, long embeddings are near everything, and graphs and lists miss many
    neighbors.
    """
    if not vector_db.normalize and vector_db.metric is Metric.DOT:
        return "flat"
    return config.index
