"""Settings of inline::memory."""

from __future__ import annotations

from corral.api.provider import ProviderConfig


class MemoryConfig(ProviderConfig):
    """It has none."""
