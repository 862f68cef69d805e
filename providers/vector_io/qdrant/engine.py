"""The engine of one vector DB in a Qdrant collection, and the collection's writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import ProviderError
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.candidates import (
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
)
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, read_chunk, searched
from corral.providers.vector_io.kit.refusals import refuse_newer
from corral.providers.vector_io.kit.tokens import has_orderings, needed, passes
from corral.providers.vector_io.kit.undo import undone_on_failure_async
from corral.providers.vector_io.qdrant import filters as native
from corral.providers.vector_io.qdrant import records
from corral.providers.vector_io.qdrant.client import UNLIMITED, Server, ServerReads
from corral.providers.vector_io.qdrant.keyword import Keywords
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    INTEGER_INDEXES,
    KEYWORD_INDEX,
    ORDER_INDEX,
    SPARSE,
    VERSION,
    Batch,
    Json,
    Point,
    make_point,
    point_id,
    structs,
)

T = TypeVar("T")

_VERSION = re.compile(r"version_([0-9]+)")

MARGIN = 10
"""Chunks fetched beyond k at first, to find where the ties with the last one end."""

REINDEX_BATCH = 500


class QdrantEngine(Engine):
    """Stores chunks as points of one collection; see `Engine` for the public methods.

    The server's cosines are off by at most `SINGLE_PRECISION_SLACK`. Ties are ordered by chunk_id,
    so more points are requested until all ties with the last one are found.

    Args:
        collection: An existing collection.
        statistics_max_age_seconds: Maximum age of the statistics if other processes write.
    """

    has_term_statistics = True

    def __init__(
        self, vector_db: VectorDB, collection: ServerCollection, statistics_max_age_seconds: float
    ) -> None:
        super().__init__(vector_db)
        self._collection = collection
        self._keywords = Keywords(vector_db, collection, statistics_max_age_seconds)

    async def reindex(self) -> None:
        """Rewrite chunks stored by an older version of the layout or the analyzer, on open.

        The new version is recorded first, so that an older process can no longer open the
        collection. A concurrent write of the same chunk by another process can be lost; this can
        only happen if one of several servers is upgraded while others run.

        Raises:
            ConfigError: A newer version wrote the collection; nothing is changed.
        """
        stored = await self._collection.version()
        refuse_newer(stored, VERSION, self.vector_db.provider_id)
        if stored < VERSION:
            await self._collection.upgrade(VERSION)
        stale = native.not_of_version(VERSION)
        while found := await self._collection.scroll(stale, REINDEX_BATCH):
            chunks = [read_chunk(point.payload) for point in found]
            embeddings = np.array([point.embedding for point in found], dtype=np.float32)
            await self._write(chunks, embeddings, None)

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        stale = native.of_documents(replace_documents) if replace_documents else None
        await self._write(chunks, embeddings, stale)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        narrowed = None if filters is None else native.translate(filters)
        fields = ["chunk_id", *needed(filters)]
        query = searched(self.vector_db, embedding)
        # Under cosine, embeddings are stored with length 1, so the inner product is the cosine.
        by_distance = self.vector_db.metric is Metric.L2 and not self.vector_db.normalize
        metric = Metric.L2 if by_distance else Metric.DOT
        scorer = VectorScorer(self.vector_db, query, k, metric)
        all_pass = not has_orderings(filters)

        async def propose(limit: int) -> Proposals:
            near = await self._collection.nearest(query.tolist(), limit, narrowed, fields)
            names = {one.id: str(one.payload["chunk_id"]) for one in near}
            neighbors = [
                Neighbor(names[one.id], one.score, all_pass or passes(filters, one.payload))
                for one in near
            ]
            open_ids = frozenset(scorer.open(neighbors))
            asked = [one.id for one in near if names[one.id] in open_ids]
            found = await self._collection.fetch(asked, [], True) if asked else []
            stored = {names[one.id]: one.dense for one in found}
            return scorer.proposals(neighbors, stored, limit)

        return await best_candidates(k, propose, margin=MARGIN)

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
        ids = [point_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        fields = [*CHUNK_FIELDS, *(["embedding"] if include_embeddings else [])]
        found = await self._collection.fetch(ids, fields, include_embeddings)
        return [read_chunk(p.payload, p.embedding if include_embeddings else None) for p in found]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        try:
            await self._collection.delete([point_id(i) for i in dict.fromkeys(chunk_ids)])
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
        if has_orderings(filters):  # filters that the server only narrows down
            return await super().count_passing(filters)
        return await self._collection.count(native.translate(filters))

    @override
    async def drop(self) -> None:
        await self._collection.drop()

    @override
    async def close(self) -> None:
        """Do nothing: the provider owns the connections."""

    # --- writing -----------------------------------------------------------------------------

    async def _write(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32], stale: Json | None
    ) -> None:
        points = await self._points(chunks, embeddings)
        try:
            await self._collection.replace(points, stale)
        finally:
            self._keywords.forget()

    async def _points(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
    ) -> list[Point]:
        if not chunks:
            return []
        encoded = await self._keywords.encode(chunks)
        return await asyncio.to_thread(
            lambda: [
                make_point(self.vector_db, chunk, embedding, sparse, VERSION)
                for chunk, embedding, sparse in zip(chunks, embeddings, encoded, strict=True)
            ]
        )


# --- the collection -------------------------------------------------------------------------------


class ServerCollection(ServerReads):
    """One collection. Writes of this process to it run one at a time."""

    def __init__(self, vector_db: VectorDB, name: str, server: Server) -> None:
        super().__init__(vector_db, name, server)
        self._writing = asyncio.Lock()

    async def make(self) -> bool:
        """Create the collection if it is missing; return True if it was created."""
        if await self._call(self._client.collection_exists):
            return False
        by_distance = self._vector_db.metric is Metric.L2 and not self._vector_db.normalize
        try:
            await self._configure(
                self._client.create_collection,
                vectors_config={
                    DENSE: models.VectorParams(
                        size=self._vector_db.embedding_dimension,
                        distance=models.Distance.EUCLID if by_distance else models.Distance.DOT,
                    )
                },
                sparse_vectors_config={SPARSE: models.SparseVectorParams()},
                shard_number=self._server.config.shards,
                replication_factor=self._server.config.replicas,
            )
        except ProviderError:
            if await self._call(self._client.collection_exists):
                return False  # another process was faster
            raise
        return True

    async def version(self) -> int:
        """Return the newest version that wrote the collection."""
        return max(_versions((await self._info()).payload_schema), default=0)

    async def upgrade(self, version: int) -> None:
        """Update the indexes, and replace the recorded versions with the current one."""
        there = (await self._info()).payload_schema
        for name, schema in _indexes(version).items():
            if name not in there or _has_graph(schema, there[name]):
                await self._configure(
                    self._client.create_payload_index, field_name=name, field_schema=schema
                )
        await self._drop_indexes(_version_index(one) for one in _versions(there) if one != version)

    async def _drop_indexes(self, names: Iterable[str]) -> None:
        for name in names:
            await self._configure(self._client.delete_payload_index, field_name=name)

    # --- writing -----------------------------------------------------------------------------

    async def replace(self, points: Sequence[Point], stale: Json | None) -> None:
        """Write points, then delete the other points that passed `stale` before.

        A failed upsert is undone if the server can be reached. After all points are written,
        nothing is undone: a delete that failed may have been carried out, and two versions for a
        while are better than none. Points that another process adds to `stale` in between stay.
        """
        batches = await self._batches(structs(points))
        ids = [point.id for point in points]
        async with self._writing:
            gone = sorted(set(await self._passing(stale)) - set(ids)) if stale else []
            if len(batches) > 1:
                await self._upsert_all(batches, ids)
            else:  # a single request needs no undoing
                for batch in batches:
                    await self._upsert(batch)
            await self._delete(gone)

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete points; unknown ids are ignored."""
        async with self._writing:
            await self._delete(ids)

    async def drop(self) -> None:
        """Delete the collection."""
        await self._call(self._client.delete_collection)

    async def _batches(self, points: Iterable[models.PointStruct]) -> list[Batch]:
        return await records.batches(
            points,
            self._limits.upsert_max_batchsize or UNLIMITED,
            over_grpc=self._server.config.transport == "grpc",
        )

    async def _upsert(self, batch: Batch) -> None:
        seconds = self._server.config.timeout_seconds
        await self._server.call(
            lambda: records.upsert(self._client, self._name, batch, seconds), collection=self._name
        )

    async def _delete(self, ids: Sequence[str]) -> None:
        if ids:
            selected = models.PointIdsList(points=list(ids))
            await self._call(self._client.delete, points_selector=selected)

    async def _upsert_all(self, batches: Sequence[Batch], ids: Sequence[str]) -> None:
        """Send several requests; if one fails, restore the previous points."""
        before = await self._retrieve(ids, True, True)
        structures = (
            models.PointStruct(id=one.id, vector=one.vector or {}, payload=one.payload)
            for one in before
        )
        put_back = [partial(self._upsert, batch) for batch in await self._batches(structures)]
        added = sorted(set(ids) - {str(record.id) for record in before})
        async with undone_on_failure_async(put_back, partial(self._delete, added)):
            for batch in batches:
                await self._upsert(batch)

    async def _configure(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """Send a request without data, so that errors may quote the server."""
        return await self._server.call(
            lambda: method(collection_name=self._name, **arguments), configures=True
        )


def _indexes(version: int) -> dict[str, Any]:
    """Return the indexes of a collection of this version.

    Only `attributes` takes part in the graph for filtered search; for the others, servers from 1.17
    would add links for each common word and range.
    """
    integers = models.IntegerIndexParams(
        type=models.IntegerIndexType.INTEGER, lookup=True, range=False, enable_hnsw=False
    )
    return {
        **dict.fromkeys(INTEGER_INDEXES, integers),
        KEYWORD_INDEX: models.PayloadSchemaType.KEYWORD,
        ORDER_INDEX: models.FloatIndexParams(type=models.FloatIndexType.FLOAT, enable_hnsw=False),
        _version_index(version): models.PayloadSchemaType.BOOL,
    }


def _has_graph(wanted: Any, found: models.PayloadIndexInfo) -> bool:
    """Return True if an index is in the graph by mistake, so that it must be rebuilt."""
    without = getattr(wanted, "enable_hnsw", None) is False
    return without and getattr(found.params, "enable_hnsw", None) is not False


def _version_index(version: int) -> str:
    """Return the field of an empty index that records a collection's version.

    Only indexes are stored beside the points in every release; a point would appear in searches and
    counts.
    """
    return f"version_{version}"


def _versions(fields: Iterable[str]) -> list[int]:
    """Return the versions that wrote a collection with these indexes, ascending."""
    return sorted(int(match[1]) for field in fields if (match := _VERSION.fullmatch(field)))
