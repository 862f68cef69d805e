"""Qdrant Edge's own types: its configuration, points, filters and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import qdrant_edge as qdrant

from corral.api.errors import ProviderError, Unavailable
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.client import version_index, versions
from corral.providers.vector_io.qdrant.records import (
    DENSE,
    INTEGER_INDEXES,
    KEYWORD_INDEX,
    ORDER_INDEX,
    SPARSE,
    FoundPoint,
    Json,
    Point,
    unpacked,
)

SCROLL_BATCH = 10_000
JOURNAL = "5b0c5f0e-0000-4000-8000-000000000000"
"""The point that says what a write has still to delete; no uuid5, so no chunk's id."""
EVERYTHING = 2**40
"""Larger than any number of points or bytes."""
FULL_SCAN_KB = 10_000
"""Qdrant's default, as m and ef_construct are: a filter that lets fewer embeddings through is
searched without the graph."""


@contextmanager
def errors(provider_id: str) -> Iterator[None]:
    """Translate the engine's errors, here and nowhere else. Their texts may quote data: dropped.

    The engine raises bare Exceptions, so these have to be caught, and panics, which are no
    Exceptions; anything more specific is not the engine's and passes.
    """
    try:
        yield
    except OSError as error:  # a folder of our own making
        raise ProviderError(f"{provider_id}: cannot write ({error.strerror}).") from error
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        if "WouldBlock" in str(error):
            raise Unavailable(
                f"{provider_id}: another process has this vector DB open.",
                hint="Qdrant Edge allows one process at a time. Stop the other one, or use "
                "remote::qdrant.",
            ) from error
        raise ProviderError(f"{provider_id}: Qdrant Edge failed.") from error


def config(vector_db: VectorDB) -> qdrant.EdgeConfig:
    """Return the configuration of a shard that is in use: it builds no graph, and keeps one."""
    by_distance = vector_db.metric is Metric.L2 and not vector_db.normalize
    return shard_config(vector_db.embedding_dimension, by_distance=by_distance, graph=False)


def shard_config(dimension: int, *, by_distance: bool, graph: bool) -> qdrant.EdgeConfig:
    """Return the configuration of a shard of one segment.

    Args:
        dimension: Of the embeddings.
        by_distance: Whether they are compared by Euclidean distance, not by the inner product.
        graph: Whether `optimize` builds a graph of all points.
    """
    return qdrant.EdgeConfig(
        vectors={
            DENSE: qdrant.EdgeVectorParams(
                size=dimension,
                distance=qdrant.Distance.Euclid if by_distance else qdrant.Distance.Dot,
            )
        },
        sparse_vectors={SPARSE: qdrant.EdgeSparseVectorParams()},
        hnsw_config=qdrant.HnswIndexConfig(
            m=16,
            ef_construct=100,
            full_scan_threshold=FULL_SCAN_KB,
            max_indexing_threads=max(1, (os.cpu_count() or 1) // 2),
        ),
        optimizers=qdrant.EdgeOptimizersConfig(
            default_segment_number=1,
            max_segment_size=EVERYTHING,
            indexing_threshold=1 if graph else EVERYTHING,
        ),
        max_search_threads=1,  # the lock is held for a search's whole time; more gain nothing
    )


def to_point(point: Point) -> qdrant.Point:
    """Return a point as the engine takes it."""
    vectors: dict[str, Any] = {DENSE: point.dense.tolist()}
    if point.sparse[0]:
        vectors[SPARSE] = qdrant.SparseVector(*point.sparse)
    return qdrant.Point(point.id, vectors, point.payload)


def to_found(found: qdrant.ScoredPoint | qdrant.Record) -> FoundPoint:
    """Return what the engine gave."""
    vectors: Any = found.vector
    dense = vectors[DENSE] if vectors and DENSE in vectors else []
    score = found.score if isinstance(found, qdrant.ScoredPoint) else 0.0
    [found_id] = point_ids([found])
    return FoundPoint(found_id, unpacked(found.payload or {}), score, dense)


def point_ids(points: Sequence[qdrant.ScoredPoint | qdrant.Record]) -> list[UUID]:
    """Return the ids of points. Each is made anew; to write it out would cost as much again."""
    return [point.id for point in points]  # type: ignore[misc]  # ours are UUIDs, never numbers


def payloads(
    shard: qdrant.EdgeShard, ids: Sequence[UUID], fields: Sequence[str]
) -> dict[int, Json]:
    """Return these fields of points, by their ids as integers."""
    records = shard.retrieve(list(ids), qdrant.PayloadSelector.Include(list(fields)), False)
    pairs = zip(point_ids(records), records, strict=True)
    return {one.int: unpacked(record.payload or {}) for one, record in pairs}


def delete(shard: qdrant.EdgeShard, ids: Sequence[str]) -> None:
    """Delete points; unknown ids are ignored."""
    shard.update(qdrant.UpdateOperation.delete_points(list(ids)))


def carry_over(shard: qdrant.EdgeShard, copy: qdrant.EdgeShard, ids: Sequence[str]) -> None:
    """Make points of a copy, which are some of these or none, those of the shard."""
    if not ids:
        return
    there = [
        qdrant.Point(found.id, found.vector or {}, found.payload)
        for found in shard.retrieve(list(ids), True, True)
    ]
    if there:
        copy.update(qdrant.UpdateOperation.upsert_points(there))
    gone = set(ids) - {str(point.id) for point in there}
    if gone:
        delete(copy, sorted(gone))


def finish(shard: qdrant.EdgeShard) -> None:
    """Delete what an interrupted write has left to be deleted, and its journal."""
    for record in shard.retrieve([JOURNAL], True, False):
        delete(shard, [*(record.payload or {})["delete"], JOURNAL])


def upgrade(shard: qdrant.EdgeShard, version: int) -> None:
    """Bring the indexes up to date, and record the version in place of earlier ones.

    Only `attributes` takes part in the graph of a filtered search.
    """
    integers = qdrant.IntegerIndexParams(lookup=True, range=False, enable_hnsw=False)
    schemas: dict[str, Any] = {
        **dict.fromkeys(INTEGER_INDEXES, integers),
        KEYWORD_INDEX: qdrant.KeywordIndexParams(),
        ORDER_INDEX: qdrant.FloatIndexParams(enable_hnsw=False),
        version_index(version): qdrant.BoolIndexParams(),
    }
    there = shard.info().payload_schema
    for name, schema in schemas.items():
        if name not in there:
            shard.update(qdrant.UpdateOperation.create_field_index(name, schema))
    for earlier in versions(there):
        if earlier != version:
            shard.update(qdrant.UpdateOperation.delete_field_index(version_index(earlier)))


def count(shard: qdrant.EdgeShard, filter_: Json | None) -> int:
    """Return the number of points that pass a filter of one condition, or none.

    An exact count would visit every one of them. An estimate is as right: an index knows how many
    points have a value, and no optimizer runs behind the shard's back.
    """
    selected = to_filter(filter_) if filter_ else None
    return shard.count(qdrant.CountRequest(exact=False, filter=selected))


def passing(shard: qdrant.EdgeShard, filter_: Json) -> Iterator[str]:
    """Yield the ids of the points that pass."""
    offset: Any = None
    while True:
        request = qdrant.ScrollRequest(
            offset=offset, limit=SCROLL_BATCH, filter=to_filter(filter_), with_payload=False
        )
        records, offset = shard.scroll(request)
        yield from (str(record.id) for record in records)
        if offset is None:
            return


def chunk_ids(shard: qdrant.EdgeShard) -> Iterator[str]:
    """Yield the chunk ids of all points, unordered."""
    only = qdrant.PayloadSelector.Include(["chunk_id"])
    offset: Any = None
    while True:
        request = qdrant.ScrollRequest(offset=offset, limit=SCROLL_BATCH, with_payload=only)
        records, offset = shard.scroll(request)
        yield from (record.payload["chunk_id"] for record in records if record.payload)
        if offset is None:
            return


def to_filter(data: Json) -> qdrant.Filter:
    """Return a filter as the engine's own objects."""
    parts = {kind: [_condition(part) for part in data[kind]] for kind in data}
    return qdrant.Filter(
        must=parts.get("must"), should=parts.get("should"), must_not=parts.get("must_not")
    )


def _condition(data: Json) -> Any:
    if "key" not in data:
        return to_filter(data)
    if "range" in data:
        return qdrant.FieldCondition(data["key"], range=qdrant.RangeFloat(**data["range"]))
    match = data["match"]
    wanted = qdrant.MatchAny(match["any"]) if "any" in match else qdrant.MatchValue(match["value"])
    return qdrant.FieldCondition(data["key"], match=wanted)
