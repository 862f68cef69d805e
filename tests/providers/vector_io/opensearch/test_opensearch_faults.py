"""remote::opensearch when its server is killed or frozen."""

from __future__ import annotations

from pathlib import Path

from corral.providers.vector_io.opensearch import SPEC
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import OpenSearchProvider, create

from ..server_faults import PROVIDER_ID, ServerFaults
from .real_server import OpenSearchServer


class TestOpenSearchServer(ServerFaults[OpenSearchServer]):
    capabilities = SPEC.capabilities

    def provider(self, server: OpenSearchServer, folder: Path) -> OpenSearchProvider:
        config = OpenSearchConfig.model_validate(server.config | {"timeout_seconds": 2})
        return create(PROVIDER_ID, config, folder)
