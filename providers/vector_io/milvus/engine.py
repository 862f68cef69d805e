"""The engine of one vector DB in one Milvus collection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import CorralError, ProviderError
from corral.api.filters import Comparison, Filter, matches
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.candidates import (
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
    nearest_of,
)
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.id_pages import IdPages
from corral.providers.vector_io.milvus import filters as expressions
from corral.providers.vector_io.milvus.client import Collection
from corral.providers.vector_io.milvus.filters import CHUNKS
from corral.providers.vector_io.milvus.keyword import Keywords
from corral.providers.vector_io.milvus.records import (
    MOST_ROWS,
    Entry,
    Row,
    entry,
    row_key,
    stored_dimension,
)

_MARGIN = 8  # Rows requested beyond k; Milvus Lite takes 0.1 ms to return each.
_REWRITTEN = 500  # Chunks per batch when terms are analyzed again.


class MilvusEngine(Engine):
    """Stores the chunks of one vector DB in one Milvus collection; see `Engine`.

    The work runs in threads. Milvus proposes candidates, and more are requested until no missing
    one can belong to the answer.

    Args:
        collection: The collection of the vector DB.
        max_age_seconds: Maximum age of the statistics if other processes write, in seconds.
    """

    has_term_statistics = True

    def __init__(self, vector_db: VectorDB, collection: Collection, max_age_seconds: float) -> None:
        super().__init__(vector_db)
        self.collection = collection
        self._threads = collection.connection.threads
        self._writing = threading.RLock()
        self._keywords = Keywords(vector_db, collection, self._writing, max_age_seconds)
        self._pages = IdPages()
        self._open = True
        collection.connection.client.enter()

    def prepare(self, *, is_new: bool) -> None:
        """Load the collection, clean up after killed processes, and update rows of older versions.

        Raises:
            ConfigError: A newer Corral wrote the collection.
        """
        self.collection.load()
        if not is_new:
            self.collection.tidy()
            if not self.collection.connection.embedded:
                self.collection.writers.fold()
            if self.collection.analyzer_version() != ANALYZER_VERSION:
                self._analyze_anew()
        self.collection.record_version()

    def _analyze_anew(self) -> None:
        pks = self.collection.keys()
        for some in runs(pks, _REWRITTEN):
            chunks = self.collection.chunks(some, with_embeddings=True)
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

        propose = partial(self._threads.run, self._propose, padded, k, expression)
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
        return await self._threads.run(self.collection.count, expression)

    @override
    async def drop(self) -> None:
        await self._threads.run(self._drop_collection)

    @override
    async def close(self) -> None:
        """Release the connection; an embedded Milvus closes with its last index."""
        if self._open:
            self._open = False
            with suppress(CorralError):  # Otherwise another process does it later.
                await self._threads.run(self._fold)
            await asyncio.to_thread(self.collection.connection.client.leave)

    # --- reading -----------------------------------------------------------------------------

    def _propose(
        self, padded: NDArray[np.float32], k: int, expression: str, limit: int
    ) -> Proposals:
        scorer = VectorScorer(self.vector_db, padded, k, squares=True)
        fields = ("chunk_id",) if scorer.unit_length else ("chunk_id", "embedding")
        hits, unreached = self.collection.nearest(padded, expression, k, limit, fields)
        if unreached:
            return Proposals(self._compare_all(padded, k, expression), None)
        neighbors = [Neighbor(hit["entity"]["chunk_id"], hit["distance"]) for hit in hits]
        if scorer.unit_length:
            stored = self.collection.embeddings_of(list(map(row_key, scorer.open(neighbors))))
        else:
            stored = {hit["entity"]["chunk_id"]: hit["entity"]["embedding"] for hit in hits}
        return scorer.proposals(neighbors, stored, limit)

    def _compare_all(self, padded: NDArray[np.float32], k: int, expression: str) -> list[Candidate]:
        """Compare every row that passes: a graph does not reach all of many equal embeddings."""
        parts = self.collection.embeddings(expression)
        return nearest_of(parts, padded, effective_metric(self.vector_db), k)

    def _expression(self, filter_: Filter | None) -> str:
        return expressions.expression(
            filter_, arrays=self.collection.layout.arrays, resolve=self._resolve
        )

    def _resolve(self, expression: str, comparison: Comparison) -> list[str]:
        chunks = self.collection.chunks_passing(expression)
        return [row_key(c.chunk_id) for c in chunks if matches(comparison, c.metadata)]

    def _read(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        with self.collection.connection.exclusive():
            pks = list(dict.fromkeys(map(row_key, chunk_ids)))
            return self.collection.chunks(pks, with_embeddings=include_embeddings)

    def _ids_after(self, after: str, limit: int) -> list[str]:
        """Return the first ids after an id. Milvus cannot sort, so all ids are read."""
        with self.collection.connection.exclusive():
            version = None  # An embedded Milvus has one writer.
            if not self.collection.connection.embedded:
                version = frozenset(self.collection.writers.others().items())
            return self._pages.page(after, limit, version, self.collection.chunk_ids)

    def _count_chunks(self) -> int:
        if self._keywords.in_memory:  # Milvus Lite reads all rows even to count a few.
            return self._keywords.statistics().count
        return self.collection.count(CHUNKS)

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        with self.collection.connection.exclusive(), self._writing:
            rows: list[Row] = []
            come: list[Entry] = []
            encoded = self._keywords.encode(chunks)
            for chunk, embedding, words in zip(chunks, embeddings, encoded, strict=True):
                made = self.collection.maker.chunk(chunk, embedding, words)
                rows.extend(made)
                come.append(entry(made[0], words.keys if self._keywords.in_memory else ()))
            gone = self.collection.entries_of([one.pk for one in come], replace_documents)
            self._replace(rows, gone, come)

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self.collection.connection.exclusive(), self._writing:
            gone = self.collection.entries_of(list(dict.fromkeys(map(row_key, chunk_ids))))
            self._keywords.statistics()  # Count before the deletion.
            self._replace([], gone, [])

    def _replace(self, rows: Sequence[Row], gone: Sequence[Entry], come: Sequence[Entry]) -> None:
        """Write and remove rows, and update the statistics."""
        if not rows and not gone:
            return
        written = {row["pk"] for row in rows}
        try:
            removed = [pk for one in gone for pk in one.pks if pk not in written]
            self.collection.write(rows, removed)
        except ProviderError:
            self._keywords.forget()
            raise
        finally:
            self._pages.forget()
        self._keywords.follow(gone=gone, come=come)

    def _fold(self) -> None:
        with self._writing:
            self.collection.writers.close()

    def _drop_collection(self) -> None:
        with self.collection.connection.client.using():
            self.collection.drop()
        if self._open:
            self._open = False
            self.collection.connection.client.leave()
