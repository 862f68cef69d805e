"""The index of one vector DB in memory: the reference that other providers are judged by.

Plain on purpose: it compares every embedding that passes the filter, in one byte a number, and all
that can be among the k best again in double precision (`ranking/codes.py`). It computes BM25 from
its definition.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter
from corral.api.hits import Candidate, KeywordLeg
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import effective_metric, nearest
from corral.providers.vector_io.memory.filters import ChunkIds, MetadataIndex
from corral.providers.vector_io.memory.keyword import KeywordIndex
from corral.providers.vector_io.memory.matrix import Matrix

READ_AT_ONCE = 32
"""Chunks that are read without a thread; their copies take 0.3 ms at most, of plain metadata."""

CACHED_FILTERS = 16
"""Filters whose chunks are remembered until the next write; 9 bytes a chunk."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """The chunks that pass a filter.

    Attributes:
        passing: By id.
        rows: Of the matrix, ascending.
        mask: By place in the keyword index.
    """

    passing: ChunkIds
    rows: NDArray[np.intp]
    mask: NDArray[np.bool_]


class MemoryIndex(EmbeddingIndex):
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
        self._fuzzy = fuzzy
        self._on_drop = on_drop
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._chunks: dict[str, Chunk] = {}
        self._metric = effective_metric(self.vector_db)
        self._embeddings = Matrix(self.vector_db.embedding_dimension, self._metric)
        self._metadata = MetadataIndex()
        self._selections: dict[str, _Selection] = {}
        self._documents_of: dict[str, set[str]] = {}  # chunk ids by document
        self._words = KeywordIndex(
            self.vector_db.field_weights, self.vector_db.language, fuzzy=self._fuzzy
        )

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await asyncio.to_thread(self._write, chunks, embeddings, replace_documents)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_vectors, embedding, k, filters)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_words, query_string, k, filters)

    async def _query_fuzzy(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_words, query_string, k, filters, fuzzy=True)

    async def _query_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        return await asyncio.to_thread(self._search_both, embedding, query_string, k, filters)

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        if len(chunk_ids) <= READ_AT_ONCE and self._lock.acquire(blocking=False):
            try:  # a thread would take longer than the reading
                return self._copies(chunk_ids, include_embeddings)
            finally:
                self._lock.release()
        return await asyncio.to_thread(self._read, chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete, chunk_ids)

    async def _count(self) -> int:
        return len(self._chunks)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit)

    async def _documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await asyncio.to_thread(self._count_documents, after, limit, filters)

    async def _document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_of, document_id)

    async def _count_passing(self, filters: Filter) -> int:
        return await asyncio.to_thread(self._count_selected, filters)

    async def _chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit, filters)

    async def _drop(self) -> None:
        await asyncio.to_thread(self._empty)
        self._on_drop(self.vector_db)

    # --- what they do ------------------------------------------------------------------------

    def _ids_of(self, document_id: str) -> list[str]:
        with self._lock:
            return list(self._documents_of.get(document_id, ()))

    def _count_selected(self, filter_: Filter) -> int:
        with self._lock:
            return len(self._selected(filter_).rows)

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
            if replace_documents:
                old = [self._documents_of.get(name, ()) for name in replace_documents]
                self._remove(list(chain.from_iterable(old)))
            self._remove(chunk.chunk_id for chunk in stored)
            self._embeddings.extend([chunk.chunk_id for chunk in stored], embeddings)
            for chunk, found in zip(stored, terms, strict=True):
                self._chunks[chunk.chunk_id] = chunk
                self._metadata.add(chunk.chunk_id, chunk.metadata)
                if chunk.document_id is not None:
                    self._documents_of.setdefault(chunk.document_id, set()).add(chunk.chunk_id)
                self._words.add(chunk.chunk_id, found)

    def _delete(self, chunk_ids: Iterable[str]) -> None:
        with self._lock:
            self._remove(chunk_ids)

    def _remove(self, chunk_ids: Iterable[str]) -> None:
        self._selections.clear()
        for chunk_id in chunk_ids:
            chunk = self._chunks.pop(chunk_id, None)
            if chunk is None:
                continue
            self._metadata.remove(chunk_id, chunk.metadata)
            if chunk.document_id is not None:
                beside = self._documents_of[chunk.document_id]
                beside.remove(chunk_id)
                if not beside:
                    del self._documents_of[chunk.document_id]
            self._embeddings.remove(chunk_id)
            self._words.remove(chunk_id)

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        with self._lock:
            held = self._embeddings
            places = None if filter_ is None else self._selected(filter_).rows
            near = held.near(embedding, k, places)
            found = nearest(near, held.rows[near], embedding, k, self._metric)
            # With those tied with the k-th, so that ties are broken by id.
            hits = zip(found.rows.tolist(), found.scores.tolist(), strict=True)
            candidates = [Candidate(held.ids[place], score) for place, score in hits]
            return heapq.nsmallest(k, candidates, key=lambda c: (-c.raw_score, c.chunk_id))

    def _search_words(
        self, text: str, k: int, filter_: Filter | None, *, fuzzy: bool = False
    ) -> KeywordLeg:
        with self._lock:
            mask = None if filter_ is None else self._selected(filter_).mask
            hits, greatest = self._words.search(text, k, mask, fuzzy=fuzzy)
            found = (
                Candidate(chunk_id, hit.score, matched_terms=tuple(hit.terms))
                for chunk_id, hit in hits.items()
            )
            return KeywordLeg(found, greatest)

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
                chunk.embedding = self._embeddings.of(chunk.chunk_id).tolist()
        return copies

    def _ids_after(self, after: str, limit: int, filter_: Filter | None = None) -> list[str]:
        with self._lock:
            return sorted(i for i in self._among(self._chunks, filter_) if i > after)[:limit]

    def _count_documents(
        self, after: str, limit: int, filter_: Filter | None
    ) -> list[DocumentCount]:
        counted: list[DocumentCount] = []
        with self._lock:
            for name in sorted(name for name in self._documents_of if name > after):
                found = len(self._among(self._documents_of[name], filter_))
                counted += [DocumentCount(name, found)] if found else []
                if len(counted) == limit:
                    break
        return counted

    def _selected(self, filter_: Filter) -> _Selection:
        """Return the chunks that pass a filter, under the lock."""
        key = repr(filter_)  # not the filter: to Python, 1 equals True
        if key not in self._selections:
            if len(self._selections) >= CACHED_FILTERS:
                self._selections.clear()
            passing = self._metadata.passing(filter_)
            rows, mask = self._embeddings.places(passing), self._words.mask(passing)
            self._selections[key] = _Selection(passing, rows, mask)
        return self._selections[key]

    def _among(self, chunk_ids: Collection[str], filter_: Filter | None) -> Collection[str]:
        """Return those of some chunks that pass."""
        if filter_ is None:
            return chunk_ids
        passing = self._selected(filter_).passing
        return [i for i in chunk_ids if (i in passing.ids) != passing.negated]


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
