"""Settings of inline::sqlite."""

from __future__ import annotations

from pydantic import Field

from corral.providers.vector_io._sqlite.config import ChunkFileConfig


class SqliteConfig(ChunkFileConfig):
    """Settings of inline::sqlite; every default suits a laptop."""

    vector_memory_mib: float = Field(
        default=1024,
        ge=0,
        description="A vector DB whose embeddings fit is searched in a memory copy; a larger one "
        "by sqlite-vec in the file, exactly too but more slowly. 100,000 x 384 take 147 MiB.",
    )
