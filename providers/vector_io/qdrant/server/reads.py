"""Reading a collection on a Qdrant server, through qdrant-client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from qdrant_client import models

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.filters import all_but
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    SPARSE,
    FoundPoint,
    Json,
    PointId,
    unpacked,
)
from corral.providers.vector_io.qdrant.server.client import Server

T = TypeVar("T")

READ_POINTS = 1_000
READ_NUMBERS = 100_000
"""Most of one answer with vectors: the client reads it in one piece, on the event loop."""

SCROLL_BATCH = 5_000
FACET_VALUES = 10_000
COUNTS_AT_ONCE = 8

UNLIMITED = 2**31
_AT_REST = (models.CollectionStatus.GREEN, models.CollectionStatus.GREY)
"""Statuses in which no segment is being rewritten."""


class ServerReads:
    """The reading half of a collection. What it asks for stays within the server's strict mode.

    Filters are JSON objects in Qdrant's form.
    """

    def __init__(self, vector_db: VectorDB, name: str, server: Server) -> None:
        self._vector_db = vector_db
        self._name = name
        self._server = server
        self._client = server.client
        self._limits = models.StrictModeConfigOutput()  # as of the latest `_info`
        self._rewriting = False  # when `counts` last asked

    async def _info(self) -> models.CollectionInfo:
        """Return what the server says of the collection, and keep its limits in mind."""
        info = await self._call(self._client.get_collection)
        strict = info.config.strict_mode_config
        self._limits = strict if strict and strict.enabled else models.StrictModeConfigOutput()
        return info

    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the nearest dense vectors, best first."""
        config = self._server.config
        width = min(max(config.hnsw_ef, limit), self._limits.search_max_hnsw_ef or UNLIMITED)
        found = await self._call(
            self._client.query_points,
            query=list(embedding),
            using=DENSE,
            limit=limit,
            query_filter=_filter(filter_),
            search_params=models.SearchParams(exact=config.exact, hnsw_ef=width),
            with_payload=list(fields),
        )
        return [_found(point) for point in found.points]

    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the largest inner products, best first."""
        found = await self._call(
            self._client.query_points,
            query=models.SparseVector(indices=sparse[0], values=sparse[1]),
            using=SPARSE,
            limit=limit,
            query_filter=_filter(filter_),
            with_payload=list(fields),
        )
        return [_found(point) for point in found.points]

    async def fetch(
        self, ids: Sequence[PointId], fields: Sequence[str], dense: bool
    ) -> list[FoundPoint]:
        """Return those of these points that exist."""
        vectors = [DENSE] if dense else False
        found = await self._retrieve(ids, list(fields), vectors)
        return [_found(record) for record in found]

    async def _retrieve(
        self, ids: Sequence[PointId], fields: list[str] | bool, vectors: list[str] | bool
    ) -> list[models.Record]:
        found: list[models.Record] = []
        size = self._whole_points if vectors else READ_POINTS
        for start in range(0, len(ids), size):
            found += await self._call(
                self._client.retrieve,
                ids=list(ids[start : start + size]),
                with_payload=fields,
                with_vectors=vectors,
            )
        return found

    @property
    def _whole_points(self) -> int:
        """How many points with their vectors are read at once."""
        return max(1, min(READ_POINTS, READ_NUMBERS // self._vector_db.embedding_dimension))

    async def scroll(self, filter_: Json, limit: int) -> list[FoundPoint]:
        """Return some points that pass, whole."""
        records, _ = await self._call(
            self._client.scroll,
            scroll_filter=_filter(filter_),
            limit=min(limit, self._whole_points, self._page),
            with_payload=True,
            with_vectors=[DENSE],
        )
        return [_found(record) for record in records]

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one. Qdrant orders no texts: all are read."""
        first: list[str] = []
        offset: Any = None
        while True:
            records, offset = await self._call(
                self._client.scroll, limit=self._page, offset=offset, with_payload=["chunk_id"]
            )
            ids = ((record.payload or {})["chunk_id"] for record in records)
            first = sorted(chain(first, (i for i in ids if i > after)))[:limit]
            if offset is None:
                return first

    @property
    def _page(self) -> int:
        """How many points without their vectors are read at once."""
        return min(SCROLL_BATCH, self._limits.max_query_limit or UNLIMITED)

    async def count(self) -> int:
        """Return the number of points."""
        return await self._counted(None, exact=self._limits.search_allow_exact is not False)

    async def count_passing(self, filter_: Json) -> int:
        """Return the number of points that pass."""
        return await self._counted(filter_, exact=self._limits.search_allow_exact is not False)

    async def counts(self, filters: Sequence[Json]) -> list[int]:
        """Return the number of points that pass, for each filter of one condition.

        An index knows the number of points with a value, so one that is not exact is as right and
        costs nothing; only while a segment is rewritten the server estimates what was deleted from
        it meanwhile. Then the points are counted, where strict mode allows it.
        """
        found: list[int] | None = None
        if self._rewriting:
            info = await self._info()
        else:
            info, found = await asyncio.gather(self._info(), self._count_all(filters, exact=False))
        self._rewriting = info.status not in _AT_REST
        exact = self._rewriting and self._limits.search_allow_exact is not False
        if found is None or exact:
            found = await self._count_all(filters, exact=exact)
        return found

    async def _count_all(self, filters: Sequence[Json], *, exact: bool) -> list[int]:
        found: list[int] = []
        for start in range(0, len(filters), COUNTS_AT_ONCE):
            some = filters[start : start + COUNTS_AT_ONCE]
            found += await asyncio.gather(*(self._counted(one, exact=exact) for one in some))
        return found

    async def _counted(self, filter_: Json | None, *, exact: bool) -> int:
        found = await self._call(self._client.count, count_filter=_filter(filter_), exact=exact)
        return found.count

    async def facet(self, name: str) -> Mapping[int, int]:
        """Return the number of points by value of a field, read from its index.

        An exact facet would visit every point for every value.
        """
        found: dict[int, int] = {}
        limit = min(FACET_VALUES, self._limits.max_query_limit or UNLIMITED)
        while True:
            answer = await self._call(
                self._client.facet,
                key=name,
                limit=limit,
                exact=False,
                facet_filter=_filter(all_but(name, list(found))),
            )
            found |= {int(hit.value): hit.count for hit in answer.hits}
            if len(answer.hits) < limit:
                return found

    async def _passing(self, filter_: Json) -> list[str]:
        """Return the ids of the points that pass."""
        ids: list[str] = []
        offset: Any = None
        while True:
            records, offset = await self._call(
                self._client.scroll,
                scroll_filter=_filter(filter_),
                limit=self._page,
                offset=offset,
                with_payload=False,
            )
            ids += [str(record.id) for record in records]
            if offset is None:
                return ids

    async def _call(self, method: Callable[..., Awaitable[T]], **arguments: Any) -> T:
        return await self._server.call(
            lambda: method(collection_name=self._name, **arguments), collection=self._name
        )


def _found(found: models.ScoredPoint | models.Record) -> FoundPoint:
    vectors: Any = found.vector
    score = found.score if isinstance(found, models.ScoredPoint) else 0.0
    dense = vectors[DENSE] if vectors and DENSE in vectors else []
    return FoundPoint(str(found.id), unpacked(found.payload or {}), score, dense)


def _filter(data: Json | None) -> models.Filter | None:
    """Return a filter as the client's own object, which has the same form."""
    return models.Filter.model_validate(data) if data else None
