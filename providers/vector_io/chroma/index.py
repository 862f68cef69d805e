"""The index of one vector DB in one collection of Chroma, with its mirror."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError
from corral.api.filters import Filter
from corral.api.hits import Candidate
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import (
    SINGLE_PRECISION_SLACK,
    effective_metric,
    exact_scores,
)
from corral.providers.vector_io._shared.threads import Threads
from corral.providers.vector_io._sqlite.rows import documents_after
from corral.providers.vector_io.chroma import engine, rows
from corral.providers.vector_io.chroma.journal import Writer, is_marker
from corral.providers.vector_io.chroma.mirror import Mirror

MARGIN = 16
"""Rows asked for beyond k: markers, and ties with the last."""
FEW = 100
"""Chunks that pass a filter and are compared one by one: in the graph they would be found only by
walking through all others, 20 ms where this takes 2."""


class ChromaIndex(EmbeddingIndex):
    """Chunks in one collection; every public method is the contract's.

    The work runs in threads. Writes of one index wait for each other; another process's do not.

    Args:
        vector_db: The registration.
        collection: Its collection, which exists.
        mirror: Its mirror, prepared.
        threads: Where the work runs.
        drop: Deletes the collection.
        release: Gives back what `close` has to.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        collection: engine.Collection,
        mirror: Mirror,
        threads: Threads,
        *,
        drop: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._mirror = mirror
        self._threads = threads
        self._drop_collection = drop
        self._release = release
        self._closed = False
        self._writer = Writer(collection)
        self._write_lock = threading.Lock()
        self._metric = effective_metric(vector_db)

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await self._threads.run(self._write, chunks, embeddings, replace_documents)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._threads.run(self._search_vectors, embedding, k, filters)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._threads.run(self._search_words, query_string, k, filters)

    async def _query_fuzzy(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._threads.run(self._search_words, query_string, k, filters, fuzzy=True)

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._threads.run(
            rows.read_chunks, self._collection, chunk_ids, include_embeddings=include_embeddings
        )

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await self._threads.run(self._delete_stored, chunk_ids)

    async def _count(self) -> int:
        return await self._threads.run(self._count_chunks)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._threads.run(self._ids_after, after, limit)

    async def _documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        return await self._threads.run(self._documents_after, after, limit)

    async def _document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await self._threads.run(self._ids_of_document, document_id)

    async def _drop(self) -> None:
        await self._threads.run(self._drop_everything)
        await self._close()

    async def _close(self) -> None:
        """Fold this process's markers, and release the mirror's connections and Chroma."""
        if not self._closed:
            self._closed = True
            with suppress(CorralError):  # where Chroma is away, somebody else folds them
                await self._threads.run(self._fold)
            await asyncio.to_thread(self._mirror.close)
            await asyncio.to_thread(self._release)

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: Collection[str],
    ) -> None:
        with self._write_lock:
            stale: set[str] = set()
            if replace_documents:
                self._mirror.follow()
                with self._mirror.reading() as connection:
                    stale = self._mirror.of_documents(connection, replace_documents)
            new = [chunk.chunk_id for chunk in chunks]
            rows.replace(
                self._collection,
                self._writer,
                rows.records(chunks, embeddings) if chunks else None,
                sorted(stale.difference(new)),
            )
            self._mirror.follow()

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._write_lock:
            rows.delete(self._collection, chunk_ids)
            self._mirror.follow()

    def _fold(self) -> None:
        with self._write_lock:
            self._writer.close()

    def _drop_everything(self) -> None:
        with self._write_lock:
            self._drop_collection()
            self._mirror.drop()
            self._writer = Writer(self._collection)  # which has nothing to fold

    # --- reading -----------------------------------------------------------------------------

    def _count_chunks(self) -> int:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return self._mirror.count(connection)

    def _ids_after(self, after: str, limit: int) -> list[str]:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return self._mirror.ids_after(connection, after, limit)

    def _documents_after(self, after: str, limit: int) -> list[DocumentCount]:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return documents_after(connection, after, limit)

    def _ids_of_document(self, document_id: str) -> list[str]:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return list(self._mirror.of_documents(connection, [document_id]))

    def _search_words(
        self, text: str, k: int, filter_: Filter | None, *, fuzzy: bool = False
    ) -> list[Candidate]:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return self._mirror.search(connection, text, k, filter_, fuzzy=fuzzy)

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        return engine.repeated(partial(self._search_once, embedding, k, filter_))

    def _search_once(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        if filter_ is None:
            return self._nearest(embedding, k, None)
        self._mirror.follow()
        with self._mirror.reading() as connection:
            passing = self._mirror.passing(connection, filter_)
        return self._nearest(embedding, k, passing) if passing else []

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: Sequence[str] | None
    ) -> list[Candidate]:
        """Search Chroma's graph, or all chunks where it cannot be relied on.

        That is where more rows tie with the last than the margin holds: a graph with many
        identical embeddings loses some of them, however many rows it is asked for.
        """
        if passing is not None and len(passing) <= max(k, FEW):
            return self._scan(embedding, passing)[:k]
        found = self._collection.query(embedding, k + MARGIN, passing)
        scored = self._scored(embedding, found)
        too_many_ties = len(found.ids) >= k + MARGIN and not _ends_apart(scored, k)
        if too_many_ties or (len(scored) < k and len(scored) < self._most(passing)):
            scored = self._scan(embedding, passing)
        return scored[:k]

    def _most(self, passing: Sequence[str] | None) -> int:
        """Return how many chunks a search could find."""
        return self._count_chunks() if passing is None else len(passing)

    def _scan(
        self, embedding: NDArray[np.float32], passing: Sequence[str] | None
    ) -> list[Candidate]:
        """Score each of these chunks, or all: also those that the graph can no longer reach."""
        ids = self._collection.get().ids if passing is None else passing
        scored: list[Candidate] = []
        for found in rows.read(self._collection, ids, ("embeddings",)):
            scored += self._scored(embedding, found)
        return sorted(scored, key=_order)

    def _scored(self, embedding: NDArray[np.float32], found: engine.Rows) -> list[Candidate]:
        """Give rows their exact scores, markers left out, in the order of an answer."""
        if found.embeddings is None or not found.ids:
            return []
        scores = exact_scores(found.embeddings, embedding, self._metric).tolist()
        pairs = zip(found.ids, scores, strict=True)
        return sorted((Candidate(i, s) for i, s in pairs if not is_marker(i)), key=_order)


def _order(candidate: Candidate) -> tuple[float, str]:
    return -candidate.raw_score, candidate.chunk_id


def _ends_apart(scored: Sequence[Candidate], k: int) -> bool:
    """Say whether the last candidate is worse than the k-th, as Chroma's float32 sees it."""
    if len(scored) <= k:
        return False
    last, kept = scored[-1].raw_score, scored[k - 1].raw_score
    return last < kept - SINGLE_PRECISION_SLACK * max(1.0, abs(kept))
