"""The index of one vector DB in memory: the reference that other providers are judged by.

Plain on purpose: it scores every embedding, filters every chunk by the reference evaluator, and
computes BM25 from its definition. It scores all embeddings in single precision, and those among
the k best or near them again in double precision.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import effective_metric, nearest, rounding_slack
from corral.providers.ranking.rows import best_rows
from corral.providers.vector_io.memory.keyword import KeywordIndex


class MemoryIndex(EmbeddingIndex):
    """Chunks in dictionaries, embeddings in one matrix; every public method is the contract's.

    The work runs in threads, one at a time: a reader sees whole writes only.

    Args:
        vector_db: The registration.
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
        self._embeddings = _Matrix(self.vector_db.embedding_dimension)
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

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await asyncio.to_thread(self._read, chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete, chunk_ids)

    async def _count(self) -> int:
        return len(self._chunks)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit)

    async def _drop(self) -> None:
        with self._lock:
            self._clear()
        self._on_drop(self.vector_db)

    # --- what they do ------------------------------------------------------------------------

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
            self._embeddings.reserve(len(stored))
            if replace_documents:
                self._remove(
                    chunk_id
                    for chunk_id, chunk in list(self._chunks.items())
                    if chunk.document_id in replace_documents
                )
            self._remove(chunk.chunk_id for chunk in stored)
            for chunk, embedding, found in zip(stored, embeddings, terms, strict=True):
                self._chunks[chunk.chunk_id] = chunk
                self._embeddings.append(chunk.chunk_id, embedding)
                self._words.add(chunk.chunk_id, found)

    def _delete(self, chunk_ids: Iterable[str]) -> None:
        with self._lock:
            self._remove(chunk_ids)

    def _remove(self, chunk_ids: Iterable[str]) -> None:
        for chunk_id in chunk_ids:
            if self._chunks.pop(chunk_id, None):
                self._embeddings.remove(chunk_id)
                self._words.remove(chunk_id)

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        metric = effective_metric(self.vector_db)
        with self._lock:
            held = self._embeddings
            places = np.arange(len(held.ids))
            if filter_ is not None:
                passing = [self._passes(filter_, chunk_id) for chunk_id in held.ids]
                places = np.flatnonzero(passing)
            slack = rounding_slack(held.squared_norms, embedding, metric)
            rough = held.rough_scores(embedding, metric)[places]
            near = places[best_rows(rough, k, slack)]
            found = nearest(near, held.rows[near], embedding, k, metric)
            # With those tied with the k-th, so that ties are broken by id.
            hits = zip(found.rows.tolist(), found.scores.tolist(), strict=True)
            candidates = [Candidate(held.ids[place], score) for place, score in hits]
            return heapq.nsmallest(k, candidates, key=lambda c: (-c.raw_score, c.chunk_id))

    def _search_words(
        self, text: str, k: int, filter_: Filter | None, *, fuzzy: bool = False
    ) -> list[Candidate]:
        with self._lock:
            passes = None if filter_ is None else partial(self._passes, filter_)
            hits = self._words.search(text, k, passes, fuzzy=fuzzy)
            return [
                Candidate(chunk_id, hit.score, matched_terms=tuple(hit.terms))
                for chunk_id, hit in hits.items()
            ]

    def _passes(self, filter_: Filter, chunk_id: str) -> bool:
        return matches(filter_, self._chunks[chunk_id].metadata)

    def _read(self, chunk_ids: Iterable[str], include_embeddings: bool) -> list[Chunk]:
        with self._lock:
            found = [self._chunks[i] for i in dict.fromkeys(chunk_ids) if i in self._chunks]
            copies = [chunk.model_copy(deep=True) for chunk in found]
            if include_embeddings:
                for chunk in copies:
                    chunk.embedding = self._embeddings.of(chunk.chunk_id).tolist()
            return copies

    def _ids_after(self, after: str, limit: int) -> list[str]:
        with self._lock:
            return sorted(i for i in self._chunks if i > after)[:limit]


class _Matrix:
    """Embeddings as rows of one matrix without holes: the last row takes a removed one's place."""

    def __init__(self, dimension: int) -> None:
        self.ids: list[str] = []
        self._places: dict[str, int] = {}
        self._store = np.empty((64, dimension), dtype=np.float32)
        self._norms = np.empty(64)  # squared

    @property
    def rows(self) -> NDArray[np.float32]:
        return self._store[: len(self.ids)]

    @property
    def squared_norms(self) -> NDArray[np.float64]:
        return self._norms[: len(self.ids)]

    def rough_scores(
        self, query: NDArray[np.float32], metric: Metric
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return a number for each row that orders them as the metric does, but for rounding."""
        products: NDArray[np.float32] = self.rows @ query
        if metric is Metric.L2:
            return 2.0 * products.astype(np.float64) - self.squared_norms
        if metric is Metric.COSINE:
            return products / np.sqrt(self.squared_norms)
        return products

    def of(self, chunk_id: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._store[self._places[chunk_id]]
        return row

    def reserve(self, more: int) -> None:
        """Make room for so many more rows, without which `append` would fail in the middle."""
        missing = len(self.ids) + more - len(self._store)
        if missing > 0:
            grown = max(missing, len(self._store))
            rows = np.empty((grown, self._store.shape[1]), dtype=np.float32)
            norms = np.concatenate([self._norms, np.empty(grown)])
            self._store, self._norms = np.concatenate([self._store, rows]), norms

    def append(self, chunk_id: str, embedding: NDArray[np.float32]) -> None:
        """Add a row, for which there is room."""
        place = len(self.ids)
        self._store[place] = embedding
        wide = embedding.astype(np.float64)
        self._norms[place] = wide @ wide
        self._places[chunk_id] = place
        self.ids.append(chunk_id)

    def remove(self, chunk_id: str) -> None:
        place = self._places.pop(chunk_id)
        last = self.ids.pop()
        if last != chunk_id:
            self._store[place] = self._store[len(self.ids)]
            self._norms[place] = self._norms[len(self.ids)]
            self.ids[place], self._places[last] = last, place
