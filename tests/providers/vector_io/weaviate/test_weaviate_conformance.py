"""remote::weaviate passes the conformance suite on a stand-in, through the real client's wire."""

from __future__ import annotations

import os
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.weaviate import SPEC
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import create


class TestWeaviate(IndexConformance):
    """A collection a vector DB. Not a live server: see stand_in.py."""

    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        http_port, grpc_port = os.environ["CORRAL_TEST_WEAVIATE_PORTS"].split()
        config = WeaviateConfig(
            url=f"http://127.0.0.1:{http_port}", grpc_port=int(grpc_port), timeout_seconds=30
        )
        return await create("weaviate", config, folder).open_index(vector_db, create=True)
