"""Settings of inline::hashing."""

from __future__ import annotations

from pydantic import Field

from corral.api.provider import ProviderConfig


class HashingConfig(ProviderConfig):
    """How large the embeddings are.

    Attributes:
        dimension: Numbers in an embedding, 1 to 4096. The fewer, the more words share a place;
            256 keeps texts of a few hundred words apart.
    """

    dimension: int = Field(default=256, ge=1, le=4096)
