"""Settings of inline::memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corral.api.provider import ProviderConfig


class MemoryConfig(ProviderConfig):
    """Settings of inline::memory."""

    keyword: Literal["bm25", "fuzzy"] = Field(
        default="bm25",
        description="bm25 finds the words of the query; fuzzy also words that differ by a typo, in "
        "every query.",
    )
