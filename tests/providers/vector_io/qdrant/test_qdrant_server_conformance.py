"""remote::qdrant passes the conformance suite, on a server where there is one."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import REMOTE_SPEC
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider
from corral.providers.vector_io.qdrant.provider import create_remote as create


@pytest.mark.usefixtures("shared_server")
class TestQdrantServer(IndexConformance):
    """A collection a vector DB. On the stand-in without a server: see ../real_server.py.

    More is asked for than the provider promises: the stand-in, which is the client's local mode,
    searches exactly, and a server builds no graph for as few chunks as these. Each folder of the
    suite is a prefix of collection names. There are four connections: each request looks at all
    that are idle, which took a tenth of the processor's time of these tests with 32.
    """

    capabilities = replace(REMOTE_SPEC.capabilities, exact=True)
    providers: ClassVar[dict[Path, QdrantProvider]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        if folder not in self.providers:
            prefix = f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
            settings = json.loads(os.environ["CORRAL_TEST_QDRANT_CONFIG"])
            settings |= {"collection_prefix": prefix, "timeout_seconds": 60, "max_connections": 4}
            self.providers[folder] = create("qdrant", QdrantConfig.model_validate(settings), folder)
        return await self.providers[folder].open_index(vector_db, create=True)

    async def close(self) -> None:
        """Close the connections."""
        while self.providers:
            await self.providers.popitem()[1].close()
