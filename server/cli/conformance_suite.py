"""The suite of `corral conformance` for the vector_io provider in the environment variable.

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
from corral.server.cli.conformance import TARGET_VARIABLE, subject_of

_target = json.loads(os.environ[TARGET_VARIABLE])
_subject = subject_of(_target)


class TestConfigured(LiveConformance):
    """The provider as it is configured."""

    capabilities = _subject.spec.capabilities

    def provider(self) -> VectorIOProvider:
        """Build the provider."""
        provider = build_provider(Api.VECTOR_IO, _subject.entry, Path(_target["place"]))
        if not isinstance(provider, VectorIOProvider):
            raise ContractViolation(f"{provider.provider_id} must be a VectorIOProvider.")
        return provider
