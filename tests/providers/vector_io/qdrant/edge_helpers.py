"""What the tests of inline::qdrant share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corral.api.engine_index import EngineIndex
from corral.api.testing.indexes import ids
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.provider import QdrantEdgeProvider, create


def registered(**settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB.model_validate(
        {
            "identifier": "notes",
            "provider_id": "edge",
            "provider_resource_id": "notes",
            "embedding_model": "none",
            "embedding_dimension": 2,
            "language": "simple",
            "field_weights": {"content": 1.0},
            "created_at": 1.0,
            **settings,
        }
    )


def provider_of(folder: Path, **settings: Any) -> QdrantEdgeProvider:
    """Return a provider."""
    return create("edge", QdrantEdgeConfig(folder=folder, **settings), folder)


async def opened(folder: Path, **settings: Any) -> EngineIndex:
    """Open the vector DB, made where it is absent."""
    return await provider_of(folder).open_index(registered(**settings), create=True)


async def found_by_words(index: EngineIndex, text: str, k: int = 10) -> list[str]:
    """Return what keyword mode finds."""
    return ids(await index.query(None, text, k, mode="keyword"))
