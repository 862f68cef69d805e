"""A collection in Qdrant Edge: Qdrant's engine in this process, a shard in a folder of its own."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from corral.api.errors import NotFound, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.records import CHUNK_FIELDS
from corral.providers.vector_io.qdrant.client import Collection, versions
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge import client
from corral.providers.vector_io.qdrant.edge.graph import GraphBuilder
from corral.providers.vector_io.qdrant.edge.memory import Memory
from corral.providers.vector_io.qdrant.edge.shard import Shard, ShardFolder
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    SPARSE,
    VERSION,
    FoundPoint,
    Json,
    Point,
    PointId,
)

_uuid = lru_cache(maxsize=1 << 14)(UUID)  # reading one takes as long as finding its point

FLUSH_AFTER = 5_000
"""Points written between two flushes, which shorten the log that an opening has to replay."""

VACUUM_AFTER = 10_000
"""Fewest deleted points for which the shard is rewritten while it is open."""

SEARCHED = ("chunk_id", "words", "length")
"""What searches read of a point, and keep in memory."""

MOST_SEARCHED = 50_000
"""Points of which it is kept; about 1 KB each."""

MOST_CHUNKS = 10_000
"""Chunks that are kept, once they were in an answer."""

LONGEST_TEXT = 4_096
"""Characters of the longest text of a chunk that is kept: 10,000 of them take 40 MB."""

WALKING_SHARE = 0.5
"""Share of the points that pass a filter from which on the graph is walked. At 100,000 points it
finds 99 of 100 where half of them pass, and 81 where a tenth does, and then takes longer, too."""


class EdgeCollection(Shard, Collection):
    """One shard, and what is kept of it in memory.

    Args:
        config: The provider's settings.
        graphed: Points in the shard's graph.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        folder: ShardFolder,
        shard: qdrant.EdgeShard,
        config: QdrantEdgeConfig,
        graphed: int = 0,
    ) -> None:
        super().__init__(vector_db, folder, shard)
        self._hnsw_ef = config.hnsw_ef
        self._flush_after = 1 if config.flush_each_write else FLUSH_AFTER
        self._sorted: list[str] | None = None  # all chunk ids, until the next write
        self._searched = Memory(SEARCHED, MOST_SEARCHED, client.EVERYTHING)
        self._chunks = Memory(CHUNK_FIELDS, MOST_CHUNKS, LONGEST_TEXT)
        self._unflushed = self._deleted = 0
        self._graph: GraphBuilder | None = None
        if not config.exact:
            self._graph = GraphBuilder(vector_db, self, graphed, client.count(shard, None))

    @classmethod
    def open(cls, vector_db: VectorDB, path: Path, config: QdrantEdgeConfig) -> EdgeCollection:
        """Open a shard, finish what a killed process has begun, and clear out deleted points.

        Raises:
            NotFound: There is none.
            Unavailable: Another process has it open.
        """
        folder = ShardFolder(path)
        if not folder.is_complete:
            raise NotFound(
                f"The folder of vector DB {vector_db.identifier!r} is gone.",
                hint="Delete the vector DB and register it again.",
                field="vector_db_id",
            )
        with client.errors(vector_db.provider_id):
            shard, graphed = folder.open(client.config(vector_db))
            client.finish(shard)
            if config.exact and graphed:
                graphed = folder.forget_graph()
            if not graphed:
                shard.optimize()
            return cls(vector_db, folder, shard, config, graphed)

    @classmethod
    def make(cls, vector_db: VectorDB, path: Path, config: QdrantEdgeConfig) -> EdgeCollection:
        """Make an empty shard in a folder that does not exist, or open the one that is there.

        Raises:
            ProviderError: The folder cannot be written to; nothing is left of it.
        """
        folder = ShardFolder(path)
        if folder.is_complete:
            return cls.open(vector_db, path, config)
        try:
            with client.errors(vector_db.provider_id):
                folder.begin()
                shard = qdrant.EdgeShard.create(str(path), client.config(vector_db))
                client.upgrade(shard, VERSION)
                shard.flush()
                folder.finish()
                return cls(vector_db, folder, shard, config)
        except BaseException:
            folder.delete()
            raise

    # --- reading -----------------------------------------------------------------------------

    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the nearest dense vectors, best first."""
        if self._graph:
            self._graph.ask()
        query = qdrant.Query.Nearest(list(embedding), using=DENSE)
        return await self._query(query, limit, filter_, fields, by_graph=True)

    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the largest inner products, best first."""
        query = qdrant.Query.Nearest(qdrant.SparseVector(*sparse), using=SPARSE)
        return await self._query(query, limit, filter_, fields)

    async def _query(
        self,
        query: qdrant.Query,
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
        *,
        by_graph: bool = False,
    ) -> list[FoundPoint]:
        narrowed = client.to_filter(filter_) if filter_ else None

        def ask(shard: qdrant.EdgeShard, params: qdrant.SearchParams) -> list[qdrant.ScoredPoint]:
            request = qdrant.QueryRequest(
                limit=limit, query=query, filter=narrowed, params=params, with_payload=False
            )
            return shard.query(request)

        def search(shard: qdrant.EdgeShard) -> list[FoundPoint]:
            points: list[qdrant.ScoredPoint] = []
            if by_graph and self._walks(shard, filter_):
                width = max(self._hnsw_ef, limit)
                points = ask(shard, qdrant.SearchParams(hnsw_ef=width))
            if len(points) < limit:  # equal embeddings are badly linked, and most are not reached
                points = ask(shard, qdrant.SearchParams(exact=True))
            ids = client.point_ids(points)
            payloads = self._payloads(shard, ids, fields)
            return [
                FoundPoint(one, payload or {}, point.score)
                for point, one, payload in zip(points, ids, payloads, strict=True)
            ]

        return await self._read(search)

    def _walks(self, shard: qdrant.EdgeShard, filter_: Json | None) -> bool:
        """Return True if a search is to walk the graph, which misses much where few points pass."""
        if not (self._graph and self._graph.graphed):
            return False
        passing = client.count(shard, filter_) if filter_ else 1
        return not filter_ or passing >= WALKING_SHARE * client.count(shard, None)

    def _payloads(
        self, shard: qdrant.EdgeShard, ids: Sequence[UUID], fields: Sequence[str]
    ) -> Sequence[Json | None]:
        """Return these fields of some points, from memory where it can."""
        if self._searched.has(fields):
            return self._searched.read(shard, ids)
        found = client.payloads(shard, ids, fields)
        return [found.get(one.int) for one in ids]

    async def fetch(
        self, ids: Sequence[PointId], fields: Sequence[str], dense: bool
    ) -> list[FoundPoint]:
        """Return those of these points that exist."""
        if not dense and self._chunks.has(fields):
            uuids = [_uuid(str(one)) for one in ids]
            found = await self._read(lambda shard: self._chunks.read(shard, uuids))
            pairs = zip(uuids, found, strict=True)
            return [FoundPoint(one, payload) for one, payload in pairs if payload]
        selected = qdrant.PayloadSelector.Include(list(fields)) if fields else False
        vectors: Any = [DENSE] if dense else False
        return await self._read(
            lambda shard: [client.to_found(r) for r in shard.retrieve(list(ids), selected, vectors)]
        )

    async def scroll(self, filter_: Json, limit: int) -> list[FoundPoint]:
        """Return some points that pass, whole."""
        request = qdrant.ScrollRequest(
            limit=limit, filter=client.to_filter(filter_), with_payload=True, with_vector=[DENSE]
        )
        return await self._step(
            lambda shard: [client.to_found(record) for record in shard.scroll(request)[0]]
        )

    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one; they are sorted anew after a write."""

        def read(shard: qdrant.EdgeShard) -> list[str]:
            if self._sorted is None:
                self._sorted = sorted(client.chunk_ids(shard))
            ids = self._sorted
            start = bisect_right(ids, after)
            return ids[start : start + limit]

        return await self._step(read)

    async def count(self) -> int:
        """Return the number of points."""
        return await self._step(lambda shard: shard.count(qdrant.CountRequest(exact=True)))

    async def count_passing(self, filter_: Json) -> int:
        """Return the number of points that pass."""
        request = qdrant.CountRequest(exact=True, filter=client.to_filter(filter_))
        return await self._step(lambda shard: shard.count(request))

    async def counts(self, filters: Sequence[Json]) -> list[int]:
        """Return the number of points that pass, for each filter."""
        return await self._read(lambda shard: [client.count(shard, one) for one in filters])

    async def facet(self, name: str) -> Mapping[int, int]:
        """Return the number of points by value of a field."""
        request = qdrant.FacetRequest(name, limit=client.EVERYTHING, exact=False)
        return await self._read(lambda shard: {int(h.value): h.count for h in shard.facet(request)})

    # --- writing -----------------------------------------------------------------------------

    async def replace(self, points: Sequence[Point], stale: Json | None) -> None:
        """Write points, and drop the others that pass `stale`, in one transaction."""

        def write(shard: qdrant.EdgeShard) -> None:
            new = {point.id for point in points}
            self._forget(sorted(new))
            gone = sorted(set(client.passing(shard, stale)) - new) if stale else []
            if points:
                written = [client.to_point(point) for point in points]
                if gone:
                    written.append(qdrant.Point(client.JOURNAL, {}, {"delete": gone}))
                    gone.append(client.JOURNAL)
                    self._unfinished = True
                shard.update(qdrant.UpdateOperation.upsert_points(written))
            self._remove(gone)
            self._unfinished = False

        await self._writing_step(write, len(points))

    async def delete(self, ids: Sequence[str]) -> None:
        """Delete points; unknown ids are ignored."""
        await self._writing_step(lambda _: self._remove(list(ids)), len(ids))

    async def version(self) -> int:
        """Return the newest version that wrote the shard."""
        return await self._step(lambda shard: max(versions(shard.info().payload_schema), default=0))

    async def upgrade(self, version: int) -> None:
        """Bring the indexes up to date, and record the version."""
        await self._step(lambda shard: client.upgrade(shard, version))

    async def settle(self) -> None:
        """Wait until all points are in the graph, where they are enough for one."""
        if self._graph:
            await self._graph.settle()

    async def drop(self) -> None:
        """Close the shard and delete its folder; steps that follow raise NotFound."""
        await self._stop(NotFound)

    async def close(self) -> None:
        """Flush and close the shard; steps that follow raise Unavailable."""
        await self._stop(Unavailable)

    async def _stop(self, meaning: type[Unavailable | NotFound]) -> None:
        if self._graph:
            await self._graph.stop()
        await asyncio.to_thread(self._end, meaning)

    def _remove(self, ids: list[str]) -> None:
        if ids:
            self._forget(ids)
            client.delete(self._shard, ids)
            self._deleted += len(ids)

    def _forget(self, ids: Sequence[str]) -> None:
        super()._forget(ids)
        if self._graph:
            self._graph.changed += len(ids)
        uuids = [UUID(one) for one in ids]
        self._searched.forget(uuids)
        self._chunks.forget(uuids)

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._sorted = None
        self._searched.clear()
        self._chunks.clear()

    async def _writing_step(self, work: Callable[[qdrant.EdgeShard], None], size: int) -> None:
        def write(shard: qdrant.EdgeShard) -> None:
            self._sorted = None
            work(shard)
            self._unflushed += max(size, 1)
            if self._unflushed >= self._flush_after:
                shard.flush()
                self._unflushed = 0
            if self._deleted > VACUUM_AFTER and self._deleted > client.count(shard, None):
                self._vacuum(shard)

        await self._step(write)
        if self._graph:
            self._graph.ask(size)

    def _vacuum(self, shard: qdrant.EdgeShard) -> None:
        """Rewrite the shard without deleted points; that of a graph is rewritten with the graph."""
        if not (self._graph and self._graph.graphed):
            shard.optimize()
            self._deleted = 0
