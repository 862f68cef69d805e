"""inline::chroma passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma import SPEC
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.provider import create


class TestChroma(IndexConformance):
    """Embedded; every restart closes Chroma and opens its files again."""

    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        provider = create("chroma", ChromaConfig(folder=folder), folder)
        return await provider.open_index(vector_db, create=True)
