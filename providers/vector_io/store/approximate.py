"""A searcher with an approximate index; rows outside the index are searched exactly.

The chunk file is the truth. Memory holds two parts: the *base*, an index over the rows up to some
row, and a *copy* of the embeddings above it, which are all compared, as in `inline::sqlite`.
Small vector DBs have no base yet.

A base never changes during a search. When the copy has grown, a thread builds a new base and
replaces both at once. So queries and writes never wait for a build, and a query finds what was just
written. Deleted rows in the base are skipped; once they are a third of it, the base is rebuilt.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack, override

from corral.api.errors import CorralError
from corral.api.hits import SearcherState
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import EXACT, Nearest, effective_metric, nearest
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import StaleRead
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.covered_rows import CoveredRows, IndexFailed
from corral.providers.vector_io.store.engine import Lend, VectorSearcher
from corral.providers.vector_io.store.matrix import (
    EmbeddingBatch,
    MemoryCopy,
    read_embeddings,
    read_rows,
    unit_rows,
)
from corral.providers.vector_io.store.recall import K, LowRecall, RecallTest

MIN_GROWTH = 1000
"""Rows that the copy may always contain; comparing them takes 0.05 ms."""
EFFORTS = (1, 2, 4)
"""Multiples of the searched share of an index that are tried for a sufficient recall. With 4, a
search of 100,000 takes about half as long as comparing all (RFC 0009)."""
ChunkRow = tuple[str, str, str]
"""A chunk's id, text, and metadata as JSON."""

logger = logging.getLogger(__name__)


class Abandoned(Exception):
    """The vector DB was closed or emptied during the build of its index."""


Base = TypeVar("Base", bound=CoveredRows)


class Options(TypedDict, total=False):
    """Options of an approximate searcher.

    Attributes:
        min_recall: Minimum recall@10 of a base, measured after each build. A base with less is not
            used, and the next one is built when the number of chunks has doubled. By default,
            every base is used, unmeasured.
        most_bytes, beside: As for `MemoryCopy`.
    """

    min_recall: float
    most_bytes: int
    beside: Path


class ApproximateSearcher(VectorSearcher, Generic[Base]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        lend: Lends a connection to the chunk file, outside a transaction.
        name: The index's name in messages and threads.
        build_from: Minimum number of chunks for which a base is built; None for never.
        growth: Share of the base's rows at which the copy is merged into a new base.
        options: See `Options`.

    Attributes:
        stopping: Set when the searcher is closing.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        lend: Lend,
        name: str,
        build_from: int | None,
        growth: float,
        **options: Unpack[Options],
    ) -> None:
        self._dimension = vector_db.embedding_dimension
        self._metric = effective_metric(vector_db)
        self._lend = lend
        self._name = name
        self._build_from = build_from
        self._growth = growth
        self._min_recall = options.get("min_recall")
        self._refusal: LowRecall | None = None
        self._new_copy = partial(
            MemoryCopy,
            self._dimension,
            self._metric,
            most_bytes=options.get("most_bytes", 2**63),
            beside=options.get("beside"),
        )
        self._parts: tuple[Base | None, MemoryCopy] = (None, self._copy_after(0))
        self._building = threading.Lock()
        self.stopping = threading.Event()

    # --- what an engine adds -----------------------------------------------------------------

    @abstractmethod
    def load(self, connection: apsw.Connection) -> Base | LowRecall | None:
        """Return the stored base, or None if there is no newer, valid one for the chunk file.

        Return the refusal if `save_refusal` has stored one since.

        Args:
            connection: In a read transaction.
        """

    @abstractmethod
    def build(self, connection: apsw.Connection, old: Base | None) -> Base:
        """Return a base over all rows of the file, leaving the old one as it is.

        Args:
            connection: Outside a transaction; a long one would prevent SQLite from truncating its
                log.

        Raises:
            Abandoned: The searcher is closing, or all chunks were deleted.
            CorralError, OSError: The base cannot be built.
        """

    def save(self, base: Base) -> None:
        """Store a base that was just exchanged."""

    def save_refusal(self, refusal: LowRecall) -> None:
        """Store the result of a build in place of a base, so that it is not built again."""

    def retire(self, base: Base) -> None:
        """Release the resources of a base that is no longer searched."""

    def forget(self, base: Base) -> None:
        """Delete a stored base that failed, so that it is not loaded again."""

    def may_build(self) -> bool:
        """Return True unless another process keeps the index."""
        return True

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

        def search() -> Nearest:
            rows, matrix = find()
            searcher = EXACT
            if base is not None:
                proposed, are_all = self._proposed(base, connection, query, k, allowed)
                more = read_rows(connection, proposed, self._dimension)
                rows, matrix = np.concatenate([rows, proposed]), np.concatenate([matrix, more])
                searcher = EXACT if are_all else self._state_with(base)
            self._build_if_due(connection)
            return replace(nearest(rows, matrix, query, k, self._metric), searcher=searcher)

        return search

    def _proposed(
        self,
        base: Base,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> tuple[NDArray[np.int64], bool]:
        """Return the base's candidates, as `CoveredRows.candidates`; drop a base that fails.

        Raises:
            StaleRead: See `CoveredRows.candidates`; also raised if the base failed, to search again
                without it.
        """
        try:
            return base.candidates(connection, query, k, allowed)
        except IndexFailed as error:
            if self._parts[0] is base and not self.stopping.is_set():
                logger.warning("A %s index failed; it will be rebuilt.", self._name)
                self.forget(base)
            self._exchange(None, instead_of=base)
            raise StaleRead from error

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

    @override
    def settle(self) -> None:
        with self._building:
            pass

    @override
    def close(self) -> None:
        self.stopping.set()
        with self._building:
            pass

    @property
    def covered(self) -> int:
        """The number of rows in the approximate index, deleted ones included; 0 without one."""
        base = self._parts[0]
        return len(base) if base else 0

    @property
    @override
    def state(self) -> SearcherState:
        base = self._parts[0]
        return SearcherState(note=self._reason()) if base is None else self._state_with(base)

    def _state_with(self, base: Base) -> SearcherState:
        return SearcherState(self._name.lower(), len(base) - base.dead, base.recall)

    def _reason(self) -> str:
        """Return the reason for comparing every embedding."""
        if self._build_from is None:
            return f"{self._name} has no index for these settings"
        if self._building.locked():
            return f"a {self._name} index is being built"
        if self._refusal is not None:
            recall = self._refusal.recall
            return f"recall@10 of the {self._name} index is {recall:.4f}, below {self._min_recall}"
        return f"a {self._name} index is built from {self._build_from:,} chunks on"

    def _load(self, connection: apsw.Connection) -> None:
        """Load the stored base if it matches the chunk file and is not older than ours."""
        if self._build_from is None:
            return
        base, ours = self.load(connection), self._parts[0]
        if isinstance(base, LowRecall):
            self._refuse(base)
        elif base is not None and (ours is None or base.last_row >= ours.last_row):
            self._exchange(base)

    def slices(
        self, connection: apsw.Connection, row: int, size: int
    ) -> Iterator[tuple[EmbeddingBatch, list[ChunkRow]]]:
        """Yield the rows above a row number, until there are no more or the searcher is closing.

        Each slice is read in a separate transaction: one long transaction would prevent SQLite from
        truncating its log during the build.

        Args:
            connection: Outside a transaction.
            row: Only rows above it.
            size: Maximum rows of a slice.

        Yields:
            Embeddings in the form that is compared, and the chunks in the same order.
        """
        query = "SELECT chunk_id, content, metadata FROM chunks WHERE row BETWEEN ? AND ?"
        while not self.stopping.is_set():
            with transaction(connection, "DEFERRED"):
                batches = list(read_embeddings(connection, row, at_most=size))
                if not batches:
                    return
                (batch,) = batches
                between = (int(batch.rows[0]), int(batch.rows[-1]))
                chunks: Any = connection.execute(query + " ORDER BY row", between).fetchall()
            if self._metric is Metric.COSINE:
                unit = unit_rows(batch.matrix, batch.squared_norms)
                batch = replace(batch, matrix=np.asarray(unit, dtype=np.float32))
            yield batch, chunks
            row = between[1]

    def _build_if_due(self, connection: apsw.Connection) -> None:
        """Start a thread that builds a new base if one is due and no build is running."""
        if not self._is_due(connection) or not self._building.acquire(blocking=False):
            return
        if self.stopping.is_set() or not self.may_build():
            self._building.release()
            return
        name = f"{self._name.lower()}-build"
        threading.Thread(target=self._build, name=name, daemon=True).start()

    def _is_due(self, connection: apsw.Connection) -> bool:
        base = self._parts[0]
        if self._build_from is None:
            return False
        count = state(connection, "count")
        if base is None:
            refused = self._refusal.chunks if self._refusal else 0
            return count >= max(self._build_from, 2 * refused)
        uncovered = count - (len(base) - base.dead)
        return base.is_worn or uncovered > max(MIN_GROWTH, self._growth * len(base))

    def _build(self) -> None:
        """Build a new base, put it into use and store it; runs in the builder thread."""
        try:
            with self._lend() as connection:
                with transaction(connection, "DEFERRED"):
                    self._load(connection)  # another process may have built one
                    due, count = self._is_due(connection), state(connection, "count")
                if due and count < (self._build_from or 0):
                    self._exchange(None)
                elif due:
                    base = self.build(connection, self._parts[0])
                    if refusal := self._refusal_of(connection, base):
                        self._refuse(refusal)
                        self.save_refusal(refusal)
                    else:
                        self._exchange(base)
                        self.save(base)
        except Abandoned:
            logger.debug("The build of a %s index was abandoned.", self._name)
        except (CorralError, IndexFailed, OSError) as error:
            # Queries continue without it, exactly but more slowly, and the next one tries again.
            logger.warning("A %s index could not be built or stored: %s", self._name, error)
        finally:
            self._building.release()

    def _refusal_of(self, connection: apsw.Connection, base: Base) -> LowRecall | None:
        """Measure the recall of a new base; return it if it is too low with every effort."""
        if self._min_recall is None:
            return None
        test = RecallTest.of(connection, base.rows, self._dimension, self._metric, self._check_open)
        for effort in EFFORTS:
            base.effort = effort
            base.recall = recall = test.recall(partial(self._nearest_in, connection, base))
            if recall >= self._min_recall:
                return None
        return LowRecall(recall, len(base))

    def _check_open(self) -> None:
        if self.stopping.is_set():
            raise Abandoned

    def _nearest_in(
        self, connection: apsw.Connection, base: Base, query: NDArray[np.float32]
    ) -> Nearest:
        """Return the ten nearest rows of a base."""
        self._check_open()
        with transaction(connection, "DEFERRED"):
            rows, _ = base.candidates(connection, query, K, None)
            return nearest(
                rows, read_rows(connection, rows, self._dimension), query, K, self._metric
            )

    def _refuse(self, refusal: LowRecall) -> None:
        """Search exactly until the number of chunks has doubled."""
        self._refusal = refusal
        logger.info("A %s index is not used: its recall@10 is %.4f.", self._name, refusal.recall)
        self._exchange(None)

    def _exchange(self, base: Base | None, *, instead_of: Base | None = None) -> None:
        """Put another base into use; with `instead_of`, only if that base is still in use."""
        old = self._parts[0]
        if instead_of is not None and old is not instead_of:
            return
        self._parts = (base, self._copy_after(base.last_row if base else 0))
        if old is not None:
            self.retire(old)

    def _copy_after(self, row: int) -> MemoryCopy:
        return self._new_copy(after_row=row)
