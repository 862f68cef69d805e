"""The index of one vector DB in one Weaviate collection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.filters import Filter
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
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, read_chunk
from corral.providers.vector_io.kit.tokens import has_orderings, needed, passes
from corral.providers.vector_io.kit.undo import undone_on_failure_async
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.collection import Collection
from corral.providers.vector_io.weaviate.keyword import Keywords
from corral.providers.vector_io.weaviate.records import (
    ALL_PROPERTIES,
    StoredObject,
    make_object,
    object_id,
)

MARGIN = 10
"""Chunks asked for beyond k at first, to see where the ties with the last one end."""

REINDEX_BATCH = 500


class WeaviateEngine(Engine):
    """Chunks as objects of one collection; every public method is the contract's.

    Weaviate's cosines are off by `SINGLE_PRECISION_SLACK` at most. Where that leaves the order
    open, and for all scores of embeddings of any length, they are computed anew in double
    precision. Ties are ordered by chunk_id: more is asked for until the last one's ties are all
    there, up to `RequestLimits.results`.

    Args:
        collection: The collection, which exists.
        undo_seconds: How long cleaning up after a failed write may take.
        statistics_max_age_seconds: Most age of what BM25 knows of other processes' writes.
    """

    has_term_statistics = True

    def __init__(
        self,
        vector_db: VectorDB,
        collection: Collection,
        *,
        undo_seconds: float,
        statistics_max_age_seconds: float,
    ) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._undo_seconds = undo_seconds
        self._keywords = Keywords(vector_db, collection, statistics_max_age_seconds)
        self._metric = effective_metric(vector_db)
        self._unit_length = vector_db.normalize or vector_db.metric is Metric.COSINE
        self._writing = asyncio.Lock()

    async def prepare(self) -> None:
        """Refuse a newer layout, and find terms anew that another version of the analyzer stored.

        Done when an index is opened. It can undo a write of the same chunk by another process in
        the same moment, which only an upgrade of one server beside others can meet.

        Raises:
            NotFound: The collection is gone.
            ConfigError: A newer Corral wrote it.
        """
        await self._collection.check_layout()
        stale = native.not_of_version(ANALYZER_VERSION)
        while found := await self._collection.some(
            stale, REINDEX_BATCH, ALL_PROPERTIES, dense=True
        ):
            chunks = [read_chunk(one.properties) for one in found]
            embeddings = np.array([one.embedding for one in found], dtype=np.float32)
            await self._collection.put(await asyncio.to_thread(self._objects, chunks, embeddings))
            await self._collection.settle()

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        try:
            await self._store(chunks, embeddings, replace_documents)
        finally:
            self._keywords.forget()

    async def _store(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        objects = await asyncio.to_thread(self._objects, chunks, embeddings)
        new = [one.id for one in objects]
        async with self._writing:
            # Reading fails where the collection is gone; a write would make one up.
            before = await self._collection.fetch(new, ALL_PROPERTIES, True)
            put_back: list[Callable[[], Awaitable[object]]] = [
                self._collection.require,
                partial(self._collection.put, before),
                partial(self._collection.flush, before),
            ]
            added = sorted(set(new) - {one.id for one in before})
            remove = partial(self._collection.delete, added)
            async with undone_on_failure_async(put_back, remove, self._undo_seconds):
                await self._collection.put(objects)
                await self._index_anew(objects, before)
            # Nothing is undone from here on: a delete that failed may have been carried out.
            await self._delete_others(replace_documents, new)
            await self._collection.flush(objects)
        await self._collection.settle()

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        narrowed = native.translate(filters) if filters else native.everything()
        properties = ["chunk_id", *needed(filters)]

        async def propose(limit: int) -> Proposals:
            found = await self._collection.nearest(
                embedding.tolist(), limit, narrowed, properties, dense=not self._unit_length
            )
            passing = [one for one in found if passes(filters, one.properties)]
            if not self._unit_length:
                return self._compared(embedding, found, passing, limit)
            last = 1 - found[-1].score if len(found) >= limit else None
            candidates = [Candidate(o.properties["chunk_id"], 1 - o.score) for o in passing]
            names = {object_id(chunk_id): chunk_id for chunk_id in open_order(candidates, k)}
            there = await self._collection.fetch(list(names), [], True)
            stored = {names[one.id]: one.dense for one in there}
            return settled(candidates, stored, last, embedding, self._metric)

        return await best_candidates(
            k, propose, margin=MARGIN, most=self._collection.limits.results
        )

    def _compared(
        self,
        embedding: NDArray[np.float32],
        found: Sequence[StoredObject],
        passing: Sequence[StoredObject],
        limit: int,
    ) -> Proposals:
        """Compare with every embedding: of any length, it may be off by any rounding error."""
        wanted = {one.id for one in passing}
        ids = [one.properties["chunk_id"] if one.id in wanted else None for one in found]
        matrix = np.array([one.dense for one in found], dtype=np.float32)
        return score_vectors(ids, matrix, embedding, self._metric, limit=limit)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self._keywords.search(query_string, k, filters, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self._keywords.term_statistics(query_string)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        ids = [object_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        properties = [*CHUNK_FIELDS, *(["embedding"] if include_embeddings else [])]
        found = await self._collection.fetch(ids, properties, include_embeddings)
        return [
            read_chunk(one.properties, one.embedding if include_embeddings else None)
            for one in found
        ]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        try:
            async with self._writing:
                await self._collection.delete([object_id(i) for i in dict.fromkeys(chunk_ids)])
            await self._collection.settle()
        finally:
            self._keywords.forget()

    @override
    async def count(self) -> int:
        return await self._collection.count()

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._collection.chunk_ids(after, limit)

    @override
    async def count_passing(self, filters: Filter) -> int:
        if has_orderings(filters):  # which are only narrowed down
            return await super().count_passing(filters)
        return await self._collection.count(native.translate(filters))

    @override
    async def drop(self) -> None:
        await self._collection.drop()
        await self._collection.leave()

    @override
    async def close(self) -> None:
        """Let go of the connection."""
        await self._collection.leave()

    # --- writing -----------------------------------------------------------------------------

    def _objects(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
    ) -> list[StoredObject]:
        return [
            make_object(
                self.vector_db, chunk, embedding, self._keywords.terms(chunk), ANALYZER_VERSION
            )
            for chunk, embedding in zip(chunks, embeddings, strict=True)
        ]

    async def _index_anew(
        self, objects: Sequence[StoredObject], before: Sequence[StoredObject]
    ) -> None:
        """Bring back chunks that a crash of the server kept out of the vector index.

        Weaviate leaves its index alone if an object comes with the vector it already has, so each
        such object is looked for. One that is missing is first written with another length.
        """
        there = {one.id: one.dense for one in before}
        same = [one for one in objects if np.array_equal(there.get(one.id, ()), one.dense)]
        if lost := await self._collection.not_found(same):
            longer = [replace(one, dense=[2 * x for x in one.dense]) for one in lost]
            await self._collection.put(longer)
            await self._collection.put(lost)

    async def _delete_others(self, documents: frozenset[str], new: Sequence[str]) -> None:
        """Delete these documents' objects that are not new, in as many rounds as it takes."""
        others = native.of_documents_but(documents, new)
        full = bool(documents)
        while full:
            most = self._collection.limits.results
            found = await self._collection.some(others, most, [], dense=False)
            await self._collection.delete([one.id for one in found])
            full = len(found) == most
