"""The engine of one vector DB in one Weaviate collection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from weaviate.classes.data import DataObject
from weaviate.classes.query import MetadataQuery
from weaviate.collections.classes.filters import FilterReturn
from weaviate.exceptions import WeaviateInsertManyAllFailedError

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import ProviderError
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.batches import batches, runs
from corral.providers.vector_io.kit.candidates import (
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
)
from corral.providers.vector_io.kit.engine_bm25 import Keywords
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, read_chunk
from corral.providers.vector_io.kit.tokens import has_orderings, needed, passes
from corral.providers.vector_io.kit.undo import undone_on_failure_async
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.client import CollectionReads
from corral.providers.vector_io.weaviate.keyword import CollectionWords
from corral.providers.vector_io.weaviate.records import (
    ALL_PROPERTIES,
    VECTOR,
    StoredObject,
    bytes_of,
    make_object,
    object_id,
    read_object,
)

MARGIN = 10
"""Chunks requested beyond k at first, to find where the ties with the last one end."""

REINDEX_BATCH = 500
DELETE_OBJECTS = 1_000

MOST_SEARCHES = 16
"""Maximum number of concurrent searches for objects."""

OWN_NEIGHBORS = 10
"""Number of neighbors of an object's vector among which the object must be found."""


class WeaviateEngine(Engine):
    """Stores chunks as objects of one collection; see `Engine` for the public methods.

    Weaviate's cosines are off by at most `SINGLE_PRECISION_SLACK`. Ties are ordered by chunk_id, so
    more objects are requested until all ties with the last one are found, up to
    `RequestLimits.results`.

    Args:
        collection: An existing collection.
        undo_seconds: Maximum time for cleaning up after a failed write.
        statistics_max_age_seconds: Maximum age of the statistics if other processes write.
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
        words, most = CollectionWords(collection), collection.limits.results
        self._keywords = Keywords(vector_db, words, most, statistics_max_age_seconds)
        self._writing = asyncio.Lock()

    async def prepare(self) -> None:
        """Refuse a newer layout, and reanalyze terms of other analyzer versions, on open.

        A concurrent write of the same chunk can be lost, if an older server still runs.

        Raises:
            NotFound: The collection is gone.
            ConfigError: A newer Corral wrote the collection.
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
            # A read fails if the collection is gone; a write would create one.
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
        scorer = VectorScorer(self.vector_db, embedding, k)

        async def propose(limit: int) -> Proposals:
            near = await self._collection.nearest(
                embedding.tolist(), limit, narrowed, properties, dense=not scorer.unit_length
            )
            names = {one.id: str(one.properties["chunk_id"]) for one in near}
            neighbors = [
                Neighbor(names[one.id], 1 - one.score, passes(filters, one.properties))
                for one in near
            ]
            if scorer.unit_length:
                ids = [object_id(chunk_id) for chunk_id in scorer.open(neighbors)]
                near = await self._collection.fetch(ids, [], True)
            stored = {names[one.id]: one.dense for one in near}
            return scorer.proposals(neighbors, stored, limit)

        return await best_candidates(
            k, propose, margin=MARGIN, most=self._collection.limits.results
        )

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
        if has_orderings(filters):  # filters that Weaviate only narrows down
            return await super().count_passing(filters)
        return await self._collection.count(native.translate(filters))

    @override
    async def drop(self) -> None:
        await self._collection.drop()
        await self._collection.leave()

    @override
    async def close(self) -> None:
        """Release the connection."""
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
        """Restore chunks that are missing from the vector index after a crash of the server.

        Weaviate does not update its index if an object is written with an unchanged vector, so each
        such object is searched for. A missing one is first written with a vector of another length.
        """
        there = {one.id: one.dense for one in before}
        same = [one for one in objects if np.array_equal(there.get(one.id, ()), one.dense)]
        if lost := await self._collection.not_found(same):
            longer = [replace(one, dense=[2 * x for x in one.dense]) for one in lost]
            await self._collection.put(longer)
            await self._collection.put(lost)

    async def _delete_others(self, documents: frozenset[str], new: Sequence[str]) -> None:
        """Delete these documents' objects that are not new, in several requests if necessary."""
        others = native.of_documents_but(documents, new)
        full = bool(documents)
        while full:
            most = self._collection.limits.results
            found = await self._collection.some(others, most, [], dense=False)
            await self._collection.delete([one.id for one in found])
            full = len(found) == most


# --- the collection -------------------------------------------------------------------------------


class Collection(CollectionReads):
    """The objects of one vector DB, read and written in parts that fit a request."""

    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filters: FilterReturn | None,
        properties: Sequence[str],
        *,
        dense: bool,
    ) -> list[StoredObject]:
        """Return the objects with the nearest vectors, best first, with Weaviate's distance.

        Vectors that exceed one response are fetched in parts.
        """
        whole = dense and 4 * limit * self._vector_db.embedding_dimension <= self.limits.read_bytes
        found = await self._request(
            lambda handle: handle.query.near_vector(
                near_vector=list(embedding),
                target_vector=VECTOR,
                limit=limit,
                filters=filters,
                include_vector=[VECTOR] if whole else False,
                return_metadata=MetadataQuery(distance=True),
                return_properties=list(properties),
            )
        )
        objects = [read_object(one) for one in found.objects]
        if whole or not dense:
            return objects
        whole_ones = await self.fetch([one.id for one in objects], [], True)
        vectors = {one.id: one.dense for one in whole_ones}
        return [replace(o, dense=vectors[o.id]) for o in objects if o.id in vectors]

    async def not_found(self, objects: Sequence[StoredObject]) -> list[StoredObject]:
        """Return the objects that a graph search for their own vectors does not find."""
        places = asyncio.Semaphore(MOST_SEARCHES)

        async def is_found(one: StoredObject) -> bool:
            async with places:
                found = await self.nearest(one.dense, OWN_NEIGHBORS, None, [], dense=False)
            return one.id in {neighbor.id for neighbor in found}

        known = await asyncio.gather(*(is_found(one) for one in objects))
        return [one for one, found in zip(objects, known, strict=True) if not found]

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids after an id.

        Weaviate's cursor orders by UUID, so all ids are read. So filters contain no text of a user,
        and no index on ids is needed.
        """
        first: list[str] = []
        page: dict[str, Any] = {"limit": self.limits.results, "return_properties": ["chunk_id"]}
        while True:
            found = await self._request(lambda handle: handle.query.fetch_objects(**page))
            ids = (str(one.properties["chunk_id"]) for one in found.objects)
            first = sorted(chain(first, (i for i in ids if i > after)))[:limit]
            if len(found.objects) < self.limits.results:
                return first
            page["after"] = found.objects[-1].uuid

    # --- writing -----------------------------------------------------------------------------

    async def put(self, objects: Sequence[StoredObject]) -> None:
        """Write objects, replacing those with the same ids.

        Their vectors survive a crash of the server only after the next `flush` or deletion.

        Raises:
            ProviderError: Weaviate rejected an object; others may have been written.
        """
        most = self.limits.write_objects, self.limits.write_bytes
        for part in batches(objects, bytes_of, *most):
            await self._put(
                [
                    DataObject(properties=one.properties, uuid=one.id, vector={VECTOR: one.dense})
                    for one in part
                ]
            )

    async def flush(self, written: Sequence[StoredObject]) -> None:
        """Make Weaviate flush its write-ahead logs, if anything was written.

        A batch flushes before its vectors are in the index (1.33.0 to 1.39.0), so a crash would
        lose them. A dry-run deletion flushes on each shard and replica.
        """
        if written:
            where = native.of_ids([written[-1].id])
            await self._write(lambda handle: handle.data.delete_many(where=where, dry_run=True))

    async def _put(self, objects: list[DataObject[Any, Any]]) -> None:
        try:
            done = await self._write(lambda handle: handle.data.insert_many(objects))
        except ProviderError as error:
            if isinstance(error.__cause__, WeaviateInsertManyAllFailedError):
                raise self._refused(len(objects), len(objects)) from error
            raise
        if done.has_errors:
            await self.require()
            raise self._refused(len(done.errors), len(objects))

    def _refused(self, refused: int, sent: int) -> ProviderError:
        return ProviderError(
            f"{self._connection.provider_id}: Weaviate refused {refused} of {sent} chunks."
        )

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete objects; unknown ids are ignored.

        Raises:
            ProviderError: Weaviate could not delete an object; others may be deleted.
        """
        for part in runs(ids, DELETE_OBJECTS):
            await self._delete(part)

    async def _delete(self, ids: Sequence[str]) -> None:
        done = await self._write(lambda handle: handle.data.delete_many(where=native.of_ids(ids)))
        if done.failed:
            raise ProviderError(
                f"{self._connection.provider_id}: Weaviate could not delete {done.failed} of"
                f" {len(ids)} chunks.",
                hint="Repeat the request.",
            )
