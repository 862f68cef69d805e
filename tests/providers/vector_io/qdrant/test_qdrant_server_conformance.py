"""remote::qdrant passes the conformance suite on qdrant-client's local mode.

No server can be installed from a package registry. The local mode answers the same calls of the
same client in process, by numpy: exactly, so more is asked of it here than of a server.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from qdrant_client import AsyncQdrantClient

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import REMOTE_SPEC
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.connection import Server
from corral.providers.vector_io.qdrant.server_provider import QdrantProvider


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
@pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning")
class TestQdrantServer(IndexConformance):
    """The calls to a server, answered by the client itself; one client a folder."""

    capabilities = replace(REMOTE_SPEC.capabilities, exact=True, concurrent_processes=False)
    clients: ClassVar[dict[Path, AsyncQdrantClient]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        if folder not in self.clients:
            self.clients.clear()
            self.clients[folder] = AsyncQdrantClient(":memory:")
        server = Server("qdrant", self.clients[folder], QdrantConfig())
        return await QdrantProvider("qdrant", server).open_index(vector_db, create=True)
