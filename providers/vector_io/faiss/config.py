"""Settings of inline::faiss."""

from __future__ import annotations

from corral.providers.vector_io.store.config import ChunkFileConfig
from corral.providers.vector_io.store.faiss.config import IndexConfig


class FaissConfig(IndexConfig, ChunkFileConfig):
    """Settings of inline::faiss."""
