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
from corral.providers.ranking.candidates import (
    Proposals,
    best_candidates,
    best_of,
    score_vectors,
)
from corral.providers.ranking.exact import effective_metric
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
        propose = partial(self._threads.run, self._propose, embedding, k, filters)
        return await best_candidates(k, propose, margin=MARGIN)

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

    def _propose(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None, limit: int
    ) -> Proposals:
        return engine.repeated(partial(self._propose_once, embedding, k, filter_, limit))

    def _propose_once(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None, limit: int
    ) -> Proposals:
        """Ask Chroma's graph, or compare all chunks where the graph cannot be relied on.

        It loses some of many identical embeddings, however many rows it is asked for: where more
        tie with the last than the margin holds, it is not asked a second time.
        """
        passing = None if filter_ is None else self._passing(filter_)
        few = passing is not None and len(passing) <= max(k, FEW)
        if few or limit > k + MARGIN:
            return self._compare_all(embedding, k, passing)
        found = self._collection.query(embedding, limit, passing)
        proposals = self._scored(embedding, found, limit)
        if len(proposals.candidates) < k and len(proposals.candidates) < self._most(passing):
            return self._compare_all(embedding, k, passing)
        return proposals

    def _passing(self, filter_: Filter) -> Sequence[str]:
        self._mirror.follow()
        with self._mirror.reading() as connection:
            return self._mirror.passing(connection, filter_)

    def _most(self, passing: Sequence[str] | None) -> int:
        """Return how many chunks a search could find."""
        return self._count_chunks() if passing is None else len(passing)

    def _compare_all(
        self, embedding: NDArray[np.float32], k: int, passing: Sequence[str] | None
    ) -> Proposals:
        """Score each of these chunks, or all: also those that the graph can no longer reach."""
        ids = self._collection.get().ids if passing is None else passing
        best: list[Candidate] = []
        for found in rows.read(self._collection, ids, ("embeddings",)):
            best = best_of([*best, *self._scored(embedding, found, 0).candidates], k)
        return Proposals(best, None)

    def _scored(self, embedding: NDArray[np.float32], found: engine.Rows, limit: int) -> Proposals:
        """Give rows their exact scores, markers left out."""
        if found.embeddings is None:
            return Proposals([], None)
        ids = [None if is_marker(row_id) else row_id for row_id in found.ids]
        return score_vectors(ids, found.embeddings, embedding, self._metric, limit=limit)
