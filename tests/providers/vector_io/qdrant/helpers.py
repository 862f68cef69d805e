"""What the tests of remote::qdrant share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing.indexes import chunk
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.provider import create_remote as create

from ..engines import scratch_home
from .qdrant_service import Service

T = TypeVar("T")

DB = VectorDB(
    identifier="notes",
    provider_id="cluster",
    provider_resource_id="notes",
    embedding_model="none",
    embedding_dimension=2,
    language="simple",
    created_at=1.0,
)
CHUNKS = [chunk("a", "zebra", x=1), chunk("b", "lion", x=2), chunk("c", "zebra lion", x=2.5)]
ROWS = [[1, 0], [0, 1], [1, 1]]


async def with_provider(
    service: Service, use: Callable[[QdrantProvider], Awaitable[T]], **settings: Any
) -> T:
    """Use a provider of the service and close it."""
    settings = {"url": service.url, "timeout_seconds": 30, "retries": 0, **settings}
    provider = create("cluster", QdrantConfig(**settings), scratch_home())
    try:
        return await use(provider)
    finally:
        await provider.close()


async def filled(provider: QdrantProvider) -> EmbeddingIndex:
    """Make the vector DB with three chunks in it."""
    index = await provider.open_index(DB, create=True)
    await index.add_chunks(CHUNKS, ROWS)
    return index


def collection_of(provider: QdrantProvider) -> str:
    """Return the name of the test's collection."""
    return provider._server.config.collection_prefix + stored_name(DB)


def asked_of(service: Service, route: str) -> list[dict[str, Any]]:
    """Return the bodies of the requests to one route."""
    return [body for one, body in service.asked if one == route]
