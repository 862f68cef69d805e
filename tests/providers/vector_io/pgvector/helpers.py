"""What the tests of remote::pgvector share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.hits import QueryChunksResponse
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.provider import PgvectorProvider
from corral.providers.vector_io.pgvector.records import Tables, Tuning

from ..registrations import registration
from .conftest import Server

_numbers = count()


def provider(server: Server, tuning: Tuning | None = None, **settings: Any) -> PgvectorProvider:
    """Return a provider on the server."""
    config = PgvectorConfig.model_validate({**server.config, **settings})
    return PgvectorProvider("pgvector", config, tuning)


def vector_db(dimension: int = 16, **settings: Any) -> VectorDB:
    """Return a registration of its own."""
    own = {"identifier": f"db{next(_numbers)}", "created_at": time.time()}
    return registration("pgvector", **{**own, "embedding_dimension": dimension, **settings})


@asynccontextmanager
async def opened(
    server: Server,
    db: VectorDB,
    *,
    drop: bool = True,
    tuning: Tuning | None = None,
    **settings: Any,
) -> AsyncIterator[EngineIndex]:
    """Open an index as another process would; drop or close it at the end."""
    index = await provider(server, tuning, **settings).open_index(db, create=True)
    try:
        yield index
    finally:
        await (index.delete() if drop else index.close())


def some_chunks(count: int, prefix: str = "c") -> list[Chunk]:
    """Return chunks that every second word of theirs tells apart, with metadata to filter on."""
    return [
        Chunk(
            content=f"herd number{n} {'grazes' if n % 2 else 'sleeps'}",
            chunk_id=f"{prefix}{n:05}",
            metadata={"n": n, "hundredth": n % 100, "odd": bool(n % 2), "document_id": f"d{n % 7}"},
        )
        for n in range(count)
    ]


def embeddings(count: int, dimension: int = 16, seed: int = 0) -> NDArray[np.float64]:
    """Return seeded embeddings."""
    return np.random.default_rng(seed).standard_normal((count, dimension))


def ids(answer: QueryChunksResponse) -> list[str]:
    """Return the chunk ids of an answer, best first."""
    return [chunk.chunk_id for chunk in answer.chunks]


def found(answer: QueryChunksResponse) -> list[tuple[str, float]]:
    """Return what was found, in order, with scores to 6 digits."""
    return [(hit.chunk.chunk_id, round(hit.score, 6)) for hit in answer.hits]


def ask(server: Server, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Ask the server itself, past the provider."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute(query, parameters)
        return cursor.fetchall() if cursor.description else []


def hnsw_index(server: Server, db: VectorDB) -> str:
    """Return the definition of a vector DB's HNSW index, "" where it has none."""
    query = "SELECT indexdef FROM pg_indexes WHERE indexname = %s"
    rows = ask(server, query, f"{Tables(db, '').name}_hnsw")
    return str(rows[0][0]) if rows else ""
