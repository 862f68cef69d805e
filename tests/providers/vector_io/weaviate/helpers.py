"""What the tests of remote::weaviate share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.write_ahead import FileWriteLog
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import WeaviateProvider

from ..engines import scratch_home
from ..registrations import registration
from .stand_in import StandIn


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration."""
    return registration("weaviate", **{"language": "simple", **settings})


def configured(server: StandIn, limits: Any = None, **config: Any) -> WeaviateProvider:
    """Return a provider on the stand-in."""
    config = {"timeout_seconds": 30, **config}
    url = f"http://127.0.0.1:{server.http_port}"
    settings = WeaviateConfig(url=url, grpc_port=server.grpc_port, **config)
    return WeaviateProvider("w1", settings, FileWriteLog.of_home(scratch_home()), limits)


@asynccontextmanager
async def opened(
    server: StandIn,
    *,
    config: Any = None,
    limits: Any = None,
    **settings: Any,
) -> AsyncIterator[EngineIndex]:
    """Open an index of a new vector DB, and close it in the end."""
    one = configured(server, limits, **(config or {}))
    index = await one.open_index(vector_db(**settings), create=True)
    try:
        yield index
    finally:
        await index.close()
        await one.close()  # the index may have been used after it was dropped


def chunks(*ids: str, text: str = "zebra", document: str | None = None) -> list[Chunk]:
    """Return chunks with these ids."""
    metadata = {"document_id": document} if document else {}
    return [Chunk(chunk_id=i, content=text, metadata=metadata) for i in ids]


def vectors(number: int) -> list[list[float]]:
    """Return equal embeddings."""
    return [[1.0, 0.0]] * number


async def found(one: EngineIndex, text: str = "zebra", k: int = 10, **options: Any) -> list[str]:
    """Return the ids of a keyword query."""
    response = await one.query(None, text, k, mode="keyword", **options)
    return [chunk.chunk_id for chunk in response.chunks]


async def searched(one: EngineIndex) -> list[str]:
    """Return the ids of a vector query."""
    response = await one.query([1, 0], k=10, mode="vector")
    return [chunk.chunk_id for chunk in response.chunks]
