"""Every backend that runs in this process, for tests that hold all of them against one rule."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.provider import VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.provider import create as create_chroma
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.provider import create as create_faiss
from corral.providers.vector_io.lancedb.config import LanceDBConfig
from corral.providers.vector_io.lancedb.provider import create as create_lancedb
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.provider import create as create_memory
from corral.providers.vector_io.milvus.config import MilvusConfig
from corral.providers.vector_io.milvus.provider import create as create_milvus
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.provider import create as create_qdrant
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import create as create_sqlite

from .registrations import registration

MAKERS: dict[str, Callable[[Path], VectorIOProvider]] = {
    "chroma": lambda folder: create_chroma("chroma", ChromaConfig(), folder),
    "faiss": lambda folder: create_faiss("faiss", FaissConfig(), folder),
    "lancedb": lambda folder: create_lancedb("lancedb", LanceDBConfig(), folder),
    "memory": lambda folder: create_memory("memory", MemoryConfig(), folder),
    "milvus": lambda folder: create_milvus("milvus", MilvusConfig(), folder),
    "qdrant": lambda folder: create_qdrant("qdrant", QdrantEdgeConfig(), folder),
    "sqlite": lambda folder: create_sqlite("sqlite", SqliteConfig(), folder),
}


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration; what is not set is as it is by default."""
    return registration("tested", **settings)


@asynccontextmanager
async def opened(
    backend: str, folder: Path, *, create: bool = False, **settings: Any
) -> AsyncIterator[EmbeddingIndex]:
    """Open an index for a while."""
    provider = MAKERS[backend](folder)
    index = await provider.open_index(vector_db(**settings), create=create)
    yield index
    await index.close()
    await provider.close()


async def add(
    index: EmbeddingIndex, chunks: Sequence[Chunk], embeddings: ArrayLike | None = None
) -> None:
    """Store chunks; without embeddings all get the same one."""
    if embeddings is None:
        embeddings = np.tile([1.0, 0.0], (len(chunks), 1))
    await index.add_chunks(chunks, embeddings)
