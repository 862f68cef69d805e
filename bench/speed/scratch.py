"""Vector DBs and chunks that the bounds are measured on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.bench.data.synthetic import synthetic_texts

DIMENSION = 384
BATCH = 500


def scratch_vector_db(provider_id: str) -> VectorDB:
    """Return a vector DB that no stack knows."""
    return VectorDB(
        identifier="speed",
        provider_id=provider_id,
        provider_resource_id="speed",
        embedding_model="synthetic",
        embedding_dimension=DIMENSION,
        created_at=1,
    )


def synthetic_chunks(count: int) -> list[Chunk]:
    """Return chunks c0000000, c0000001, ... of 60 words each, eight to a document."""
    return [
        Chunk.model_construct(
            chunk_id=f"c{n:07d}", content=text, metadata={"document_id": f"d{n // 8}"}
        )
        for n, text in enumerate(synthetic_texts(count))
    ]


async def store(
    index: EmbeddingIndex, chunks: Sequence[Chunk], vectors: NDArray[np.float32]
) -> None:
    """Store chunks in batches."""
    for start in range(0, len(chunks), BATCH):
        part = slice(start, start + BATCH)
        await index.add_chunks(chunks[part], vectors[part])
