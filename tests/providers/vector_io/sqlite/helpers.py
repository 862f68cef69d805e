"""What the tests of inline::sqlite share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.hits import QueryChunksResponse
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import SqliteProvider, create

DIMENSION = 16


def vector_db(identifier: str = "db", **settings: Any) -> VectorDB:
    """Return a registration."""
    return VectorDB(
        identifier=identifier,
        provider_id="sqlite",
        provider_resource_id=identifier,
        embedding_model="test",
        embedding_dimension=DIMENSION,
        **settings,
    )


def provider(folder: Path, **config: Any) -> SqliteProvider:
    """Return a provider on a folder."""
    return create("sqlite", SqliteConfig(folder=folder, **config), folder)


async def open_index(folder: Path, *, config: Any = None, **settings: Any) -> EmbeddingIndex:
    """Return an index, made where it is absent; every call is like another process."""
    return await provider(folder, **(config or {})).open_index(vector_db(**settings), create=True)


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Return seeded embeddings."""
    return np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)


def some_chunks(count: int, document: str = "d") -> list[Chunk]:
    """Return chunks of one document, alternately grazing and sleeping."""
    return [
        Chunk(
            content=f"number {number} of the herd {'grazes' if number % 2 else 'sleeps'}",
            chunk_id=f"{document}-{number:04d}",
            metadata={"document_id": document, "n": number, "odd": bool(number % 2)},
        )
        for number in range(count)
    ]


def found(answer: QueryChunksResponse) -> list[tuple[str, float]]:
    """Return what was found, in order, with scores to 6 digits."""
    return [(hit.chunk.chunk_id, round(hit.score, 6)) for hit in answer.hits]
