"""The index of one vector DB in one Milvus collection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import CorralError, ProviderError
from corral.api.filters import Comparison, Filter, matches
from corral.api.hits import Candidate, TermStatistics
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.candidates import (
    Proposals,
    best_candidates,
    open_order,
    score_vectors,
    settled,
)
from corral.providers.vector_io.kit.exact import effective_metric, exact_scores
from corral.providers.vector_io.kit.id_pages import IdPages
from corral.providers.vector_io.milvus import filters as expressions
from corral.providers.vector_io.milvus.client import MOST_ROWS
from corral.providers.vector_io.milvus.collection import Collection
from corral.providers.vector_io.milvus.filters import CHUNKS
from corral.providers.vector_io.milvus.keyword import Keywords
from corral.providers.vector_io.milvus.records import (
    Entry,
    Row,
    entry_of,
    row_key,
    stored_dimension,
)

_MARGIN = 8  # rows asked for beyond k; Milvus Lite takes 0.1 ms to hand over each
_REWRITTEN = 500  # chunks of one step when terms are made anew


class MilvusEngine(Engine):
    """Chunks in one Milvus collection; every public method is the contract's.

    The work runs in threads. Milvus finds candidates; their scores are computed here, in double
    precision, where its own leave their order open; and more are asked for until none that is
    missing can belong to the answer.

    Args:
        max_age_seconds: Most age of what BM25 knows of other processes' writes.
    """

    has_term_statistics = True

    def __init__(self, vector_db: VectorDB, collection: Collection, max_age_seconds: float) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._threads = collection.connection.threads
        self._metric = effective_metric(vector_db)
        self._unit_length = vector_db.normalize or vector_db.metric is Metric.COSINE
        self._writing = threading.RLock()
        self._keywords = Keywords(vector_db, collection, self._writing, max_age_seconds)
        self._pages = IdPages()
        self._open = True
        collection.connection.client.enter()

    def prepare(self, *, is_new: bool) -> None:
        """Load the collection, and put in order what another process or version left.

        Raises:
            ConfigError: A newer Corral wrote it.
        """
        self._collection.load()
        if not is_new:
            self._collection.tidy()
            if not self._collection.connection.embedded:
                self._collection.writers.fold()
            if self._collection.analyzer_version() != ANALYZER_VERSION:
                self._analyze_anew()
        self._collection.record_version()

    def _analyze_anew(self) -> None:
        pks = self._collection.keys()
        for start in range(0, len(pks), _REWRITTEN):
            some = pks[start : start + _REWRITTEN]
            chunks = self._collection.chunks(some, with_embeddings=True)
            embeddings = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
            self._write(chunks, embeddings, frozenset())

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
        expression = await self._threads.run(self._expression, filters)
        padded = np.zeros(stored_dimension(self.vector_db), dtype=np.float32)
        padded[: len(embedding)] = embedding

        async def propose(limit: int) -> Proposals:
            return await self._threads.run(self._propose, padded, k, expression, limit)

        return await best_candidates(k, propose, margin=_MARGIN, most=MOST_ROWS)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        expression = await self._threads.run(self._expression, filters)
        return await self._keywords.search(query_string, k, expression, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self._keywords.term_statistics(query_string)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._threads.run(self._read, chunk_ids, include_embeddings)

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        await self._threads.run(self._delete_stored, chunk_ids)

    @override
    async def count(self) -> int:
        return await self._threads.run(self._count_chunks)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._threads.run(self._ids_after, after, limit)

    @override
    async def count_passing(self, filters: Filter) -> int:
        expression = await self._threads.run(self._expression, filters)
        return await self._threads.run(self._collection.count, expression)

    @override
    async def drop(self) -> None:
        await self._threads.run(self._drop_collection)

    @override
    async def close(self) -> None:
        """Let go of the connection; an embedded Milvus is closed with its last index."""
        if self._open:
            self._open = False
            with suppress(CorralError):  # where Milvus is away, somebody else does it in a week
                await self._threads.run(self._fold)
            await asyncio.to_thread(self._collection.connection.client.leave)

    # --- reading -----------------------------------------------------------------------------

    def _propose(
        self, padded: NDArray[np.float32], k: int, expression: str, limit: int
    ) -> Proposals:
        fields = ("chunk_id",) if self._unit_length else ("chunk_id", "embedding")
        hits, unreached = self._collection.nearest(padded, expression, k, limit, fields)
        if unreached:
            return Proposals(self._compare_all(padded, k, expression), None)
        ids = [hit["entity"]["chunk_id"] for hit in hits]
        if self._unit_length:
            last = hits[-1]["distance"] if hits and len(hits) >= limit else None
            found = [Candidate(i, hit["distance"]) for i, hit in zip(ids, hits, strict=True)]
            asked = [row_key(chunk_id) for chunk_id in open_order(found, k)]
            stored = self._collection.embeddings_of(asked) if asked else {}
            return settled(found, stored, last, padded, self._metric)
        matrix = np.array([hit["entity"]["embedding"] for hit in hits], dtype=np.float32)
        return score_vectors(ids, matrix, padded, self._metric, limit=limit, squares=True)

    def _compare_all(self, padded: NDArray[np.float32], k: int, expression: str) -> list[Candidate]:
        """Compare every row that passes: of many equal embeddings a graph does not reach all."""
        best: list[tuple[float, str]] = []
        for chunk_ids, matrix in self._collection.embeddings(expression):
            scores = exact_scores(matrix, padded, self._metric)
            best = nsmallest(k, best + list(zip((-scores).tolist(), chunk_ids, strict=True)))
        return [Candidate(chunk_id, -negative) for negative, chunk_id in best]

    def _expression(self, filter_: Filter | None) -> str:
        return expressions.expression(
            filter_, arrays=self._collection.layout.arrays, resolve=self._resolve
        )

    def _resolve(self, expression: str, comparison: Comparison) -> list[str]:
        chunks = self._collection.chunks_passing(expression)
        return [row_key(c.chunk_id) for c in chunks if matches(comparison, c.metadata)]

    def _read(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        with self._collection.connection.exclusive():
            pks = list(dict.fromkeys(map(row_key, chunk_ids)))
            return self._collection.chunks(pks, with_embeddings=include_embeddings)

    def _ids_after(self, after: str, limit: int) -> list[str]:
        """Return the first ids that follow one. Milvus orders nothing: all are read."""
        with self._collection.connection.exclusive():
            version = None  # nobody else writes to an embedded Milvus
            if not self._collection.connection.embedded:
                version = frozenset(self._collection.writers.others().items())
            return self._pages.page(after, limit, version, self._collection.chunk_ids)

    def _count_chunks(self) -> int:
        if self._keywords.in_memory:  # Milvus Lite reads all rows to count some of them
            return self._keywords.statistics().count
        return self._collection.count(CHUNKS)

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        with self._collection.connection.exclusive(), self._writing:
            rows: list[Row] = []
            come: list[Entry] = []
            encoded = self._keywords.encode(chunks)
            for chunk, embedding, words in zip(chunks, embeddings, encoded, strict=True):
                made = self._collection.maker.chunk(chunk, embedding, words)
                rows.extend(made)
                come.append(entry_of(made[0], words if self._keywords.in_memory else None))
            gone = self._stored([one.pk for one in come], replace_documents)
            self._replace(rows, gone, come)

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._collection.connection.exclusive(), self._writing:
            gone = self._stored(list(dict.fromkeys(map(row_key, chunk_ids))), frozenset())
            self._keywords.statistics()  # counted before, they can follow the deletion
            self._replace([], gone, [])

    def _stored(self, pks: Sequence[str], documents: frozenset[str]) -> list[Entry]:
        with_keys = self._keywords.in_memory
        return list(self._collection.entries_of(pks, documents, with_keys=with_keys).values())

    def _replace(self, rows: Sequence[Row], gone: Sequence[Entry], come: Sequence[Entry]) -> None:
        """Write and remove rows, the statistics following."""
        if not rows and not gone:
            return
        written = {row["pk"] for row in rows}
        try:
            removed = [pk for one in gone for pk in one.pks if pk not in written]
            self._collection.write(rows, removed)
        except ProviderError:
            self._keywords.forget()
            raise
        finally:
            self._pages.forget()
        self._keywords.follow(gone=gone, come=come)

    def _fold(self) -> None:
        with self._writing:
            self._collection.writers.close()

    def _drop_collection(self) -> None:
        with self._collection.connection.client.using():
            self._collection.drop()
        if self._open:
            self._open = False
            self._collection.connection.client.leave()
