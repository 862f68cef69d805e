"""The engine of one vector DB in a Chroma collection, with its mirror."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.engine import Engine
from corral.api.errors import CorralError
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.chroma.client import Collection, repeated
from corral.providers.vector_io.chroma.keyword import Mirror
from corral.providers.vector_io.chroma.keyword.journal import Writer
from corral.providers.vector_io.chroma.records import (
    Rows,
    chunks_of,
    is_marker,
    records,
)
from corral.providers.vector_io.kit.candidates import (
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
    nearest_of,
)
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.store.connections import state
from corral.providers.vector_io.store.rows import (
    chunk_ids_after,
    chunk_ids_of_documents,
    documents_after,
)

MARGIN = 16
"""Rows requested beyond k, to allow for markers and ties with the last row."""
FEW = 100
"""If at most this many chunks pass a filter, they are compared one by one in about 2 ms. The graph
would have to walk through all other chunks, about 20 ms."""


class ChromaEngine(Engine):
    """Stores the chunks of one vector DB in one collection; see `Engine` for the public methods.

    The work runs in threads. Writes of one index run one at a time; other processes may write too.

    Args:
        collection: An existing collection.
        mirror: The collection's mirror, prepared.
        drop: Deletes the collection.
        release: Called on close.
    """

    has_term_statistics = True

    def __init__(
        self,
        vector_db: VectorDB,
        collection: Collection,
        mirror: Mirror,
        threads: ThreadPool,
        *,
        drop: Callable[[], None],
        release: Callable[[], None],
        few: int = FEW,
    ) -> None:
        self._few = few
        super().__init__(vector_db)
        self._collection = collection
        self._mirror = mirror
        self._threads = threads
        self._drop_collection = drop
        self._release = release
        self._closed = False
        self._writer = Writer(collection)
        self._write_lock = threading.Lock()

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await self._threads.run(self._write, chunks, embeddings, replace_documents)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        async def propose(limit: int) -> Proposals:
            once = partial(self._propose, embedding, k, filters, limit)
            return await self._threads.run(repeated, once)

        return await best_candidates(k, propose, margin=MARGIN)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        read, search = self._mirror.read, self._mirror.search
        return await self._threads.run(read, search, query_string, k, filters, by)

    @override
    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        read, search = self._mirror.read, self._mirror.search
        return await self._threads.run(read, search, query_string, k, filters, by, fuzzy=True)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        mirror = self._mirror
        return await self._threads.run(mirror.read, mirror.statistics, query_string, fuzzy=fuzzy)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._threads.run(self._read_chunks, chunk_ids, include_embeddings)

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        await self._threads.run(self._delete_stored, chunk_ids)

    @override
    async def count(self) -> int:
        return await self._threads.run(self._mirror.read, state, "count")

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._threads.run(self._mirror.read, chunk_ids_after, after, limit)

    @override
    async def documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        return await self._threads.run(self._mirror.read, documents_after, after, limit)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await self._threads.run(self._mirror.read, chunk_ids_of_documents, [document_id])

    @override
    async def count_passing(self, filters: Filter) -> int:
        return len(await self._threads.run(self._mirror.read, self._mirror.passing, filters))

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        found = await self._threads.run(self._mirror.read, self._mirror.passing, filters)
        return sorted(chunk_id for chunk_id in found if chunk_id > after)[:limit]

    @override
    async def drop(self) -> None:
        await self._threads.run(self._drop_everything)
        await self.close()

    @override
    async def close(self) -> None:
        """Fold this process's markers, and release the mirror's connections and the client."""
        if not self._closed:
            self._closed = True
            with suppress(CorralError):  # If Chroma is down, another process folds the markers.
                await self._threads.run(self._fold)
            await asyncio.to_thread(self._mirror.close)
            await asyncio.to_thread(self._release)

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        with self._write_lock:
            stale: set[str] = set()
            if replace_documents:
                stale = set(self._mirror.read(chunk_ids_of_documents, replace_documents))
            stale.difference_update(chunk.chunk_id for chunk in chunks)
            new = records(chunks, embeddings) if chunks else None
            self._writer.replace(new, sorted(stale))
            self._mirror.follow()

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._write_lock:
            self._collection.delete_all(chunk_ids)
            self._mirror.follow()

    def _fold(self) -> None:
        with self._write_lock:
            self._writer.close()

    def _drop_everything(self) -> None:
        with self._write_lock:
            self._drop_collection()
            self._mirror.drop()
            self._writer = Writer(self._collection)  # the new writer has nothing to fold

    # --- reading -----------------------------------------------------------------------------

    def _read_chunks(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        include = ("metadatas", *(("embeddings",) if include_embeddings else ()))
        found = self._collection.read(list(dict.fromkeys(chunk_ids)), include)
        return [chunk for some in found for chunk in chunks_of(some)]

    def _propose(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None, limit: int
    ) -> Proposals:
        """Search Chroma's graph, or compare all chunks if the graph is unreliable.

        The graph misses some of many identical embeddings, however many rows are requested. So if
        more rows tie with the last one than the margin allows, all chunks are compared.
        """
        mirror = self._mirror
        passing = None if filter_ is None else mirror.read(mirror.passing, filter_)
        few = passing is not None and len(passing) <= max(k, self._few)
        if few or limit > k + MARGIN:
            return self._compare_all(embedding, k, passing)
        found = self._collection.query(embedding, limit, passing)
        pairs = zip(found.ids, found.distances, strict=True)
        neighbors = [Neighbor(i, 1.0 - distance, not is_marker(i)) for i, distance in pairs]
        scorer = VectorScorer(self.vector_db, embedding, k)
        stored = self._embeddings(scorer.open(neighbors))
        proposals = scorer.proposals(neighbors, stored, limit)
        if len(proposals.candidates) < k and not self._is_all(found, passing):
            return self._compare_all(embedding, k, passing)
        return proposals

    def _is_all(self, found: Rows, passing: Sequence[str] | None) -> bool:
        """Return True if a search returned every existing row, or every row that passes."""
        return len(found.ids) >= (self._collection.count() if passing is None else len(passing))

    def _compare_all(
        self, embedding: NDArray[np.float32], k: int, passing: Sequence[str] | None
    ) -> Proposals:
        """Score these chunks, or all chunks, including those that the graph can no longer reach."""
        ids = self._collection.get().ids if passing is None else passing
        parts = (
            ([None if is_marker(row_id) else row_id for row_id in found.ids], found.embeddings)
            for found in self._collection.read(ids, ("embeddings",))
            if found.embeddings is not None
        )
        return Proposals(nearest_of(parts, embedding, effective_metric(self.vector_db), k), None)

    def _embeddings(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        rows: dict[str, NDArray[np.float32]] = {}
        for some in self._collection.read(ids, ("embeddings",)):
            if some.embeddings is not None:
                rows.update(zip(some.ids, some.embeddings, strict=True))
        return rows
