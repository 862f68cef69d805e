"""One collection of an embedded Chroma, and what becomes of Chroma's errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import chromadb
import numpy as np
from chromadb.errors import ChromaError, NotFoundError
from numpy.typing import NDArray

from corral.api.errors import NotFound, ProviderError
from corral.providers.vector_io.chroma.client import HALF_DROPPED, Collection, UnknownIds
from corral.providers.vector_io.chroma.embedded.graph import Graph
from corral.providers.vector_io.chroma.records import Rows, Upsert, matrix_of


class OpenFolder(Protocol):
    """What a collection needs of its Chroma; `EmbeddedChroma` says what each means."""

    name: str
    writes: int

    def at_work(self) -> AbstractContextManager[None]:
        """Keep the folder open for the time of a call."""

    def writing(self) -> AbstractContextManager[None]:
        """Be at work, and count that as a write."""


class GraphFailed(ProviderError):
    """Chroma cannot use a collection's graph."""


class EmbeddedCollection(Collection):
    """One collection of a folder."""

    def __init__(
        self,
        collection: chromadb.Collection,
        chroma: OpenFolder,
        graph: Graph,
        batch_rows: int,
        lost: int,
    ) -> None:
        self.uuid = str(collection.id)
        self._collection = collection
        self._chroma = chroma
        self._graph = graph
        self._batch_rows = batch_rows
        self._lost = lost

    def replay(self) -> None:
        """Have Chroma apply what its log has beyond the graph; all of it to one that has no files.

        Done at the first call anyway, where nobody would see that the graph is persisted.
        """
        with self._asking(), self._graph.changing():
            self._collection.count()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Be at work, unless embeddings are lost: searches would pass over their chunks."""
        if self._lost:
            raise ProviderError(
                f"{self._chroma.name}: the embeddings of {self._lost} chunks of this vector DB "
                f"are lost: Chroma was killed while it wrote them.",
                hint="Restore the folder from a backup, or delete the vector DB and ingest again.",
            )
        try:
            with self._chroma.at_work():
                yield
        except GraphFailed:
            self._graph.distrust()
            raise

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._asking(), self._chroma.writing(), self._graph.changing():
            yield

    @property
    def writes(self) -> int:
        """How often this process has written to the folder, which no other one can."""
        return self._chroma.writes

    def count(self) -> int:
        """Return the number of rows."""
        with self._asking():
            return self._collection.count()

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one step."""
        with self._changing():
            self._collection.upsert(
                ids=list(rows.ids),
                embeddings=rows.embeddings,
                metadatas=list(rows.metadatas),
            )

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        with self._changing():
            self._collection.delete(ids=list(ids))

    def get(
        self,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
    ) -> Rows:
        """Return the rows of these ids or that pass Chroma's own filter, in any order."""
        wanted: Any = list(include)
        with self._asking():
            found = self._collection.get(
                ids=None if ids is None else list(ids),
                where=None if where is None else dict(where),
                include=wanted,
            )
        return Rows(
            found["ids"],
            [dict(metadata or {}) for metadata in found["metadatas"] or ()],
            matrix_of(found["embeddings"], len(found["ids"])) if "embeddings" in include else None,
        )

    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the ids and distances of about the k nearest rows, nearest first, k at most."""
        with self._asking():
            found = self._collection.query(
                query_embeddings=embedding,
                n_results=k,
                ids=None if ids is None else list(ids),
                include=["distances"],
            )
        return Rows(found["ids"][0], distances=(found["distances"] or [[]])[0])

    @property
    def batch_rows(self) -> int:
        """Most rows of one call: what SQLite takes as parameters of one statement."""
        return self._batch_rows

    @property
    def batch_bytes(self) -> int:
        """Most bytes of one call; nothing bounds them in one process, but memory."""
        return 256 * 2**20


@contextmanager
def driver_errors(provider_id: str) -> Iterator[None]:
    """Translate Chroma's errors, here and nowhere else. Their texts may quote data: dropped."""
    try:
        yield
    except ChromaError as error:
        if isinstance(error, NotFoundError) or HALF_DROPPED in str(error):
            raise NotFound(f"{provider_id}: the collection is gone from Chroma.") from None
        if "finding id" in str(error):
            raise UnknownIds(f"{provider_id}: a chunk is gone.") from None
        if "hnsw" in str(error):
            raise GraphFailed(
                f"{provider_id}: Chroma cannot use its graph of embeddings.",
                hint="Restart Corral: it restores the graph from Chroma's log.",
            ) from error
        raise ProviderError(f"{provider_id}: Chroma failed ({type(error).__name__}).") from error
