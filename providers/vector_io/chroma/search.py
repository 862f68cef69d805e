"""Vector search of inline::chroma: a Chroma collection over the chunk file.

The chunk file is the truth. The collection contains the id, embedding, text and metadata of each
chunk, as Chroma's own tools expect, and can be deleted at any time. One process opens its folder;
others compare every embedding exactly.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import apsw
import chromadb
import numpy as np
from chromadb.api.client import Client
from chromadb.config import Settings
from chromadb.errors import ChromaError
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.store.approximate import Abandoned, ApproximateSearcher, ChunkRow
from corral.providers.vector_io.store.changes import read_state
from corral.providers.vector_io.store.connections import state, transaction
from corral.providers.vector_io.store.covered_rows import CoveredRows, IndexFailed, rows_still_there
from corral.providers.vector_io.store.engine import Lend
from corral.providers.vector_io.store.index_folder import (
    IndexFolder,
    covered_rows,
    save_covered_rows,
)
from corral.providers.vector_io.store.rows import rows_by_chunk

COLLECTION = "chunks"
ROW = "corral_row"
"""The metadata key of a chunk's row in the chunk file."""
GROWTH = 0.1
"""Once newer rows exceed this share of the collection's rows, they are added to it."""
SLICE_ROWS = 128
"""Rows added per slice; searches of the collection wait for one slice, about 0.1 s."""
MAX_INTEGER = 2**63

logger = logging.getLogger(__name__)


class ChromaBase(CoveredRows):
    """A collection with the rows of the chunk file that it covers."""

    def __init__(
        self,
        collection: EmbeddedCollection,
        rows: NDArray[np.int64],
        squared_norms: NDArray[np.float64],
        alive: NDArray[np.bool_],
        deletion: int,
    ) -> None:
        super().__init__(rows, squared_norms, alive, deletion)
        self.collection = collection

    @override
    def places(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        usable: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        def search(depth: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
            chunk_ids, distances = self.collection.nearest(query, depth)
            # a chunk may have been deleted or replaced
            by_id = rows_by_chunk(connection, chunk_ids)
            rows = np.array([by_id.get(chunk_id, 0) for chunk_id in chunk_ids], dtype=np.int64)
            places = np.minimum(np.searchsorted(self.rows, rows), len(self) - 1)
            return np.where(self.rows[places] == rows, places, -1), distances

        return self.nearest_places(k, usable, search)


class EmbeddedCollection:
    """A collection in a folder that this process has open. Safe to use from many threads.

    Raises:
        IndexFailed: It is damaged.
    """

    def __init__(self, place: Path, graph: Mapping[str, Any]) -> None:
        self.place = place
        self._closing = threading.Lock()
        self._running = 0
        self._closed = False
        with _errors():
            settings = Settings(anonymized_telemetry=False)
            client = chromadb.PersistentClient(str(place), settings=settings)
            self._client = cast(Client, client)  # the declared type lacks `close`
            self._collection = client.get_or_create_collection(
                COLLECTION, embedding_function=None, configuration=cast(Any, {"hnsw": graph})
            )

    def count(self) -> int:
        """Return the number of rows."""
        with self._open():
            return self._collection.count()

    def upsert(
        self,
        rows: NDArray[np.int64],
        chunks: Sequence[ChunkRow],
        embeddings: NDArray[np.float32],
    ) -> None:
        """Write rows; each chunk is an id, a text, and metadata as JSON."""
        with self._open():
            self._collection.upsert(
                ids=[chunk_id for chunk_id, _, _ in chunks],
                documents=[text for _, text, _ in chunks],
                metadatas=[
                    {**metadata_of(json.loads(metadata)), ROW: row}
                    for row, (_, _, metadata) in zip(rows.tolist(), chunks, strict=True)
                ],
                embeddings=embeddings,
            )

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Delete rows; unknown ids are ignored."""
        for start in range(0, len(rows), SLICE_ROWS):
            where: Any = {ROW: {"$in": rows[start : start + SLICE_ROWS].tolist()}}
            with self._open():
                self._collection.delete(where=where)

    def nearest(
        self, query: NDArray[np.float32], limit: int
    ) -> tuple[list[str], NDArray[np.float64]]:
        """Return the ids and distances of the approximately nearest chunks, nearest first."""
        with self._open():
            reply: Any = self._collection.query(
                query_embeddings=query, n_results=limit, include=["distances"]
            )
        return reply["ids"][0], np.array(reply["distances"][0], dtype=np.float64)

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keep Chroma open during a call.

        Raises:
            IndexFailed: Chroma failed, or is closed.
        """
        with self._closing:
            if self._closed:
                raise IndexFailed("The collection was closed.")
            self._running += 1
        try:
            with _errors():
                yield
        finally:
            with self._closing:
                self._running -= 1
                self._close_if_idle()

    def close(self) -> None:
        """Reject further calls, and close Chroma after the running ones."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and not self._running:
            self._client.close()


class ChromaSearch(ApproximateSearcher[ChromaBase]):
    """Finds the nearest embeddings of one chunk file. Safe to use from many threads.

    Args:
        folder: Where the collection is.
        lend: Lends a connection to the chunk file, outside a transaction.
    """

    def __init__(self, vector_db: VectorDB, config: ChromaConfig, folder: Path, lend: Lend) -> None:
        metric = Metric.COSINE if vector_db.normalize else vector_db.metric
        # Inner products of embeddings of varying length are not a distance; a graph misses many.
        build_from = None if metric is Metric.DOT else config.approximate_from
        super().__init__(vector_db, lend, "Chroma", build_from, GROWTH)
        self._graph = config.graph(metric)
        settings = {"chromadb": chromadb.__version__, "dimension": self._dimension, **self._graph}
        self._folder = IndexFolder(folder, settings)

    @override
    def may_build(self) -> bool:
        return self._folder.take()

    @override
    def load(self, connection: apsw.Connection) -> ChromaBase | None:
        place = self._folder.current()
        if place is None or self._parts[0] is not None or not self._folder.take():
            return None
        try:
            rows, norms = covered_rows(place)
            alive = rows_still_there(connection, rows, norms)
            if alive is None:
                raise IndexFailed("The collection is not of this chunk file.")
            collection = EmbeddedCollection(place, self._graph)
            if collection.count() != len(rows):
                collection.close()
                raise IndexFailed("The collection lacks rows.")
        except (IndexFailed, OSError, ValueError):
            logger.warning("%s cannot be read; it will be rebuilt", self._folder.path.name)
            self._folder.forget()
            return None
        return ChromaBase(collection, rows, norms, alive, read_state(connection).deletion)

    @override
    def build(self, connection: apsw.Connection, old: ChromaBase | None) -> ChromaBase:
        try:
            return self._extended(connection, old) if old else self._created(connection)
        except IndexFailed as error:
            if old is not None:
                self._exchange(None, instead_of=old)
            raise ProviderError("Chroma failed.") from error

    def _created(self, connection: apsw.Connection) -> ChromaBase:
        """Return a new collection of all rows."""
        if not state(connection, "count"):
            raise Abandoned
        place = self._folder.new_place()
        place.mkdir(parents=True)
        collection = EmbeddedCollection(place, self._graph)
        try:
            with transaction(connection, "DEFERRED"):
                deletion = read_state(connection).deletion
            none = np.empty(0, dtype=np.int64)
            return self._grown(connection, collection, none, none.astype(np.float64), deletion)
        except BaseException:
            collection.close()
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _extended(self, connection: apsw.Connection, old: ChromaBase) -> ChromaBase:
        """Return the old collection with the newer rows added and the deleted rows removed."""
        self._folder.forget()  # until it is complete again
        with transaction(connection, "DEFERRED"):
            alive, deletion = old.living(connection)
        old.collection.delete(old.rows[~alive])
        rows, norms = old.rows[alive], old.squared_norms[alive]
        return self._grown(connection, old.collection, rows, norms, deletion)

    def _grown(
        self,
        connection: apsw.Connection,
        collection: EmbeddedCollection,
        rows: NDArray[np.int64],
        norms: NDArray[np.float64],
        deletion: int,
    ) -> ChromaBase:
        """Add the rows above the last one to the collection, and record the covered rows."""
        last = int(rows[-1]) if len(rows) else 0
        # If the searcher is closing, the collection covers the rows up to the last slice.
        for batch, chunks in self.slices(connection, last, SLICE_ROWS):
            collection.upsert(batch.rows, chunks, batch.matrix)
            rows = np.concatenate([rows, batch.rows])
            norms = np.concatenate([norms, batch.squared_norms])
        if not len(rows):
            raise Abandoned
        save_covered_rows(collection.place, rows, norms)
        self._folder.switch(collection.place)
        return ChromaBase(collection, rows, norms, np.ones(len(rows), dtype=np.bool_), deletion)

    @override
    def retire(self, base: ChromaBase) -> None:
        now = self._parts[0]
        if now is None or now.collection is not base.collection:
            base.collection.close()
            self._folder.sweep()

    @override
    def forget(self, base: ChromaBase) -> None:
        self._folder.forget()

    @override
    def close(self) -> None:
        super().close()
        base = self._parts[0]
        if base is not None:
            base.collection.close()
        self._folder.release()

    @override
    def discard(self) -> None:
        self._folder.delete()


def metadata_of(metadata: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Return a chunk's metadata in the types that Chroma accepts: others as JSON, nulls dropped."""
    return {
        key: value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
        if value is not None and key and not key.startswith(("chroma:", "#"))
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return -MAX_INTEGER <= value < MAX_INTEGER
    return isinstance(value, str | float | bool)


@contextmanager
def _errors() -> Iterator[None]:
    """Translate Chroma's errors, only here. Their texts may quote data, so they are dropped."""
    try:
        yield
    except (ChromaError, ValueError, RuntimeError) as error:
        raise IndexFailed(f"Chroma failed ({type(error).__name__}).") from error
