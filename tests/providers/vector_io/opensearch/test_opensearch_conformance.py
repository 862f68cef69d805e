"""remote::opensearch passes the conformance suite."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.opensearch import SPEC
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import OpenSearchProvider, create


@pytest.mark.usefixtures("shared_server")
class TestOpenSearch(IndexConformance):
    """An index a vector DB. The connections are closed with the last open index."""

    capabilities = SPEC.capabilities
    providers: ClassVar[dict[Path, OpenSearchProvider]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's index, created if it does not exist."""
        if folder not in self.providers:
            settings = json.loads(os.environ["CORRAL_TEST_OPENSEARCH_CONFIG"])
            config = OpenSearchConfig.model_validate(settings | {"timeout_seconds": 30})
            self.providers[folder] = create("opensearch", config, folder)
        return await self.providers[folder].open_index(vector_db, create=True)

    async def close(self) -> None:
        """Close the connections."""
        while self.providers:
            await self.providers.popitem()[1].close()
