"""The settings that all providers with chunk files share. Imports no engine."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from corral.api.provider import ProviderConfig


class ChunkFileConfig(ProviderConfig):
    """Settings of a provider that keeps the chunks of each vector DB in one SQLite file."""

    folder: Path | None = Field(
        default=None,
        description="Folder of the files; by default one named by provider_id in the data folder.",
    )
    keyword_memory_mib: float = Field(
        default=64, ge=0, description="Memory for cached postings of common words, per vector DB."
    )
    busy_timeout_seconds: float = Field(
        default=10, gt=0, le=600, description="How long a write waits for another process's write."
    )
