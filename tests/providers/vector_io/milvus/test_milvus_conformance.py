"""inline::milvus and remote::milvus pass the conformance suite."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import ClassVar

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.milvus import REMOTE_SPEC, SPEC
from corral.providers.vector_io.milvus.config import MilvusConfig, RemoteMilvusConfig
from corral.providers.vector_io.milvus.provider import MilvusProvider, create, create_remote


class TestMilvus(IndexConformance):
    """Milvus Lite in this process.

    It is closed with the last open index of a folder, so restarts are real ones.
    """

    capabilities = SPEC.capabilities
    providers: ClassVar[dict[Path, MilvusProvider]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        if folder not in self.providers:
            self.providers[folder] = create("milvus", MilvusConfig(folder=folder), folder)
        return await self.providers[folder].open_index(vector_db, create=True)


@pytest.mark.usefixtures("milvus_server")
class TestRemoteMilvus(IndexConformance):
    """A Milvus Lite server, as its own process, over gRPC; HNSW.

    Each folder of the suite is a prefix of collection names. The driver's connection is closed
    with the last open index, so restarts are those of a client.
    """

    # Above the hooks, or the hook that the groups `differential` and `filter` call as well.
    same_as = (
        TestMilvus,
        (
            "keyword", "hybrid", "score", "confidence", "refusal", "document", "enumeration",
            "acl",
        ),
    )  # fmt: skip
    capabilities = REMOTE_SPEC.capabilities
    providers: ClassVar[dict[Path, MilvusProvider]] = {}

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection on the server, made where it is absent."""
        if folder not in self.providers:
            prefix = f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
            uri = os.environ["CORRAL_TEST_MILVUS_URI"]
            config = RemoteMilvusConfig(uri=uri, collection_prefix=prefix, timeout_seconds=60)
            self.providers[folder] = create_remote("milvus", config, folder)
        return await self.providers[folder].open_index(vector_db, create=True)
