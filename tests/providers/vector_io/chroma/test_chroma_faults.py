"""remote::chroma when `chroma run` is killed or frozen."""

from __future__ import annotations

from pathlib import Path

from corral.providers.vector_io.chroma import REMOTE_SPEC
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.provider import ChromaServerProvider
from corral.providers.vector_io.chroma.provider import create_remote as create

from ..server_faults import PROVIDER_ID, ServerFaults
from .conftest import Server


class TestChromaServer(ServerFaults[Server]):
    capabilities = REMOTE_SPEC.capabilities

    def provider(self, server: Server, folder: Path) -> ChromaServerProvider:
        config = RemoteChromaConfig(url=server.url, folder=folder / "mirror", timeout_seconds=2)
        return create(PROVIDER_ID, config, folder)
