"""The suite of `corral conformance`, for the provider in the environment variable.

Loaded by the command's pytest, and by the second processes that some tests start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from corral.api.errors import ContractViolation
from corral.api.provider import Api, VectorIOProvider
from corral.api.testing.live import LiveConformance
from corral.providers.stack.registry import build_provider
from corral.server.cli.conformance import TARGET_VARIABLE, choose

_target = json.loads(os.environ[TARGET_VARIABLE])
_config = None if _target["config"] is None else Path(_target["config"])
_subject = choose(_config, Path(_target["home"]), _target["provider_type"], _target["provider_id"])


class TestConfigured(LiveConformance):
    """The provider as it is configured."""

    capabilities = _subject.spec.capabilities

    def provider(self) -> VectorIOProvider:
        """Build the provider."""
        provider = build_provider(Api.VECTOR_IO, _subject.entry, Path(_target["place"]))
        if not isinstance(provider, VectorIOProvider):
            raise ContractViolation(f"{provider.provider_id} must be a VectorIOProvider.")
        return provider
