"""Temporary stacks, vector DBs and chunks of a measurement; storing of chunks."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.bench.data.synthetic import synthetic_texts
from corral.providers.base.config import ProviderEntry, RunConfig
from corral.providers.stack.stack import Stack

DIMENSION = 384
BATCH = 500
"""Chunks stored per call."""
HASHING = "hashing"


@asynccontextmanager
async def scratch_stack(config: RunConfig) -> AsyncIterator[Stack]:
    """Open a stack in a separate folder, and close it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(config, Path(folder))
        try:
            yield stack
        finally:
            await stack.close()


def hashing(dimension: int) -> ProviderEntry:
    """Return the embedding provider without weights; its model has the same name."""
    return ProviderEntry(
        provider_id=HASHING,
        provider_type=f"inline::{HASHING}",
        config={"dimension": dimension},
    )


def scratch_vector_db(provider_id: str) -> VectorDB:
    """Return a vector DB without a stack."""
    return VectorDB(
        identifier="speed",
        provider_id=provider_id,
        provider_resource_id="speed",
        embedding_model="synthetic",
        embedding_dimension=DIMENSION,
        created_at=1,
    )


def synthetic_chunks(count: int) -> list[Chunk]:
    """Return chunks c0000000, c0000001, ... of 60 words each, eight per document."""
    return [
        Chunk.model_construct(
            chunk_id=f"c{n:07d}", content=text, metadata={"document_id": f"d{n // 8}"}
        )
        for n, text in enumerate(synthetic_texts(count))
    ]


def batches(
    chunks: Sequence[Chunk], embeddings: NDArray[np.float32], size: int = BATCH
) -> Iterator[tuple[Sequence[Chunk], NDArray[np.float32]]]:
    """Yield chunks with their embeddings, `size` at a time."""
    for start in range(0, len(chunks), size):
        part = slice(start, start + size)
        yield chunks[part], embeddings[part]


async def store(
    index: EmbeddingIndex, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
) -> None:
    """Store chunks in batches."""
    for batch in batches(chunks, embeddings):
        await index.add_chunks(*batch)
