"""remote::qdrant when the server does what it is told and its answer is lost."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from qdrant_client import AsyncQdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException

from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import records
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.provider import QdrantProvider, create_remote

from ..replace_faults import Late, ReplaceFaults, failing_afterwards
from .conftest import CONFIG
from .qdrant_service import Service


def too_late() -> ResponseHandlingException:
    """Return the driver's error of a request that took too long."""
    return ResponseHandlingException(httpx.ReadTimeout("late"))


@pytest.mark.usefixtures("shared_server")
class TestQdrantServer(ReplaceFaults):
    """One request writes a document."""

    providers: ClassVar[list[QdrantProvider]] = []

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        prefix = f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
        settings = json.loads(os.environ[CONFIG]) | {"collection_prefix": prefix}
        provider = create_remote("farm", QdrantConfig.model_validate(settings), folder)
        self.providers.append(provider)
        return await provider.open_index(vector_db, create=True)

    @pytest.fixture(autouse=True)
    async def closed_afterwards(self) -> AsyncIterator[None]:
        """Close the connections of a test."""
        yield
        while self.providers:
            await self.providers.pop().close()

    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        faults = ExitStack()
        if what != "delete":
            faults.enter_context(failing_afterwards(records, ["upsert"], too_late))
        if what != "write":
            faults.enter_context(failing_afterwards(AsyncQdrantClient, ["delete"], too_late))
        return faults


class TestQdrantServerInParts(TestQdrantServer):
    """Each request holds one point, so that writing is undone."""

    @pytest.fixture(autouse=True)
    def one_point_a_request(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """Use a server whose strict mode refuses a second point in a request."""
        service.strict["upsert_max_batchsize"] = 1
        monkeypatch.setenv(CONFIG, json.dumps({"url": service.url}))
