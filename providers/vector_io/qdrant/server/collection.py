"""A collection on a Qdrant server, through qdrant-client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from qdrant_client import models

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.undo import undone_on_failure_async
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    INTEGER_INDEXES,
    KEYWORD_INDEX,
    ORDER_INDEX,
    SPARSE,
    Json,
    Point,
)
from corral.providers.vector_io.qdrant.server import upserts
from corral.providers.vector_io.qdrant.server.client import Server
from corral.providers.vector_io.qdrant.server.reads import UNLIMITED, ServerReads
from corral.providers.vector_io.qdrant.server.upserts import Batch, structs

T = TypeVar("T")

_VERSION = re.compile(r"version_([0-9]+)")


class ServerCollection(ServerReads):
    """One collection. Writes of this process to it wait for each other."""

    def __init__(self, vector_db: VectorDB, name: str, server: Server) -> None:
        super().__init__(vector_db, name, server)
        self._writing = asyncio.Lock()

    async def make(self) -> bool:
        """Make the collection if it is absent; return True if it was made."""
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
        """Bring the indexes up to date, and record the version in place of earlier ones."""
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
        """Write points, then drop the others that passed `stale` before.

        An upsert that fails is undone where the server can still be reached. Once all are written
        nothing is: the server may have deleted the old points whatever became of its answer, and
        two versions for a while are better than none. What another process adds to `stale` in the
        meantime stays, too.
        """
        batches = await self._batches(structs(points))
        ids = [point.id for point in points]
        async with self._writing:
            gone = sorted(set(await self._passing(stale)) - set(ids)) if stale else []
            if len(batches) > 1:
                await self._upsert_all(batches, ids)
            else:  # one request needs no undoing
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

    async def close(self) -> None:
        """Release nothing: the connections are the provider's."""

    async def _batches(self, points: Iterable[models.PointStruct]) -> list[Batch]:
        return await upserts.batches(
            points,
            self._limits.upsert_max_batchsize or UNLIMITED,
            over_grpc=self._server.config.transport == "grpc",
        )

    async def _upsert(self, batch: Batch) -> None:
        seconds = self._server.config.timeout_seconds
        await self._server.call(
            lambda: upserts.upsert(self._client, self._name, batch, seconds), collection=self._name
        )

    async def _delete(self, ids: Sequence[str]) -> None:
        if ids:
            selected = models.PointIdsList(points=list(ids))
            await self._call(self._client.delete, points_selector=selected)

    async def _upsert_all(self, batches: Sequence[Batch], ids: Sequence[str]) -> None:
        """Send several requests; if one fails, bring back the points that were there before."""
        before = await self._retrieve(ids, True, True)
        records = (
            models.PointStruct(id=one.id, vector=one.vector or {}, payload=one.payload)
            for one in before
        )
        put_back = [partial(self._upsert, batch) for batch in await self._batches(records)]
        added = sorted(set(ids) - {str(record.id) for record in before})
        async with undone_on_failure_async(put_back, partial(self._delete, added)):
            for batch in batches:
                await self._upsert(batch)

    async def _configure(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        """Send a request without data, so that an error may show the server's own words."""
        return await self._server.call(
            lambda: method(collection_name=self._name, **arguments), configures=True
        )


def _indexes(version: int) -> dict[str, Any]:
    """Return the indexes that a collection of a version has.

    Only `attributes` takes part in the graph of a filtered search; for the others a server from
    1.17 on would add links for each common word and each range.
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
    """Return True if an index takes part in the graph that shall not; to be made anew then."""
    without = getattr(wanted, "enable_hnsw", None) is False
    return without and getattr(found.params, "enable_hnsw", None) is not False


def _version_index(version: int) -> str:
    """Return the field of an index without values that records the version of a collection.

    An index is the one thing that every release keeps beside the points: a point would be found
    and counted.
    """
    return f"version_{version}"


def _versions(fields: Iterable[str]) -> list[int]:
    """Return the versions that wrote a collection with these indexes, ascending."""
    return sorted(int(match[1]) for field in fields if (match := _VERSION.fullmatch(field)))
