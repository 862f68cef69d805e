"""Settings of inline::sqlite."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from corral.providers.vector_io.store.config import ChunkFileConfig


class SqliteConfig(ChunkFileConfig):
    """Settings of inline::sqlite; every default suits a laptop."""

    index: Literal["exact", "auto"] = Field(
        default="exact",
        description="exact compares every embedding; auto builds an approximate index for a large "
        "vector DB, and uses it if its measured recall is at least 0.99. It needs the extra faiss.",
    )
    approximate_from: int = Field(
        default=100_000,
        ge=1000,
        description="Fewest chunks for which `index: auto` builds an index.",
    )
    vector_memory_mib: float = Field(
        default=1024,
        ge=0,
        description="Memory for the copy of the embeddings that is searched, one byte a number, in "
        "MiB per vector DB: 1,000,000 x 384 take 380 MiB. A larger copy is in a temporary file in "
        "the folder; 0 makes none, and sqlite-vec searches the file, exactly too but slowly.",
    )

    @model_validator(mode="after")
    def _has_memory(self) -> Self:
        if self.index == "auto" and not self.vector_memory_mib:
            raise ValueError("index: auto needs a vector_memory_mib above 0.")
        return self
