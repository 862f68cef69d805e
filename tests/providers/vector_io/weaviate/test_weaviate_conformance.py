"""remote::weaviate passes the conformance suite, on a server where there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.weaviate import SPEC
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import create


@pytest.mark.usefixtures("shared_server")
class TestWeaviate(IndexConformance):
    """A collection a vector DB. On the stand-in without a server: see ../real_server.py."""

    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        settings = json.loads(os.environ["CORRAL_TEST_WEAVIATE_CONFIG"])
        config = WeaviateConfig.model_validate(settings | {"timeout_seconds": 30})
        return await create("weaviate", config, folder).open_index(vector_db, create=True)
