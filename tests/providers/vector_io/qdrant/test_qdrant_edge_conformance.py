"""inline::qdrant passes the conformance suite on the real engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import INLINE_SPEC
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.provider import create


class TestQdrantEdge(IndexConformance):
    """Qdrant Edge, a folder a vector DB; so few chunks have no graph: the strict tests apply."""

    capabilities = replace(INLINE_SPEC.capabilities, exact=True)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's folder, made where it is absent."""
        provider = create("qdrant", QdrantEdgeConfig(folder=folder), folder)
        return await provider.open_index(vector_db, create=True)
