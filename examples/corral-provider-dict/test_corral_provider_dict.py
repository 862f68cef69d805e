"""inline::dict passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from corral_provider_dict import SPEC, DictConfig, create

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB


class TestDict(IndexConformance):
    """Every standard test that its capabilities ask for."""

    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Make an empty index."""
        return await create("dict", DictConfig(), folder).open_index(vector_db, create=True)
