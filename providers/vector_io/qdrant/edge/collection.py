"""A collection in Qdrant Edge: Qdrant's engine in this process, a shard in a folder of its own."""

from __future__ import annotations

import asyncio
import shutil
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import qdrant_edge as qdrant

from corral.api.errors import NotFound, ProviderError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.records import CHUNK_FIELDS
from corral.providers.vector_io.qdrant.client import Collection, versions
from corral.providers.vector_io.qdrant.edge import client
from corral.providers.vector_io.qdrant.edge.memory import Memory
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    SPARSE,
    VERSION,
    FoundPoint,
    Json,
    Point,
    PointId,
)

T = TypeVar("T")

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

_COMPLETE = "complete"  # a file beside the engine's, made last


class EdgeCollection(Collection):
    """One shard. The engine is synchronous and holds the interpreter's lock while it works.

    Each call is one step, and steps exclude each other; a step on a shard that was closed or
    dropped says so. A search is a step where it is called, and any other is one in a thread: a
    thread frees nobody from waiting for a search, and going there and back takes as long as one.

    A write of several operations is one step, and one transaction too: its first operation leaves a
    journal of what is to be deleted, its last one deletes the journal with it, and the next step,
    or whoever opens the shard, finishes what a failure or a kill has interrupted. An operation is
    one entry of the engine's log.

    Args:
        shard: The shard, open.
        flush_each_write: Whether writes outlive a loss of power.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        folder: Path,
        shard: qdrant.EdgeShard,
        *,
        flush_each_write: bool,
    ) -> None:
        self._provider_id = vector_db.provider_id
        self._folder = folder
        self._shard = shard
        self._flush_after = 1 if flush_each_write else FLUSH_AFTER
        self._lock = threading.Lock()
        self._ended: type[Unavailable | NotFound] | None = None  # what a step then raises
        self._unfinished = False  # whether a journal may be there
        self._sorted: list[str] | None = None  # all chunk ids, until the next write
        self._searched = Memory(SEARCHED, MOST_SEARCHED, client.EVERYTHING)
        self._chunks = Memory(CHUNK_FIELDS, MOST_CHUNKS, LONGEST_TEXT)
        self._unflushed = self._deleted = 0

    @classmethod
    def open(cls, vector_db: VectorDB, folder: Path, *, flush_each_write: bool) -> EdgeCollection:
        """Open a shard, finish what a killed process has begun, and clear out deleted points.

        Raises:
            NotFound: There is none.
            Unavailable: Another process has it open.
        """
        if not (folder / _COMPLETE).exists():
            raise NotFound(
                f"The folder of vector DB {vector_db.identifier!r} is gone.",
                hint="Delete the vector DB and register it again.",
                field="vector_db_id",
            )
        with client.errors(vector_db.provider_id):
            shard = qdrant.EdgeShard.load(str(folder), client.config(vector_db))
            client.finish(shard)
            shard.optimize()
            return cls(vector_db, folder, shard, flush_each_write=flush_each_write)

    @classmethod
    def make(cls, vector_db: VectorDB, folder: Path, *, flush_each_write: bool) -> EdgeCollection:
        """Make an empty shard in a folder that does not exist, or open the one that is there.

        Raises:
            ProviderError: The folder cannot be written to; nothing is left of it.
        """
        if (folder / _COMPLETE).exists():
            return cls.open(vector_db, folder, flush_each_write=flush_each_write)
        shutil.rmtree(folder, ignore_errors=True)  # a killed process may have left half of it
        try:
            with client.errors(vector_db.provider_id):
                folder.mkdir(parents=True)
                shard = qdrant.EdgeShard.create(str(folder), client.config(vector_db))
                client.upgrade(shard, VERSION)
                shard.flush()
                (folder / _COMPLETE).touch()
                return cls(vector_db, folder, shard, flush_each_write=flush_each_write)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
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
        query = qdrant.Query.Nearest(list(embedding), using=DENSE)
        return await self._query(query, limit, filter_, fields)

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
        self, query: qdrant.Query, limit: int, filter_: Json | None, fields: Sequence[str]
    ) -> list[FoundPoint]:
        request = qdrant.QueryRequest(
            limit=limit,
            query=query,
            filter=client.to_filter(filter_) if filter_ else None,
            params=qdrant.SearchParams(exact=True),
            with_payload=False,
        )

        def search(shard: qdrant.EdgeShard) -> list[FoundPoint]:
            points = shard.query(request)
            ids = [client.point_id(point) for point in points]
            payloads = self._payloads(shard, ids, fields)
            pairs = zip(points, ids, strict=True)
            return [FoundPoint(i, payloads[i.int], point.score) for point, i in pairs]

        return await self._read(search)

    def _payloads(
        self, shard: qdrant.EdgeShard, ids: Sequence[UUID], fields: Sequence[str]
    ) -> Mapping[int, Json]:
        """Return these fields of some points by their ids as integers, from memory where it can."""
        if self._searched.has(fields):
            return self._searched.read(shard, ids)
        return client.payloads(shard, ids, fields)

    async def fetch(
        self, ids: Sequence[PointId], fields: Sequence[str], dense: bool
    ) -> list[FoundPoint]:
        """Return those of these points that exist."""
        if not dense and self._chunks.has(fields):
            uuids = [_uuid(str(one)) for one in ids]
            found = await self._read(lambda shard: self._chunks.read(shard, uuids))
            return [FoundPoint(one, found[one.int]) for one in uuids if one.int in found]
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
            self._forget(new)
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

    async def drop(self) -> None:
        """Close the shard and delete its folder; steps that follow raise NotFound."""
        await asyncio.to_thread(self._end, NotFound)

    async def close(self) -> None:
        """Flush and close the shard; steps that follow raise Unavailable."""
        await asyncio.to_thread(self._end, Unavailable)

    def _end(self, meaning: type[Unavailable | NotFound]) -> None:
        dropping = meaning is NotFound
        with self._lock:
            was_open, self._ended = self._ended is None, self._ended or meaning
            try:
                if was_open:
                    with client.errors(self._provider_id):
                        self._shard.close()
            except ProviderError:
                if not dropping:  # what could not be flushed goes with the folder
                    raise
            finally:
                if dropping:
                    self._ended = NotFound
                    (self._folder / _COMPLETE).unlink(missing_ok=True)
                    shutil.rmtree(self._folder, ignore_errors=True)

    def _remove(self, ids: list[str]) -> None:
        if ids:
            self._forget(ids)
            client.delete(self._shard, ids)
            self._deleted += len(ids)

    def _forget(self, ids: Iterable[str]) -> None:
        uuids = [UUID(one) for one in ids]
        self._searched.forget(uuids)
        self._chunks.forget(uuids)

    # --- steps -------------------------------------------------------------------------------

    async def _read(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        """Take a step here, unless it would wait for another one."""
        if self._unfinished or not self._lock.acquire(blocking=False):
            return await self._step(work)
        try:
            return self._taken(work)
        finally:
            self._lock.release()

    async def _step(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        return await asyncio.to_thread(self._locked, work)

    async def _writing_step(self, work: Callable[[qdrant.EdgeShard], None], size: int) -> None:
        def write(shard: qdrant.EdgeShard) -> None:
            self._sorted = None
            work(shard)
            self._unflushed += max(size, 1)
            if self._unflushed >= self._flush_after:
                shard.flush()
                self._unflushed = 0
            if self._deleted > VACUUM_AFTER and self._deleted > client.count(shard, None):
                shard.optimize()
                self._deleted = 0

        await self._step(write)

    def _locked(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        with self._lock:
            return self._taken(work)

    def _taken(self, work: Callable[[qdrant.EdgeShard], T]) -> T:
        self._check_open()
        with client.errors(self._provider_id):
            if self._unfinished:
                self._sorted = None
                self._searched.clear()
                self._chunks.clear()
                client.finish(self._shard)
                self._unfinished = False
            return work(self._shard)

    def _check_open(self) -> None:
        if self._ended is NotFound:
            raise NotFound(
                f"{self._provider_id}: this vector DB was deleted.", field="vector_db_id"
            )
        if self._ended is Unavailable:
            raise Unavailable(f"{self._provider_id}: this vector DB was closed.", hint="Try again.")
