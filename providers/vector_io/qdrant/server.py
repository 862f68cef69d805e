"""A collection on a Qdrant server, through qdrant-client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from qdrant_client import models

from corral.api.errors import CorralError, ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.collection import Collection, Row
from corral.providers.vector_io.qdrant.connection import Server
from corral.providers.vector_io.qdrant.points import (
    DENSE,
    INTEGER_INDEXES,
    KEYWORD_INDEX,
    SPARSE,
    Json,
    Point,
)

T = TypeVar("T")

BATCH_POINTS = 1_000
BATCH_BYTES = 16 * 2**20
"""Most of one request, about; a server refuses more than 32 MiB unless it is told otherwise."""

UNDO_POINTS = 100
"""Points of one request that brings stored ones back; their sizes are not known."""

SCROLL_BATCH = 5_000

_MOST_VALUES = 10_000_000  # of a facet


class ServerCollection(Collection):
    """One collection. Writes of this process to it wait for each other.

    Args:
        vector_db: The registration.
        name: The collection's name.
        server: Where it is.
    """

    def __init__(self, vector_db: VectorDB, name: str, server: Server) -> None:
        self._vector_db = vector_db
        self._name = name
        self._server = server
        self._client = server.client
        self._writing = asyncio.Lock()
        self._indexed: set[str] = set()

    async def exists(self) -> bool:
        """Say whether the collection is there."""
        return await self._call(self._client.collection_exists)

    async def make(self) -> None:
        """Make the collection and its indexes where they are absent; a failure leaves nothing."""
        if await self.exists():
            return await self._make_indexes()
        try:
            await self._create()
            await self._make_indexes()
        except CorralError:
            with suppress(CorralError):
                await self.drop()
            raise

    async def _create(self) -> None:
        by_distance = self._vector_db.metric is Metric.L2 and not self._vector_db.normalize
        try:
            await self._call(
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
            if not await self.exists():  # else another process was faster
                raise

    async def _make_indexes(self) -> None:
        for name in INTEGER_INDEXES:
            await self._make_index(
                name,
                models.IntegerIndexParams(
                    type=models.IntegerIndexType.INTEGER, lookup=True, range=False
                ),
            )
        await self._make_index(KEYWORD_INDEX, models.PayloadSchemaType.KEYWORD)

    async def _make_index(
        self, name: str, schema: models.PayloadSchemaType | models.IntegerIndexParams
    ) -> None:
        await self._call(self._client.create_payload_index, field_name=name, field_schema=schema)

    # --- reading -----------------------------------------------------------------------------

    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[Row]:
        """Return the points with the nearest dense vectors, best first."""
        config = self._server.config
        found = await self._call(
            self._client.query_points,
            query=list(embedding),
            using=DENSE,
            limit=limit,
            query_filter=_filter(filter_),
            search_params=models.SearchParams(
                exact=config.exact, hnsw_ef=max(config.hnsw_ef, limit)
            ),
            with_payload=list(fields),
            with_vectors=[DENSE],
        )
        return [_row(point) for point in found.points]

    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[Row]:
        """Return the points with the largest inner products, best first."""
        found = await self._call(
            self._client.query_points,
            query=models.SparseVector(indices=sparse[0], values=sparse[1]),
            using=SPARSE,
            limit=limit,
            query_filter=_filter(filter_),
            with_payload=list(fields),
        )
        return [_row(point) for point in found.points]

    async def fetch(self, ids: Sequence[str], fields: Sequence[str], dense: bool) -> list[Row]:
        """Return those of these points that exist."""
        vectors = [DENSE] if dense else False
        found = await self._retrieve(ids, list(fields), vectors)
        return [_row(record) for record in found]

    async def _retrieve(
        self, ids: Sequence[str], fields: list[str] | bool, vectors: list[str] | bool
    ) -> list[models.Record]:
        found: list[models.Record] = []
        for start in range(0, len(ids), BATCH_POINTS):
            found += await self._call(
                self._client.retrieve,
                ids=list(ids[start : start + BATCH_POINTS]),
                with_payload=fields,
                with_vectors=vectors,
            )
        return found

    async def scroll(self, filter_: Json, limit: int) -> list[Row]:
        """Return some points that pass, whole."""
        records, _ = await self._call(
            self._client.scroll,
            scroll_filter=_filter(filter_),
            limit=limit,
            with_payload=True,
            with_vectors=[DENSE],
        )
        return [_row(record) for record in records]

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one. Qdrant orders no texts: all are read."""
        first: list[str] = []
        offset: Any = None
        while True:
            records, offset = await self._call(
                self._client.scroll, limit=SCROLL_BATCH, offset=offset, with_payload=["chunk_id"]
            )
            ids = ((record.payload or {})["chunk_id"] for record in records)
            first = sorted(chain(first, (i for i in ids if i > after)))[:limit]
            if offset is None:
                return first

    async def count(self) -> int:
        """Return the number of points."""
        return await self._counted(None)

    async def counts(self, filters: Sequence[Json]) -> list[int]:
        """Return the number of points that pass, for each filter; all are asked at once."""
        return await asyncio.gather(*(self._counted(one) for one in filters))

    async def _counted(self, filter_: Json | None) -> int:
        found = await self._call(self._client.count, count_filter=_filter(filter_), exact=True)
        return found.count

    async def facet(self, name: str) -> Mapping[int, int]:
        """Return the number of points by value of a field."""
        found = await self._call(self._client.facet, key=name, limit=_MOST_VALUES, exact=True)
        return {int(hit.value): hit.count for hit in found.hits}

    # --- writing -----------------------------------------------------------------------------

    async def replace(self, points: Sequence[Point], stale: Json | None) -> None:
        """Write points, then drop the others that passed `stale` before.

        An upsert that fails is undone where the server can still be reached. Once all are written
        nothing is: the server may have deleted the old points whatever became of its answer, and
        two versions for a while are better than none. What another process adds to `stale` in the
        meantime stays, too.
        """
        batches = await asyncio.to_thread(lambda: list(_batches(points)))
        ids = [point.id for point in points]
        async with self._writing:
            gone = sorted(set(await self._passing(stale)) - set(ids)) if stale else []
            several = len(batches) > 1  # requests: one alone needs no undoing
            before = await self._retrieve(ids, True, True) if several else []
            try:
                for batch in batches:
                    await self._call(self._client.upsert, points=batch)
            except CorralError:
                if several:
                    await self._undo(ids, before)
                raise
            await self._delete(gone)

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete points; unknown ids are ignored."""
        async with self._writing:
            await self._delete(ids)

    async def order_by(self, names: Sequence[str]) -> None:
        """See that these fields have an index of numbers."""
        for name in sorted(set(names) - self._indexed):
            await self._make_index(name, models.PayloadSchemaType.FLOAT)
            self._indexed.add(name)

    async def drop(self) -> None:
        """Delete the collection."""
        await self._call(self._client.delete_collection)

    async def close(self) -> None:
        """Release nothing: the connections are the provider's."""

    async def _delete(self, ids: Sequence[str]) -> None:
        if ids:
            selected = models.PointIdsList(points=list(ids))
            await self._call(self._client.delete, points_selector=selected)

    async def _undo(self, ids: Sequence[str], before: Sequence[models.Record]) -> None:
        """Bring back the points that were there before; a server that is gone keeps what it has."""
        old = {str(record.id) for record in before}
        with suppress(CorralError):
            for start in range(0, len(before), UNDO_POINTS):
                batch = [
                    models.PointStruct(id=one.id, vector=one.vector or {}, payload=one.payload)
                    for one in before[start : start + UNDO_POINTS]
                ]
                await self._call(self._client.upsert, points=batch)
            await self._delete(sorted(set(ids) - old))

    async def _passing(self, filter_: Json) -> list[str]:
        """Return the ids of the points that pass."""
        ids: list[str] = []
        offset: Any = None
        while True:
            records, offset = await self._call(
                self._client.scroll,
                scroll_filter=_filter(filter_),
                limit=SCROLL_BATCH,
                offset=offset,
                with_payload=False,
            )
            ids += [str(record.id) for record in records]
            if offset is None:
                return ids

    async def _call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        return await self._server.call(lambda: method(collection_name=self._name, **arguments))


def _batches(points: Sequence[Point]) -> Iterator[list[models.PointStruct]]:
    """Cut points into requests of bounded size."""
    batch: list[models.PointStruct] = []
    size = 0
    for point in points:
        payload = point.payload
        needed = 20 * len(point.dense) + 4 * (len(payload["content"]) + len(payload["metadata"]))
        needed += 64 * (len(payload["terms"]) + len(payload["attributes"]))
        if batch and (size + needed > BATCH_BYTES or len(batch) == BATCH_POINTS):
            yield batch
            batch, size = [], 0
        batch.append(_struct(point))
        size += needed
    if batch:
        yield batch


def _struct(point: Point) -> models.PointStruct:
    vectors: dict[str, Any] = {DENSE: point.dense.tolist()}
    if point.sparse[0]:
        vectors[SPARSE] = models.SparseVector(indices=point.sparse[0], values=point.sparse[1])
    return models.PointStruct(id=point.id, vector=vectors, payload=point.payload)


def _row(found: models.ScoredPoint | models.Record) -> Row:
    vectors: Any = found.vector
    score = found.score if isinstance(found, models.ScoredPoint) else 0.0
    dense = vectors[DENSE] if vectors and DENSE in vectors else []
    return Row(str(found.id), found.payload or {}, score, dense)


def _filter(data: Json | None) -> models.Filter | None:
    """Return a filter as the client's own object, which has the same form."""
    return models.Filter.model_validate(data) if data else None
