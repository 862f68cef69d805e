"""Settings of inline::extractive."""

from __future__ import annotations

from pydantic import Field

from corral.api.provider import ProviderConfig


class ExtractiveConfig(ProviderConfig):
    """Limits of an answer.

    Attributes:
        max_sentences: Maximum number of sentences in an answer, 1 to 10; default 3.
        min_confidence: Minimum confidence of a search, in [0, 1], to quote anything; default 0.5,
            even odds that a source has an answer. A search without confidence is always quoted.
    """

    max_sentences: int = Field(default=3, ge=1, le=10)
    min_confidence: float = Field(default=0.5, ge=0, le=1)
