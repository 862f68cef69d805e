"""remote::weaviate passes the conformance suite, on a server where there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.weaviate import SPEC
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import WeaviateProvider, create


@pytest.mark.usefixtures("shared_server")
class TestWeaviate(IndexConformance):
    """A collection a vector DB. On the stand-in without a server: see ../real_server.py.

    The connection is closed with the last open index, so restarts are those of a client.
    """

    capabilities = SPEC.capabilities
    providers: ClassVar[dict[Path, WeaviateProvider]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        if folder not in self.providers:
            settings = json.loads(os.environ["CORRAL_TEST_WEAVIATE_CONFIG"])
            config = WeaviateConfig.model_validate(settings | {"timeout_seconds": 30})
            self.providers[folder] = create("weaviate", config, folder)
        return await self.providers[folder].open_index(vector_db, create=True)

    async def close(self) -> None:
        """Close the connections."""
        while self.providers:
            await self.providers.popitem()[1].close()
