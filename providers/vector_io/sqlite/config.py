"""Settings of inline::sqlite."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from corral.api.provider import ProviderConfig


class SqliteConfig(ProviderConfig):
    """Settings of inline::sqlite; every default suits a laptop."""

    folder: Path | None = Field(
        None, description="Where the files are; a folder named by provider_id in the data folder."
    )
    vector_memory_mib: float = Field(
        1024,
        ge=0,
        description="A vector DB whose embeddings fit is searched in a memory copy; a larger one "
        "by sqlite-vec in the file, exactly too but more slowly. 100,000 x 384 take 147 MiB.",
    )
    keyword_memory_mib: float = Field(
        64, ge=0, description="Postings of common words kept in memory, per vector DB."
    )
    busy_timeout_seconds: float = Field(
        10, gt=0, le=600, description="How long a write waits for another process's write."
    )
