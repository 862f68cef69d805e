"""remote::qdrant when its server is killed or frozen; where a program of it is on PATH.

The header of a run says whether it has one. What the stand-in can be broken by is in
test_qdrant_server.py.
"""

from __future__ import annotations

from pathlib import Path

from corral.providers.vector_io.qdrant import REMOTE_SPEC
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.provider import create_remote as create

from ..server_faults import PROVIDER_ID, ServerFaults
from .real_server import QdrantServer

if QdrantServer.found():

    class TestQdrantFaults(ServerFaults[QdrantServer]):
        capabilities = REMOTE_SPEC.capabilities

        def provider(self, server: QdrantServer, folder: Path) -> QdrantProvider:
            config = QdrantConfig.model_validate(server.config | {"timeout_seconds": 2})
            return create(PROVIDER_ID, config, folder)
