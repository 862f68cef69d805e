"""A stack with a vector DB to rebuild by a model of other dimensions, and the steps to do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.embedding.hashing.embedder import embed_text
from corral.providers.ingestion.storing import store
from corral.providers.stack.copy_steps import CopyStep
from corral.providers.stack.stack import Stack

PROVIDERS = ("sqlite", "memory", "faiss", "lancedb", "chroma", "qdrant", "milvus")
OLD, NEW = 32, 48


def config(dimension: int, *, also_remote: bool = False) -> RunConfig:
    """Return a configuration whose model `hashing` has so many dimensions."""
    embedding: list[dict[str, Any]] = [
        {
            "provider_id": "hashing",
            "provider_type": "inline::hashing",
            "config": {"dimension": dimension},
        }
    ]
    if also_remote:
        settings = {
            "base_url": "http://127.0.0.1:9/v1",
            "models": [{"model": "away", "dimension": 3}],
            "max_retries": 0,
        }
        embedding.append(
            {"provider_id": "remote", "provider_type": "remote::openai", "config": settings}
        )
    vector_io = [{"provider_id": i, "provider_type": f"inline::{i}"} for i in PROVIDERS]
    return RunConfig.model_validate({"providers": {"vector_io": vector_io, "embedding": embedding}})


@asynccontextmanager
async def opened(home: Path, dimension: int = NEW, **options: Any) -> AsyncIterator[Stack]:
    """Open a stack."""
    stack = Stack(config(dimension, **options), home)
    try:
        yield stack
    finally:
        await stack.close()


def chunk(number: int, words: str = "", document: str | None = None) -> Chunk:
    """Return a chunk of a document of five."""
    document = document or f"d{number // 5}"
    return Chunk(
        chunk_id=f"{document}-c{number:04}",
        content=f"{words or 'hundene løper'} number{number}",
        metadata={"document_id": document, "title": f"title{number}"},
        chunk_metadata=ChunkMetadata(document_id=document, chunk_embedding_model="hashing"),
    )


async def filled(home: Path, number: int = 40, provider_id: str = "sqlite") -> None:
    """Fill the vector DB `db` with embeddings of the old model, and close the stack."""
    async with opened(home, OLD) as stack:
        await stack.register(
            VectorDBRegistration(
                vector_db_id="db", embedding_model="hashing", provider_id=provider_id
            )
        )
        await store(stack, "db", [chunk(n) for n in range(number)])


async def begin(stack: Stack, **settings: Any) -> None:
    """Begin a rebuild of `db`, by the model as it is now unless settings are given."""
    vector_db = await stack.vector_db("db")
    await stack.rebuilds.begin(vector_db, settings or {"embedding_model": "hashing"})


async def steps(stack: Stack, limit: int = 15) -> list[CopyStep]:
    """Take all steps of a rebuild."""
    taken, after = list[CopyStep](), ""
    while not taken or not taken[-1].done:
        step = await stack.rebuilds.step(await stack.vector_db("db"), after, limit)
        taken.append(step)
        after = step.last_id
    return taken


async def switch(stack: Stack) -> str:
    """Switch, and return what stays behind."""
    return (await stack.rebuilds.switch(await stack.vector_db("db"))).note


async def stored(stack: Stack) -> list[Chunk]:
    """Return all chunks with their embeddings, by id."""
    index = await stack.index("db")
    ids = await index.chunk_ids("", 100_000)
    return await index.get_chunks(ids, include_embeddings=True)


def assert_embedded(chunks: Sequence[Chunk], dimension: int) -> None:
    """See that every embedding is the model's of that dimension, of the chunk's own text."""
    made = [embed_text(one.content, dimension) for one in chunks]
    here = np.array([one.embedding for one in chunks])
    np.testing.assert_allclose(here, np.array(made), atol=1e-5)
