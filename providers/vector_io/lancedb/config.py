"""Settings of inline::lancedb."""

from __future__ import annotations

from pydantic import Field

from corral.providers.vector_io.store.config import ChunkFileConfig


class LanceDBConfig(ChunkFileConfig):
    """Settings of inline::lancedb; every default suits a laptop."""

    approximate_from: int = Field(
        default=10_000,
        ge=1,
        description="Fewest chunks for which a table is built; fewer are searched exactly.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Partitions of the index; the root of the number of chunks when absent.",
    )
    nprobes: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Partitions that a query reads; more find more and take longer.",
    )
