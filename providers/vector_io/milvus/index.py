"""The index of one vector DB in one Milvus collection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, ProviderError
from corral.api.filters import Comparison, Filter, matches
from corral.api.hits import Candidate
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import (
    SINGLE_PRECISION_SLACK,
    effective_metric,
    exact_scores,
)
from corral.providers.ranking.text import ANALYZER_VERSION
from corral.providers.vector_io.milvus import filters as expressions
from corral.providers.vector_io.milvus.engine import MOST_ROWS
from corral.providers.vector_io.milvus.filters import CHUNKS
from corral.providers.vector_io.milvus.id_pages import IdPages
from corral.providers.vector_io.milvus.keywords import Keywords
from corral.providers.vector_io.milvus.rows import Entry, Row, entry_of, row_key
from corral.providers.vector_io.milvus.schema import stored_dimension
from corral.providers.vector_io.milvus.store import Store

_MARGIN = 32  # rows asked for beyond k, so that most ties are settled by the first request
_GROWTH = 4
_REWRITTEN = 500  # chunks of one step when terms are made anew


class MilvusIndex(EmbeddingIndex):
    """Chunks in one Milvus collection; every public method is the contract's.

    The work runs in threads. Milvus finds candidates, their scores are computed here, in double
    precision, and more are asked for until none that is missing can belong to the answer.

    Args:
        vector_db: The registration.
        store: Its collection.
    """

    def __init__(self, vector_db: VectorDB, store: Store) -> None:
        super().__init__(vector_db)
        self._store = store
        self._threads = store.engine.threads
        self._metric = effective_metric(vector_db)
        self._writing = threading.RLock()
        self._keywords = Keywords(vector_db, store, self._writing)
        self._pages = IdPages()
        self._open = True
        store.engine.enter()

    def prepare(self, *, is_new: bool) -> None:
        """Load the collection, and put in order what another process or version left.

        Raises:
            ConfigError: A newer Corral wrote it.
        """
        self._store.load()
        if not is_new:
            self._store.tidy()
            if not self._store.engine.embedded:
                self._store.writers.fold()
            if self._store.analyzer_version() != ANALYZER_VERSION:
                self._analyze_anew()
        self._store.sign()

    def _analyze_anew(self) -> None:
        pks = self._store.keys()
        for start in range(0, len(pks), _REWRITTEN):
            some = pks[start : start + _REWRITTEN]
            chunks = self._store.chunks(some, with_embeddings=True)
            embeddings = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
            self._write(chunks, embeddings, frozenset())

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
        expression = await self._threads.run(self._expression, filters)
        return await self._keywords.search(query_string, k, expression)

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._threads.run(self._read, chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await self._threads.run(self._delete_stored, chunk_ids)

    async def _count(self) -> int:
        return await self._threads.run(self._count_chunks)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._threads.run(self._ids_after, after, limit)

    async def _drop(self) -> None:
        await self._threads.run(self._drop_collection)

    async def _close(self) -> None:
        """Let go of the connection; an embedded Milvus is closed with its last index."""
        if self._open:
            self._open = False
            with suppress(CorralError):  # where Milvus is away, somebody else does it in a week
                await self._threads.run(self._fold)
            await asyncio.to_thread(self._store.engine.leave)

    # --- reading -----------------------------------------------------------------------------

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        expression = self._expression(filter_)
        padded = np.zeros(stored_dimension(self.vector_db), dtype=np.float32)
        padded[: len(embedding)] = embedding
        limit = min(k + _MARGIN, MOST_ROWS)
        while True:
            hits = self._store.search(
                "embedding", padded, expression, limit, ("chunk_id", "embedding")
            )
            if len(hits) < k and self._store.unreached(expression, len(hits)):
                return self._compare_all(padded, k, expression)
            if not hits:
                return []
            matrix = np.array([hit["entity"]["embedding"] for hit in hits], dtype=np.float32)
            scores = exact_scores(matrix, padded, self._metric)
            found = sorted(
                (-score, hit["entity"]["chunk_id"])
                for score, hit in zip(scores.tolist(), hits, strict=True)
            )
            slack = self._slack(matrix, padded)
            if (
                len(hits) < limit
                or limit == MOST_ROWS
                or self._relevance(hits[-1]["distance"]) + slack < -found[k - 1][0]
            ):
                return [Candidate(chunk_id, -negative) for negative, chunk_id in found[:k]]
            limit = min(limit * _GROWTH, MOST_ROWS)

    def _compare_all(self, padded: NDArray[np.float32], k: int, expression: str) -> list[Candidate]:
        """Compare every row that passes: of many equal embeddings a graph does not reach all."""
        best: list[tuple[float, str]] = []
        for chunk_ids, matrix in self._store.embeddings(expression):
            scores = exact_scores(matrix, padded, self._metric)
            best = nsmallest(k, best + list(zip((-scores).tolist(), chunk_ids, strict=True)))
        return [Candidate(chunk_id, -negative) for negative, chunk_id in best]

    def _relevance(self, distance: float) -> float:
        """Turn Milvus's distance, a squared one for L2, into a raw score."""
        return -float(np.sqrt(max(0.0, distance))) if self._metric is Metric.L2 else distance

    def _slack(self, matrix: NDArray[np.float32], query: NDArray[np.float32]) -> float:
        """Bound the error of the scores that Milvus computes in single precision."""
        if self._metric is Metric.COSINE:
            return SINGLE_PRECISION_SLACK
        longest = float(np.linalg.norm(matrix.astype(np.float64), axis=1).max())
        length = float(np.linalg.norm(query.astype(np.float64)))
        if self._metric is Metric.L2:  # of the square root of an error of the square
            return float(np.sqrt(SINGLE_PRECISION_SLACK)) * (longest + length)
        return SINGLE_PRECISION_SLACK * max(1.0, longest * length)

    def _expression(self, filter_: Filter | None) -> str:
        return expressions.expression(
            filter_, arrays=self._store.layout.arrays, resolve=self._resolve
        )

    def _resolve(self, expression: str, comparison: Comparison) -> list[str]:
        chunks = self._store.chunks_passing(expression)
        return [row_key(c.chunk_id) for c in chunks if matches(comparison, c.metadata)]

    def _read(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        with self._store.engine.alone():
            pks = list(dict.fromkeys(map(row_key, chunk_ids)))
            return self._store.chunks(pks, with_embeddings=include_embeddings)

    def _ids_after(self, after: str, limit: int) -> list[str]:
        """Return the first ids that follow one. Milvus orders nothing: all are read."""
        with self._store.engine.alone():
            version = None  # nobody else writes to an embedded Milvus
            if not self._store.engine.embedded:
                version = frozenset(self._store.writers.others().items())
            known = self._pages.following(after, limit, version)
            if known is not None:
                return known
            reading = self._pages.reading(after, version)
            reading.add(self._store.chunk_ids())
            return self._pages.page(reading, limit)

    def _count_chunks(self) -> int:
        if self._keywords.in_memory:  # Milvus Lite reads all rows to count some of them
            return self._keywords.statistics().count
        return self._store.count(CHUNKS)

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        with self._store.engine.alone(), self._writing:
            rows: list[Row] = []
            come: list[Entry] = []
            encoded = self._keywords.encode(chunks)
            for chunk, embedding, words in zip(chunks, embeddings, encoded, strict=True):
                made = self._store.maker.chunk(chunk, embedding, words)
                rows.extend(made)
                come.append(entry_of(made[0], words if self._keywords.in_memory else None))
            gone = self._stored([one.pk for one in come], replace_documents)
            self._replace(rows, gone, come)

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._store.engine.alone(), self._writing:
            gone = self._stored(list(dict.fromkeys(map(row_key, chunk_ids))), frozenset())
            self._keywords.statistics()  # counted before, they can follow the deletion
            self._replace([], gone, [])

    def _stored(self, pks: Sequence[str], documents: frozenset[str]) -> list[Entry]:
        with_keys = self._keywords.in_memory
        return list(self._store.entries_of(pks, documents, with_keys=with_keys).values())

    def _replace(self, rows: Sequence[Row], gone: Sequence[Entry], come: Sequence[Entry]) -> None:
        """Write and remove rows, the statistics following."""
        if not rows and not gone:
            return
        written = {row["pk"] for row in rows}
        try:
            self._store.write(rows, [pk for one in gone for pk in one.pks if pk not in written])
        except ProviderError:
            self._keywords.forget()
            raise
        finally:
            self._pages.forget()
        self._keywords.follow(gone=gone, come=come)

    def _fold(self) -> None:
        with self._writing:
            self._store.writers.close()

    def _drop_collection(self) -> None:
        with self._store.engine.using():
            self._store.drop()
        if self._open:
            self._open = False
            self._store.engine.leave()
