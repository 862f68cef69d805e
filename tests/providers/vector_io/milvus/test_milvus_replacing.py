"""inline::milvus and remote::milvus when Milvus does what it is told and its answer is lost."""

from __future__ import annotations

import hashlib
import os
from contextlib import AbstractContextManager
from pathlib import Path

import grpc
import pytest
from pymilvus import MilvusClient, MilvusException

from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.milvus import client as client_module
from corral.providers.vector_io.milvus.config import MilvusConfig, RemoteMilvusConfig
from corral.providers.vector_io.milvus.provider import create, create_remote

from ..replace_faults import Late, ReplaceFaults, failing_afterwards, methods_of
from .conftest import URI_VARIABLE


def too_late() -> MilvusException:
    """Return the driver's error of a call that took too long."""
    return MilvusException(code=grpc.StatusCode.DEADLINE_EXCEEDED, message="late")


class TestMilvus(ReplaceFaults):
    """Milvus Lite in this process."""

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        provider = create("farm", MilvusConfig(folder=folder), folder)
        return await provider.open_index(vector_db, create=True)

    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        methods = methods_of(what, "insert", "delete")
        if "insert" in methods:
            methods.append("upsert")  # of a server beyond Lite
        return failing_afterwards(MilvusClient, methods, too_late)


@pytest.mark.usefixtures("milvus_server")
class TestMilvusServer(TestMilvus):
    """A server."""

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        prefix = f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
        config = RemoteMilvusConfig(uri=os.environ[URI_VARIABLE], collection_prefix=prefix)
        provider = create_remote("farm", config, folder)
        return await provider.open_index(vector_db, create=True)


class TestMilvusServerInParts(TestMilvusServer):
    """Each request holds one row, so that writing is undone."""

    @pytest.fixture(autouse=True)
    def one_row_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row is larger than a request may be."""
        monkeypatch.setattr(client_module, "size_of", lambda _: 2**30)
