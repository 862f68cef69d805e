"""The objects of one collection of Weaviate: how an index reads and writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from weaviate.classes.data import DataObject
from weaviate.classes.query import BM25Operator, MetadataQuery, Metrics
from weaviate.collections.classes.filters import FilterReturn
from weaviate.exceptions import WeaviateInsertManyAllFailedError

from corral.api.errors import ProviderError
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.weaviate.client import VECTOR, Connection, Handle
from corral.providers.vector_io.weaviate.filters import TERMS, of_ids
from corral.providers.vector_io.weaviate.records import StoredObject

DELETE_OBJECTS = 1_000

MOST_SEARCHES = 16
"""Objects that are looked for at the same time."""

OWN_NEIGHBORS = 10
"""Among so many neighbors of its vector an object is looked for."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Maximum sizes of requests and answers.

    Attributes:
        results: Objects of one answer: the default of Weaviate's QUERY_MAXIMUM_RESULTS.
        write_objects, write_bytes: Of a request that writes; one object may be larger.
        read_objects: Objects that are fetched by id at once.
        read_bytes: Vectors of an answer.
    """

    results: int = 10_000
    write_objects: int = 200
    write_bytes: int = 4 * 2**20
    read_objects: int = 500
    read_bytes: int = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Statistics:
    """The number of chunks of a vector DB, and that of all their terms."""

    count: int
    total_length: int

    @property
    def average(self) -> float:
        """The mean length of a chunk; 0 where no chunk has a term."""
        return self.total_length / self.count if self.count else 0.0


class Collection(Handle):
    """The objects of one vector DB, read and written in parts that a request may hold.

    Args:
        connection: To the server; the collection is one of its users until `leave`.

    Attributes:
        limits: Of its requests.
    """

    def __init__(
        self, vector_db: VectorDB, name: str, connection: Connection, limits: RequestLimits
    ) -> None:
        super().__init__(vector_db, name, connection)
        self.limits = limits

    # --- reading -----------------------------------------------------------------------------

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

        Vectors that one answer cannot hold are fetched in parts.
        """
        whole = dense and 4 * limit * self._vector_db.embedding_dimension <= self.limits.read_bytes
        found = await self._read(
            lambda native: native.query.near_vector(
                near_vector=list(embedding),
                target_vector=VECTOR,
                limit=limit,
                filters=filters,
                include_vector=[VECTOR] if whole else False,
                return_metadata=MetadataQuery(distance=True),
                return_properties=list(properties),
            )
        )
        objects = [_stored(one) for one in found.objects]
        if whole or not dense:
            return objects
        whole_ones = await self.fetch([one.id for one in objects], [], True)
        vectors = {one.id: one.dense for one in whole_ones}
        return [replace(o, dense=vectors[o.id]) for o in objects if o.id in vectors]

    async def matching(
        self, text: str, limit: int, filters: FilterReturn | None, properties: Sequence[str]
    ) -> list[StoredObject]:
        """Return the objects that hold one of the terms, with Weaviate's BM25, best first."""
        found = await self._read(
            lambda native: native.query.bm25(
                query=text,
                query_properties=[TERMS],
                operator=BM25Operator.or_(minimum_match=1),
                limit=limit,
                filters=filters,
                return_metadata=MetadataQuery(score=True),
                return_properties=list(properties),
            )
        )
        return [_stored(one) for one in found.objects]

    async def some(
        self, filters: FilterReturn, limit: int, properties: Sequence[str], *, dense: bool
    ) -> list[StoredObject]:
        """Return some objects that pass, at most `limit`."""
        found = await self._read(
            lambda native: native.query.fetch_objects(
                filters=filters,
                limit=limit,
                include_vector=[VECTOR] if dense else False,
                return_properties=list(properties),
            )
        )
        return [_stored(one) for one in found.objects]

    async def fetch(
        self, ids: Sequence[str], properties: Sequence[str], dense: bool
    ) -> list[StoredObject]:
        """Return those of these objects that exist."""
        objects: list[StoredObject] = []
        for part in _parts(ids, self.limits.read_objects):
            objects += await self.some(of_ids(part), len(part), properties, dense=dense)
        return objects

    async def not_found(self, objects: Sequence[StoredObject]) -> list[StoredObject]:
        """Return the objects that a search of the graph with their own vectors does not find."""
        places = asyncio.Semaphore(MOST_SEARCHES)

        async def is_found(one: StoredObject) -> bool:
            async with places:
                found = await self.nearest(one.dense, OWN_NEIGHBORS, None, [], dense=False)
            return one.id in {neighbor.id for neighbor in found}

        known = await asyncio.gather(*(is_found(one) for one in objects))
        return [one for one, found in zip(objects, known, strict=True) if not found]

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one. Weaviate's cursor knows UUIDs: all are read.

        So texts that users send stay out of its filters, and need no index.
        """
        first: list[str] = []
        last: str | None = None
        while True:
            page = await self._page(last)
            ids = (str(one.properties["chunk_id"]) for one in page)
            first = sorted(chain(first, (i for i in ids if i > after)))[:limit]
            if len(page) < self.limits.results:
                return first
            last = page[-1].id

    async def _page(self, after: str | None) -> list[StoredObject]:
        found = await self._read(
            lambda native: native.query.fetch_objects(
                limit=self.limits.results, after=after, return_properties=["chunk_id"]
            )
        )
        return [_stored(one) for one in found.objects]

    async def count(self, filters: FilterReturn | None = None) -> int:
        """Return the exact number of objects that pass."""
        found = await self._read(
            lambda native: native.aggregate.over_all(filters=filters, total_count=True)
        )
        return int(found.total_count or 0)

    async def statistics(self) -> Statistics:
        """Return the number of objects, and of all their terms."""
        found = await self._read(
            lambda native: native.aggregate.over_all(
                total_count=True, return_metrics=[Metrics("length").integer(sum_=True)]
            )
        )
        length = found.properties.get("length")
        return Statistics(int(found.total_count or 0), int((length and length.sum_) or 0))

    # --- writing -----------------------------------------------------------------------------

    async def put(self, objects: Sequence[StoredObject]) -> None:
        """Write objects, in place of those with the same ids.

        Their vectors outlive a crash of the server after the next `flush` or deletion.

        Raises:
            ProviderError: Weaviate refused one; others may have been written.
        """
        for part in _write_parts(objects, self.limits):
            await self._put(
                [
                    DataObject(properties=one.properties, uuid=one.id, vector={VECTOR: one.dense})
                    for one in part
                ]
            )

    async def flush(self, written: Sequence[StoredObject]) -> None:
        """Have Weaviate hand its write-ahead logs to the operating system, if anything was written.

        A batch does so before its vectors are in the index (1.33.0 to 1.39.0), so they would be
        lost if the server died. A deletion in a dry run does it for each shard and replica.
        """
        if written:
            where = of_ids([written[-1].id])
            await self._write(lambda native: native.data.delete_many(where=where, dry_run=True))

    async def _put(self, objects: list[DataObject[Any, Any]]) -> None:
        try:
            done = await self._write(lambda native: native.data.insert_many(objects))
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
            ProviderError: Weaviate could not delete one; others may be gone.
        """
        for part in _parts(ids, DELETE_OBJECTS):
            await self._delete(part)

    async def _delete(self, ids: Sequence[str]) -> None:
        done = await self._write(lambda native: native.data.delete_many(where=of_ids(ids)))
        if done.failed:
            raise ProviderError(
                f"{self._connection.provider_id}: Weaviate could not delete {done.failed} of"
                f" {len(ids)} chunks.",
                hint="Repeat the request.",
            )


def _stored(found: Any) -> StoredObject:
    vector = found.vector.get(VECTOR, []) if found.vector else []
    known = found.metadata
    score = (known.score if known.distance is None else known.distance) if known else None
    properties = {name: value for name, value in found.properties.items() if value is not None}
    return StoredObject(str(found.uuid), properties, vector, score or 0.0)


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _write_parts(
    objects: Sequence[StoredObject], limits: RequestLimits
) -> Iterator[list[StoredObject]]:
    part: list[StoredObject] = []
    size = 0
    for one in objects:
        more = 4 * len(one.dense) + sum(
            26 * len(value) if isinstance(value, list) else 4 * len(str(value))
            for value in one.properties.values()
        )
        if part and (len(part) == limits.write_objects or size + more > limits.write_bytes):
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part
