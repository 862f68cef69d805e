"""The index of one vector DB in memory: the reference that other providers are judged by.

Plain on purpose: it compares every embedding that passes the filter, in one byte a number, and all
that can be among the k best again in double precision (`kit/codes.py`). It computes BM25 from
its definition.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.engine import Engine
from corral.api.filters import Filter
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric, nearest
from corral.providers.vector_io.memory.filters import MetadataIndex
from corral.providers.vector_io.memory.keyword import KeywordIndex
from corral.providers.vector_io.memory.matrix import Matrix

READ_AT_ONCE = 32
"""Chunks that are read without a thread; their copies take 0.3 ms at most, of plain metadata."""

CACHED_FILTERS = 16
"""Filters whose chunks are remembered until the next write; 1 byte a chunk."""


class MemoryEngine(Engine):
    """Chunks in dictionaries, embeddings in one matrix; every public method is the contract's.

    The work runs in threads, one at a time: a reader sees whole writes only.

    Args:
        fuzzy: Pass True to let every keyword search find words that differ by a typo.
        on_drop: Called with the registration when the index is deleted.
    """

    def __init__(
        self, vector_db: VectorDB, *, fuzzy: bool, on_drop: Callable[[VectorDB], None]
    ) -> None:
        super().__init__(vector_db)
        self.has_term_statistics = not fuzzy  # its words differ from those of other vector DBs
        self._fuzzy = fuzzy
        self._on_drop = on_drop
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._chunks: dict[str, Chunk] = {}
        self._size = 0  # as the last whole write has left it
        self._metric = effective_metric(self.vector_db)
        self._embeddings = Matrix(self.vector_db.embedding_dimension, self._metric)
        self._metadata = MetadataIndex()
        self._selections: dict[str, NDArray[np.bool_]] = {}  # which places pass, by filter
        self._documents_of: dict[str, set[int]] = {}  # places by document
        self._words = KeywordIndex(
            self.vector_db.field_weights,
            self.vector_db.language,
            self._embeddings.ids,
            fuzzy=self._fuzzy,
        )

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await asyncio.to_thread(self._write, chunks, embeddings, replace_documents)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_vectors, embedding, k, filters)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_words, query_string, k, filters, by)

    @override
    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        search = partial(self._search_words, fuzzy=True)
        return await asyncio.to_thread(search, query_string, k, filters, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await asyncio.to_thread(self._count_terms, query_string, fuzzy=fuzzy)

    @override
    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        return await asyncio.to_thread(self._search_both, embedding, query_string, k, filters)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        if len(chunk_ids) <= READ_AT_ONCE and self._lock.acquire(blocking=False):
            try:  # a thread would take longer than the reading
                return self._copies(chunk_ids, include_embeddings)
            finally:
                self._lock.release()
        return await asyncio.to_thread(self._read, chunk_ids, include_embeddings)

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete, chunk_ids)

    @override
    async def count(self) -> int:
        return self._size

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit)

    @override
    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await asyncio.to_thread(self._count_documents, after, limit, filters)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_of, document_id)

    @override
    async def count_passing(self, filters: Filter) -> int:
        return await asyncio.to_thread(self._count_selected, filters)

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit, filters)

    @override
    async def drop(self) -> None:
        await asyncio.to_thread(self._empty)
        self._on_drop(self.vector_db)

    # --- what they do ------------------------------------------------------------------------

    def _ids_of(self, document_id: str) -> list[str]:
        with self._lock:
            return self._ids_at(self._documents_of.get(document_id, ()))

    def _count_selected(self, filter_: Filter) -> int:
        with self._lock:
            return int(np.count_nonzero(self._selected(filter_)))

    def _empty(self) -> None:
        with self._lock:
            self._clear()

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        # Copies, and first what may fail: a failed call stores nothing.
        stored = [chunk.model_copy(deep=True, update={"embedding": None}) for chunk in chunks]
        terms = [self._words.analyze(chunk) for chunk in stored]
        with self._lock:
            self._selections.clear()
            self._embeddings.reserve(len(stored))
            old = [self._documents_of.get(name, ()) for name in replace_documents]
            self._remove(self._ids_at(chain.from_iterable(old)))
            self._remove(chunk.chunk_id for chunk in stored)
            places = self._embeddings.extend([chunk.chunk_id for chunk in stored], embeddings)
            for place, chunk, found in zip(places, stored, terms, strict=True):
                self._chunks[chunk.chunk_id] = chunk
                self._metadata.add(place, chunk.metadata)
                if chunk.document_id is not None:
                    self._documents_of.setdefault(chunk.document_id, set()).add(place)
                self._words.add(place, found)
            self._size = len(self._chunks)

    def _delete(self, chunk_ids: Iterable[str]) -> None:
        with self._lock:
            self._remove(chunk_ids)
            self._size = len(self._chunks)

    def _remove(self, chunk_ids: Iterable[str]) -> None:
        self._selections.clear()
        for chunk_id in chunk_ids:
            chunk = self._chunks.pop(chunk_id, None)
            if chunk is None:
                continue
            place = self._embeddings.remove(chunk_id)
            self._metadata.remove(place, chunk.metadata)
            if chunk.document_id is not None:
                beside = self._documents_of[chunk.document_id]
                beside.remove(place)
                if not beside:
                    del self._documents_of[chunk.document_id]
            self._words.remove(place)

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        with self._lock:
            held = self._embeddings
            near = held.near(embedding, k, self._selected(filter_) if filter_ else None)
            found = nearest(near, held.rows[near], embedding, k, self._metric)
            # With those tied with the k-th, so that ties are broken by id.
            hits = zip(found.rows.tolist(), found.scores.tolist(), strict=True)
            candidates = [Candidate(held.ids[place], score) for place, score in hits]
            return heapq.nsmallest(k, candidates, key=lambda c: (-c.raw_score, c.chunk_id))

    def _search_words(
        self,
        text: str,
        k: int,
        filter_: Filter | None,
        by: TermStatistics | None = None,
        *,
        fuzzy: bool = False,
    ) -> KeywordLeg:
        with self._lock:
            mask = self._selected(filter_) if filter_ else None
            return self._words.search(text, k, mask, by, fuzzy=fuzzy)

    def _count_terms(self, text: str, *, fuzzy: bool) -> TermStatistics:
        with self._lock:
            return self._words.statistics(text, fuzzy=fuzzy)

    def _search_both(
        self, embedding: NDArray[np.float32], text: str, k: int, filter_: Filter | None
    ) -> tuple[list[Candidate], KeywordLeg]:
        vector = self._search_vectors(embedding, k, filter_)
        return vector, self._search_words(text, k, filter_)

    def _read(self, chunk_ids: Iterable[str], include_embeddings: bool) -> list[Chunk]:
        with self._lock:
            return self._copies(chunk_ids, include_embeddings)

    def _copies(self, chunk_ids: Iterable[str], include_embeddings: bool) -> list[Chunk]:
        """Return copies of the chunks of these ids that exist, under the lock."""
        found = [self._chunks[i] for i in dict.fromkeys(chunk_ids) if i in self._chunks]
        copies = [_copy(chunk) for chunk in found]
        if include_embeddings:
            for chunk in copies:
                place = self._embeddings.places[chunk.chunk_id]
                chunk.embedding = self._embeddings.rows[place].tolist()
        return copies

    def _ids_after(self, after: str, limit: int, filter_: Filter | None = None) -> list[str]:
        with self._lock:
            found: Iterable[str] = self._chunks
            if filter_:
                found = self._ids_at(np.flatnonzero(self._selected(filter_)).tolist())
            return sorted(i for i in found if i > after)[:limit]

    def _ids_at(self, places: Iterable[int]) -> list[str]:
        return [self._embeddings.ids[place] for place in places]

    def _count_documents(
        self, after: str, limit: int, filter_: Filter | None
    ) -> list[DocumentCount]:
        counted: list[DocumentCount] = []
        with self._lock:
            passing = self._selected(filter_) if filter_ else self._embeddings.alive
            for name in sorted(name for name in self._documents_of if name > after):
                found = int(np.count_nonzero(passing[list(self._documents_of[name])]))
                counted += [DocumentCount(name, found)] if found else []
                if len(counted) == limit:
                    break
        return counted

    def _selected(self, filter_: Filter) -> NDArray[np.bool_]:
        """Return which places pass a filter, under the lock."""
        key = repr(filter_)  # not the filter: to Python, 1 equals True
        if key not in self._selections:
            if len(self._selections) >= CACHED_FILTERS:
                self._selections.clear()
            self._selections[key] = self._metadata.passing(filter_, self._embeddings.alive)
        return self._selections[key]


def _copy(chunk: Chunk) -> Chunk:
    """Return a copy that shares nothing that can change; pydantic's own takes far longer."""
    record = chunk.chunk_metadata
    copied = None if record is None else record.model_copy(deep=True)
    return Chunk.stored(chunk.chunk_id, chunk.content, _copied(chunk.metadata), copied, None)


def _copied(value: Any) -> Any:
    """Return a copy of a JSON value."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
