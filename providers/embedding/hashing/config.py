"""Settings of inline::hashing."""

from __future__ import annotations

from pydantic import Field

from corral.api.provider import ProviderConfig


class HashingConfig(ProviderConfig):
    """The size of the embeddings.

    Attributes:
        dimension: Numbers in an embedding, 1 to 4096. With a smaller dimension, more words share a
            number; 256 distinguishes texts of a few hundred words.
    """

    dimension: int = Field(default=256, ge=1, le=4096)
