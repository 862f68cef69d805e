"""The interface to Qdrant Edge: searching a shard, and building one from a chunk file.

The engine holds the interpreter's lock while it builds a graph: seconds for 20,000 points, minutes
for 100,000. So this module, run as a program, builds the shard in another process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import numpy as np
import qdrant_edge as qdrant
from numpy.typing import NDArray

from corral.api.scoring import Metric
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import connect, transaction
from corral.providers.vector_io.store.covered_rows import IndexFailed
from corral.providers.vector_io.store.index_folder import save_covered_rows
from corral.providers.vector_io.store.matrix import EmbeddingBatch, read_embeddings, unit_rows

VECTOR = "dense"
SLICE_ROWS = 1024
"""Rows per read transaction and per write operation."""
UNLIMITED = 2**40
"""A number above any number of points or bytes."""
M = 16
EF_CONSTRUCT = 100
"""The graph's links and construction candidates: Qdrant's defaults."""
NICE = 10
"""Added to the nice value of the building process."""
BUSY_TIMEOUT_SECONDS = 60.0


@contextmanager
def errors() -> Iterator[None]:
    """Translate the engine's errors, only here.

    Their texts may quote data, so they are dropped. The engine raises plain Exceptions, and panics,
    which are BaseExceptions; errors of other types do not come from the engine and propagate.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise IndexFailed("Qdrant Edge failed.") from error


class Shard:
    """A shard open for searching. Safe to use from many threads.

    Args:
        path: The shard's folder.

    Raises:
        IndexFailed: The shard is damaged, or open in another process.
    """

    def __init__(self, path: Path) -> None:
        with errors():
            self._shard = qdrant.EdgeShard.load(str(path))
        self._lock = threading.Lock()
        self._is_open = True

    def nearest(
        self,
        query: NDArray[np.float32],
        limit: int,
        rows: NDArray[np.int64] | None,
        hnsw_ef: int | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the approximately nearest points and their scores, best first.

        Args:
            query: Shape (dimension,).
            limit: Number of points.
            rows: The points to search; None for all.
            hnsw_ef: Candidates of the graph walk; None compares every point.

        Raises:
            IndexFailed: The engine failed, or is closed.
        """
        ids = None if rows is None else qdrant.HasIdCondition(set(rows.tolist()))
        request = qdrant.QueryRequest(
            limit=limit,
            query=qdrant.Query.Nearest(query.tolist(), using=VECTOR),
            filter=None if ids is None else qdrant.Filter(must=[ids]),
            params=qdrant.SearchParams(hnsw_ef=hnsw_ef, exact=hnsw_ef is None),
            with_payload=False,
        )
        with self._lock, errors():
            if not self._is_open:
                raise IndexFailed("The shard was closed.")
            points = self._shard.query(request)
        rows_found = np.array([point.id for point in points], dtype=np.int64)
        return rows_found, np.array([point.score for point in points], dtype=np.float64)

    def close(self) -> None:
        """Close the shard after the running searches."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                with suppress(IndexFailed), errors():
                    self._shard.close()


def make(file: Path, place: Path, dimension: int, metric: Metric, threads: int) -> None:
    """Build a shard, with a graph, of all chunks in a chunk file, which may be empty by now.

    Args:
        file: The chunk file.
        place: The shard's folder; must not exist.
        dimension: Numbers in an embedding.
        metric: From `effective_metric`.
        threads: Number of threads that build the graph.

    Raises:
        IndexFailed: The engine failed.
    """
    place.mkdir(parents=True)
    rows, squared_norms = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
    connection = connect(file, BUSY_TIMEOUT_SECONDS)
    with errors():
        shard = qdrant.EdgeShard.create(str(place), _config(dimension, metric, threads))
        for batch in _batches(connection):
            matrix = batch.matrix
            if metric is Metric.COSINE:
                matrix = unit_rows(matrix, batch.squared_norms)
            points = [
                _point(row, embedding, chunk)
                for row, embedding, chunk in zip(
                    batch.rows.tolist(), matrix.tolist(), _chunks(connection, batch), strict=True
                )
            ]
            shard.update(qdrant.UpdateOperation.upsert_points(points))
            rows.append(batch.rows)
            squared_norms.append(batch.squared_norms)
        shard.optimize()
        shard.flush()
        shard.close()
    save_covered_rows(place, np.concatenate(rows), np.concatenate(squared_norms))


def _batches(connection: apsw.Connection) -> Iterator[EmbeddingBatch]:
    """Yield the existing rows in batches, each within an open transaction.

    One long transaction would prevent SQLite from truncating its log during the build.
    """
    row, last = 0, read_state(connection).last_row
    while row < last:
        with transaction(connection, "DEFERRED"):
            for batch in read_embeddings(connection, row, at_most=min(SLICE_ROWS, last - row)):
                yield batch
                row = int(batch.rows[-1])
                break
            else:
                return


def _chunks(connection: apsw.Connection, batch: EmbeddingBatch) -> Iterator[Sequence[object]]:
    query = "SELECT chunk_id, content, metadata FROM chunks WHERE row BETWEEN ? AND ? ORDER BY row"
    yield from connection.execute(query, (int(batch.rows[0]), int(batch.rows[-1])))


def _point(row: int, embedding: list[float], chunk: Sequence[object]) -> qdrant.Point:
    chunk_id, content, metadata = map(str, chunk)
    payload = {"chunk_id": chunk_id, "content": content, "metadata": json.loads(metadata)}
    try:
        return qdrant.Point(row, {VECTOR: embedding}, payload)
    except (TypeError, ValueError, OverflowError):  # a value that the engine cannot hold
        return qdrant.Point(row, {VECTOR: embedding}, {**payload, "metadata": metadata})


def _config(dimension: int, metric: Metric, threads: int) -> qdrant.EdgeConfig:
    """Return the configuration of a shard with one segment and all points in the graph."""
    distance = qdrant.Distance.Euclid if metric is Metric.L2 else qdrant.Distance.Dot
    return qdrant.EdgeConfig(
        vectors={VECTOR: qdrant.EdgeVectorParams(size=dimension, distance=distance)},
        hnsw_config=qdrant.HnswIndexConfig(
            m=M,
            ef_construct=EF_CONSTRUCT,
            full_scan_threshold=10,
            max_indexing_threads=threads,
        ),
        optimizers=qdrant.EdgeOptimizersConfig(
            default_segment_number=1, max_segment_size=UNLIMITED, indexing_threshold=1
        ),
        max_search_threads=1,  # a search holds the lock throughout, so more threads gain nothing
    )


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(NICE)
    make(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        Metric(sys.argv[4]),
        max(1, (os.cpu_count() or 1) // 2),
    )
