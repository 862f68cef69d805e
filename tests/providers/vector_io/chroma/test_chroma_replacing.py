"""remote::chroma when Chroma does what it is told and its answer is lost."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ProviderTimeout
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma import client
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.provider import create_remote as create

from ..replace_faults import Late, ReplaceFaults, failing_afterwards, methods_of
from .conftest import URL_VARIABLE


@pytest.mark.usefixtures("chroma_server")
class TestChromaServer(ReplaceFaults):
    """Behind HTTP, its answers too late."""

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        config = RemoteChromaConfig(url=os.environ[URL_VARIABLE], folder=folder)
        return await create("farm", config, folder).open_index(vector_db, create=True)

    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        methods = methods_of(what, "upsert", "delete")
        return failing_afterwards(client.Collection, methods, lambda: ProviderTimeout("late"))


class TestChromaServerInParts(TestChromaServer):
    """Each request holds one chunk, so that writing is undone."""

    @pytest.fixture(autouse=True)
    def one_chunk_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server says that it takes two rows at once."""
        monkeypatch.setattr(client.ChromaServer, "batch_rows", lambda _: 2)
