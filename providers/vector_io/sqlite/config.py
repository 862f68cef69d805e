"""Settings of inline::sqlite."""

from __future__ import annotations

from pydantic import Field

from corral.providers.vector_io.store.config import ChunkFileConfig


class SqliteConfig(ChunkFileConfig):
    """Settings of inline::sqlite; every default suits a laptop."""

    vector_memory_mib: float = Field(
        default=1024,
        ge=0,
        description="Memory for the copy of the embeddings that is searched, one byte a number, in "
        "MiB per vector DB: 1,000,000 x 384 take 380 MiB. A larger copy is in a temporary file in "
        "the folder; 0 makes none, and sqlite-vec searches the file, exactly too but slowly.",
    )
