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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.errors import CorralError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import Nearest, effective_metric, nearest
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import StaleRead, deleted_after, read_state
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.engine import Lend, VectorSearcher
from corral.providers.vector_io.store.matrix import (
    EmbeddingBatch,
    MemoryCopy,
    mark_deleted,
    read_embeddings,
    read_rows,
    unit_rows,
    usable_places,
)

MIN_GROWTH = 1000
"""Rows that the copy may always contain; comparing them takes 0.05 ms."""
MAX_DEAD = 1 / 3
"""Share of the base's rows that may be deleted before it is rebuilt."""
SPARE = 16
"""Embeddings requested beyond k, because a few may tie with the last one."""
TIE = 1e-5
"""Maximum difference between an engine's distances of equal embeddings; relative above 1."""
MIN_SHARE = 0.1
"""Below this share of usable rows, all usable rows are compared: an approximate search would find
too few."""
DEEPER = 2
"""If some rows are unusable, this many times more rows are requested than would suffice if the
usable rows were evenly distributed."""

ChunkRow = tuple[str, str, str]
"""A chunk's id, text, and metadata as JSON."""

Search = Callable[[int, float], tuple[NDArray[np.int64], NDArray[np.float64]]]
"""Called with a number of embeddings to request, and the share of the rows that may be in the
answer. Returns their positions, -1 for one that is no longer in the file, and their distances,
nearest first."""

logger = logging.getLogger(__name__)


class Abandoned(Exception):
    """The vector DB was closed or emptied during the build of its index."""


class IndexFailed(Exception):
    """The index cannot be searched: it is damaged or closed."""


class CoveredRows(ABC):
    """An approximate index; its positions 0 to n - 1 correspond to rows of the chunk file.

    During a search only its record of deletions changes.

    Args:
        rows: Row numbers by position, ascending, int64.
        squared_norms: Squared lengths of the embeddings by position, float64.
        alive: False for a deleted row, by position.
        deletion: The last deletion that `alive` reflects.
    """

    def __init__(
        self,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
    ) -> None:
        self.rows = rows
        self.squared_norms = squared_norms
        self._alive = alive
        self._deletion = deletion
        self._dead = len(alive) - int(alive.sum())
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last_row(self) -> int:
        """The last row of the file that is covered."""
        return int(self.rows[-1]) if len(self.rows) else 0

    @property
    def dead(self) -> int:
        """The number of rows that are known to be deleted."""
        return self._dead

    @property
    def is_worn(self) -> bool:
        """Return True if so many rows are deleted that the index must be built from scratch."""
        return self.dead > MAX_DEAD * len(self)

    @abstractmethod
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        """Return the positions of the approximately k nearest embeddings, and of some more.

        Args:
            connection: In a read transaction.
            query: Shape (dimension,).
            k: At least 1.
            usable: Mask of the positions that may be returned, shape (n,); None for all.

        Raises:
            IndexFailed: The index is damaged or closed.
        """

    def nearest_places(
        self, k: int, usable: NDArray[np.bool_] | None, search: Search
    ) -> NDArray[np.int64]:
        """Return the answer of `places` from an engine that searches without a filter.

        If it returns too few usable rows, the answer is all usable rows.

        Args:
            k, usable: As for `places`.
            search: Searches the engine.
        """
        mask = np.ones(len(self), dtype=np.bool_) if usable is None else usable
        passing = int(mask.sum())
        limit = min(passing, k + SPARE)
        share = passing / max(len(self), 1)
        while limit < passing and share >= MIN_SHARE:
            depth = limit if usable is None else min(len(self), int(DEEPER * limit / share))
            places, distances = search(depth, share)
            there = (places >= 0) & mask[places]
            places, distances = places[there], distances[there]
            if len(places) < limit:
                break
            if not _ties(distances[:limit], k):
                nearest_rows: NDArray[np.int64] = places[:limit]
                return nearest_rows
            limit *= 4
        everything: NDArray[np.int64] = np.flatnonzero(mask)
        return everything

    def candidates(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> NDArray[np.int64]:
        """Return candidate rows that include the approximately k nearest.

        Args:
            connection: In a read transaction; rows that it sees as deleted are not returned.
            query, k, allowed: As for `VectorSearcher.begin`.

        Raises:
            StaleRead: The base reflects rows or deletions that are newer than the transaction.
            IndexFailed: See `places`.
        """
        with self._lock:
            now = read_state(connection)
            if now.last_row < self.last_row or now.deletion < self._deletion:
                raise StaleRead
            self._follow(connection)
            usable = usable_places(self.rows, self._alive, self._dead == 0, allowed)
        rows: NDArray[np.int64] = self.rows[self.places(connection, query, k, usable)]
        return rows

    def living(self, connection: apsw.Connection) -> tuple[NDArray[np.bool_], int]:
        """Return a mask of the rows that still exist, and the last deletion that it reflects."""
        with self._lock:
            self._follow(connection)
            return self._alive.copy(), self._deletion

    def _follow(self, connection: apsw.Connection) -> None:
        self._deletion, deleted = deleted_after(connection, self._deletion)
        self._dead += mark_deleted(self.rows, self._alive, deleted)


Base = TypeVar("Base", bound=CoveredRows)


class ApproximateSearcher(VectorSearcher, Generic[Base]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        lend: Lends a connection to the chunk file, outside a transaction.
        name: The index's name in messages and threads.
        build_from: Minimum number of chunks for which a base is built; None for never.
        growth: Share of the base's rows at which the copy is merged into a new base.

    Attributes:
        stopping: Set when the searcher is closing.
    """

    def __init__(
        self, vector_db: VectorDB, lend: Lend, name: str, build_from: int | None, growth: float
    ) -> None:
        self._dimension = vector_db.embedding_dimension
        self._metric = effective_metric(vector_db)
        self._lend = lend
        self._name = name
        self._build_from = build_from
        self._growth = growth
        self._parts: tuple[Base | None, MemoryCopy] = (None, self._copy_after(0))
        self._building = threading.Lock()
        self.stopping = threading.Event()

    # --- what an engine adds -----------------------------------------------------------------

    @abstractmethod
    def load(self, connection: apsw.Connection) -> Base | None:
        """Return the stored base, or None if there is no newer, valid one for the chunk file.

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
            if base is not None:
                proposed = self._proposed(base, connection, query, k, allowed)
                more = read_rows(connection, proposed, self._dimension)
                rows, matrix = np.concatenate([rows, proposed]), np.concatenate([matrix, more])
            self._build_if_due(connection)
            return nearest(rows, matrix, query, k, self._metric)

        return search

    def _proposed(
        self,
        base: Base,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> NDArray[np.int64]:
        """Return the base's candidates; drop a base that fails.

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

    def _load(self, connection: apsw.Connection) -> None:
        """Load the stored base if it matches the chunk file and is not older than ours."""
        if self._build_from is None:
            return
        base, ours = self.load(connection), self._parts[0]
        if base is not None and (ours is None or base.last_row >= ours.last_row):
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
            return count >= self._build_from
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
                    self._exchange(base)
                    self.save(base)
        except Abandoned:
            logger.debug("The build of a %s index was abandoned.", self._name)
        except (CorralError, OSError) as error:
            # Queries continue without it, exactly but more slowly, and the next one tries again.
            logger.warning("A %s index could not be built or stored: %s", self._name, error)
        finally:
            self._building.release()

    def _exchange(self, base: Base | None, *, instead_of: Base | None = None) -> None:
        """Put another base into use; with `instead_of`, only if that base is still in use."""
        old = self._parts[0]
        if instead_of is not None and old is not instead_of:
            return
        self._parts = (base, self._copy_after(base.last_row if base else 0))
        if old is not None:
            self.retire(old)

    def _copy_after(self, row: int) -> MemoryCopy:
        return MemoryCopy(self._dimension, self._metric, after_row=row)


def _ties(distances: NDArray[np.float64], k: int) -> bool:
    """Return True if the last distance equals the k-th, so that more rows may tie with it."""
    kth, last = float(distances[k - 1]), float(distances[-1])
    return abs(kth - last) <= TIE * max(abs(kth), 1.0)


def rows_still_there(
    connection: apsw.Connection, rows: NDArray[np.int64], norms: NDArray[np.float64]
) -> NDArray[np.bool_] | None:
    """Return a mask of the rows that still exist; None if rows or norms differ, or it is empty."""
    if not len(rows):
        return None
    query = "SELECT row, squared_norm FROM embeddings WHERE row <= ? ORDER BY row"
    kinds = np.dtype([("row", np.int64), ("norm", np.float64)])
    table = np.fromiter(connection.execute(query, (int(rows[-1]),)), dtype=kinds)
    places = np.searchsorted(rows, table["row"])
    if (rows[places] != table["row"]).any() or (norms[places] != table["norm"]).any():
        return None
    alive = np.zeros(len(rows), dtype=np.bool_)
    alive[places] = True
    return alive
