"""remote::weaviate when its server is killed or frozen; where a program of it is on PATH.

The stand-in keeps its objects in memory, so it cannot be killed; what it can be is in
test_weaviate.py. The header of a run says which of both it has.
"""

from __future__ import annotations

from pathlib import Path

from corral.providers.vector_io.weaviate import SPEC
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import WeaviateProvider, create

from ..server_faults import PROVIDER_ID, ServerFaults
from .real_server import WeaviateServer

if WeaviateServer.found():

    class TestWeaviateServer(ServerFaults[WeaviateServer]):
        capabilities = SPEC.capabilities

        def provider(self, server: WeaviateServer, folder: Path) -> WeaviateProvider:
            config = WeaviateConfig.model_validate(server.config | {"timeout_seconds": 2})
            return create(PROVIDER_ID, config, folder)
