"""The part of Qdrant's API that chat UIs use for external vector databases: reads by vector.

Collections are vector DBs. Scores are on Qdrant's scale, because clients map them to [0, 1]
themselves. Usually this is the cosine, 2 * score - 1 with Corral's score; if the vector DB keeps
lengths (`normalize: false`), it is the inner product under dot and the distance under l2.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field

from corral.api.chunks import Chunk
from corral.api.document_names import source_of, title_of
from corral.api.hits import Hit
from corral.api.scoring import Metric
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.api.wire import Strict
from corral.server.access import audit
from corral.server.access.roles import READER
from corral.server.limits import check_max_chunks
from corral.server.routers import Application, refusals
from corral.server.routing import LimitsOf, NotFoundRoute, PathId, StackOf

VERSION = "1.20.0"
"""The version of Qdrant that these replies follow; Qdrant's client compares it with its own."""

USER_AGENT = "python-client/"
"""Prefix of the User-Agent of Qdrant's Python client."""

_DISTANCES = {Metric.COSINE: "Cosine", Metric.DOT: "Dot", Metric.L2: "Euclid"}


class QdrantStatus(BaseModel):
    """The error."""

    error: str


class QdrantError(BaseModel):
    """An error in Qdrant's format."""

    result: None = None
    status: QdrantStatus
    time: float


router = APIRouter(tags=["Qdrant"], route_class=NotFoundRoute, responses=refusals(QdrantError))


def _nearest(query: Any) -> Any:
    return query["nearest"] if isinstance(query, dict) and set(query) == {"nearest"} else query


def _nothing(value: Any) -> None:
    if value not in (None, [], {}):
        raise ValueError("is not supported here; use Corral's own API")


Unserved = Annotated[None, BeforeValidator(_nothing)]


class PointsQuery(Strict):
    """A query by vector. Corral refuses fields of Qdrant that it does not support, unless null."""

    query: Annotated[list[float], BeforeValidator(_nearest)] = Field(
        description="The question's embedding, or `{nearest: embedding}`."
    )
    using: str | None = Field(default=None, description="Ignored: a point has only one vector.")
    limit: int = Field(default=10, ge=1, description="At most `server.limits.max_k`.")
    offset: int = Field(default=0, ge=0, description="Number of best points to skip.")
    score_threshold: float | None = Field(
        default=None, description="Minimum score; for Euclid, the maximum distance."
    )
    with_payload: bool | list[str] | dict[str, Any] | None = Field(
        default=None, description="false: no payload; anything else: the whole payload."
    )
    with_vector: bool | list[str] | None = None
    params: dict[str, Any] | None = Field(
        default=None, description="Ignored: settings of Qdrant's index."
    )
    filter: Unserved = None
    prefetch: Unserved = None
    lookup_from: Unserved = None
    shard_key: Unserved = None


class Point(BaseModel):
    """A chunk."""

    id: str
    version: int = 0
    score: float = Field(
        description="Score in the collection's distance: cosine in [-1, 1], inner product (Dot) "
        "or distance (Euclid)."
    )
    payload: dict[str, Any] | None = Field(
        description="text, page_content (the same) and metadata."
    )
    vector: list[float] | None = None


class Points(BaseModel):
    """The best points."""

    points: list[Point]


class PointsReply(BaseModel):
    """The best points, in Qdrant's envelope."""

    result: Points
    status: str = "ok"
    time: float


class Envelope(BaseModel):
    """An answer in Qdrant's envelope."""

    result: dict[str, Any]
    status: str = "ok"
    time: float


class About(BaseModel):
    """Version information for Qdrant's clients."""

    title: str = "qdrant - vector search engine"
    version: str = VERSION


@router.get("/qdrant", summary="The version of Qdrant's API")
@router.get("/qdrant/", include_in_schema=False)
async def about(_: StackOf) -> About:
    """Return the version of the API."""
    return About()


@router.get("/qdrant/collections", summary="List the vector DBs (Qdrant)")
@router.get("/collections", include_in_schema=False)
async def collections(stack: StackOf) -> Envelope:
    """Return the vector DBs as collections."""
    started = time.perf_counter()
    names = [{"name": vector_db.identifier} for vector_db in await stack.vector_dbs()]
    return Envelope(result={"collections": names}, time=time.perf_counter() - started)


@router.get("/qdrant/collections/{collection:id}", summary="Show a vector DB (Qdrant)")
@router.get("/collections/{collection:id}", include_in_schema=False)
async def collection(collection: PathId, stack: StackOf) -> Envelope:
    """Return a vector DB as a collection."""
    started = time.perf_counter()
    index = await stack.index(collection)
    known = index.vector_db
    vectors = {"size": known.embedding_dimension, "distance": _DISTANCES[_metric(known)]}
    count = await index.count()
    result = {
        "status": "green",
        "optimizer_status": "ok",
        "points_count": count,
        "indexed_vectors_count": count,
        "segments_count": 1,
        "payload_schema": {},
        "config": {
            "params": {"vectors": vectors, "on_disk_payload": True},
            "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
            "optimizer_config": {
                "deleted_threshold": 0.2,
                "vacuum_min_vector_number": 1000,
                "default_segment_number": 0,
                "flush_interval_sec": 5,
            },
        },
    }
    return Envelope(result=result, time=time.perf_counter() - started)


@router.post(
    "/qdrant/collections/{collection:id}/points/query",
    summary="Query a vector DB by vector (Qdrant)",
    dependencies=[READER],
)
@router.post(
    "/collections/{collection:id}/points/query", include_in_schema=False, dependencies=[READER]
)
async def query(
    collection: PathId, request: PointsQuery, stack: StackOf, limits: LimitsOf
) -> PointsReply:
    """Return the points nearest to a vector. Open WebUI's external knowledge uses this."""
    started = time.perf_counter()
    wanted = request.limit + request.offset
    check_max_chunks(wanted, limits, field="limit")
    index = await stack.index(collection)
    reply = await index.query(
        request.query,
        k=wanted,
        mode=SearchMode.VECTOR,
        include_embeddings=bool(request.with_vector),
    )
    points = [_point(hit, index.vector_db, request.with_payload is not False) for hit in reply.hits]
    points = [point for point in points if _passes(point, request.score_threshold, index.vector_db)]
    del points[: request.offset]
    audit.current().returns(collection, [point.id for point in points])
    return PointsReply(result=Points(points=points), time=time.perf_counter() - started)


def _metric(vector_db: VectorDB) -> Metric:
    """Return the metric of the scores; for unit vectors it is always the cosine."""
    return Metric.COSINE if vector_db.normalize else vector_db.metric


def _passes(point: Point, threshold: float | None, vector_db: VectorDB) -> bool:
    if threshold is None:
        return True
    nearer_is_less = _metric(vector_db) is Metric.L2
    return point.score <= threshold if nearer_is_less else point.score >= threshold


def _point(hit: Hit, vector_db: VectorDB, with_payload: bool) -> Point:
    chunk = hit.chunk
    return Point(
        id=chunk.chunk_id,
        score=_score(hit, _metric(vector_db)),
        payload=payload(chunk) if with_payload else None,
        vector=chunk.embedding,
    )


def _score(hit: Hit, metric: Metric) -> float:
    if metric is Metric.COSINE:
        return 2 * hit.score - 1
    raw = hit.explanation.legs["vector"].raw_score
    return abs(raw) if metric is Metric.L2 else raw


def payload(chunk: Chunk) -> dict[str, Any]:
    """Return the payload of a point, with the keys that clients of vector databases read."""
    name = title_of(chunk)
    metadata = {"source": source_of(chunk) or name, "name": name, **chunk.metadata}
    return {"text": chunk.content, "page_content": chunk.content, "metadata": metadata}


APPLICATION = Application(
    router,
    paths=("/qdrant", "/collections"),
    refusal=lambda status, code, message: {
        "result": None,
        "status": {"error": message},
        "time": 0.0,
    },
    description="Vector DBs over Qdrant's API, for chat UIs.",
    root_replies={USER_AGENT: About()},
)
