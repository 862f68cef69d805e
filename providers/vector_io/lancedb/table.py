"""The interface to LanceDB: search a version of a table, and write the next version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfSq
from numpy.typing import NDArray

from corral.providers.vector_io.store.approximate import ChunkRow
from corral.providers.vector_io.store.covered_rows import IndexFailed
from corral.providers.vector_io.store.matrix import EmbeddingBatch

TABLE = "chunks"
TAG = "corral"
"""The tag of the version in use. LanceDB moves a tag atomically, and never deletes a tagged
version."""
OLD_VERSIONS = timedelta(minutes=10)
"""Age at which untagged versions are deleted. Other processes may still search them; a process that
takes longer to follow compares every embedding until it opens the new version."""


class Snapshot:
    """The tagged version of a table, unaffected by later versions. Safe to use from many threads.

    Args:
        place: The folder of the table.

    Attributes:
        place: As given.
        version: Number of the version.

    Raises:
        IndexFailed: The table is absent or damaged.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        with errors():
            self._table: Any = lancedb.connect(str(place)).open_table(TABLE)
            self._table.checkout(TAG)
            self.version: int = self._table.version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return (self.place, self.version) == (other.place, other.version)

    def __hash__(self) -> int:
        return hash((self.place, self.version))

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers of the table's rows, ascending, and their squared norms.

        Raises:
            IndexFailed: The table cannot be read.
        """
        with errors():
            columns = ["row", "squared_norm"]
            limit = self._table.count_rows()
            reply = self._table.search().select(columns).limit(limit).to_arrow()
        rows: NDArray[np.int64] = reply["row"].to_numpy()
        norms: NDArray[np.float64] = reply["squared_norm"].to_numpy()
        order = np.argsort(rows)
        return rows[order], norms[order]

    def nearest(
        self, query: NDArray[np.float32], limit: int, nprobes: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the approximately nearest rows and their squared distances, nearest first.

        Args:
            query: Shape (dimension,).
            limit: Maximum number of rows.
            nprobes: Number of partitions to read.

        Raises:
            IndexFailed: The table cannot be read.
        """
        with errors():
            search = self._table.search(query, vector_column_name="embedding").distance_type("l2")
            reply = search.nprobes(nprobes).select(["row", "_distance"]).limit(limit).to_arrow()
        distances = reply["_distance"].to_numpy().astype(np.float64)
        return reply["row"].to_numpy(), distances


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows to write: embeddings in the form that is compared, and chunks in the same order."""

    batch: EmbeddingBatch
    chunks: Sequence[ChunkRow]

    def record_batch(self) -> Any:
        """Return the rows in Arrow's format."""
        chunk_ids, texts, metadata = zip(*self.chunks, strict=True)
        matrix = np.ascontiguousarray(self.batch.matrix, dtype=np.float32)
        return pa.table(
            {
                "row": self.batch.rows,
                "squared_norm": self.batch.squared_norms,
                "chunk_id": pa.array(chunk_ids, pa.large_string()),
                "content": pa.array(texts, pa.large_string()),
                "metadata": pa.array(metadata, pa.large_string()),
                "embedding": pa.FixedSizeListArray.from_arrays(matrix.ravel(), matrix.shape[1]),
            }
        )


def write(place: Path, old: Snapshot | None, slices: Iterable[Slice], partitions: int) -> None:
    """Add rows to a table, index all of them, and tag that version.

    Rows that a killed process has added after the tagged version are not in the new version.

    Args:
        place: The folder of the table.
        old: The version to extend, which is tagged; None to create the table.
        slices: The rows to add; at least one slice if `old` is None.
        partitions: Number of partitions of the index.

    Raises:
        IndexFailed: LanceDB failed.
    """
    with errors():
        database = lancedb.connect(str(place))
        table: Any = None
        if old is not None:
            table = database.open_table(TABLE)
            table.checkout(old.version)
            table.restore()
    for each in slices:
        with errors():
            if table is None:
                table = database.create_table(TABLE, each.record_batch())
            else:
                table.add(each.record_batch())
    with errors():
        index = IvfSq(distance_type="l2", num_partitions=partitions)
        table.create_index("embedding", config=index, replace=True)
        if old is None:
            table.tags.create(TAG, table.version)
        else:
            table.tags.update(TAG, table.version)
            # Merge the small files of many builds. This creates versions as well.
            table.optimize(cleanup_older_than=OLD_VERSIONS)
            table.tags.update(TAG, table.version)


@contextmanager
def errors() -> Iterator[None]:
    """Translate LanceDB's errors, only here. Their texts may quote data, so they are dropped.

    Panics of the engine are caught as well; they derive directly from BaseException.
    """
    try:
        yield
    except (pa.ArrowException, OSError, RuntimeError, ValueError) as error:
        raise IndexFailed(f"LanceDB failed ({type(error).__name__}).") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise IndexFailed("LanceDB failed.") from error
