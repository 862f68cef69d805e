"""Settings of inline::hashing."""

from __future__ import annotations

from pydantic import Field

from corral.api.provider import ProviderConfig


class HashingConfig(ProviderConfig):
    """The size of the embeddings.

    Attributes:
        dimension: Numbers in an embedding, 1 to 4096. With fewer, more words share a number;
            256 keeps texts of a few hundred words apart.
    """

    dimension: int = Field(default=256, ge=1, le=4096)
