"""remote::milvus when `milvus-lite server` is killed or frozen."""

from __future__ import annotations

from pathlib import Path

from corral.providers.vector_io.milvus import REMOTE_SPEC
from corral.providers.vector_io.milvus.config import RemoteMilvusConfig
from corral.providers.vector_io.milvus.provider import MilvusProvider, create_remote

from ..server_faults import PROVIDER_ID, ServerFaults
from .conftest import Server


class TestMilvusServer(ServerFaults[Server]):
    capabilities = REMOTE_SPEC.capabilities

    def provider(self, server: Server, folder: Path) -> MilvusProvider:
        config = RemoteMilvusConfig(uri=server.uri, timeout_seconds=2)
        return create_remote(PROVIDER_ID, config, folder)
