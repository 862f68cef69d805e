"""remote::weaviate when the server does what it is told and its answer is lost."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ProviderTimeout
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.write_ahead import FileWriteLog
from corral.providers.vector_io.weaviate import engine
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.provider import WeaviateProvider
from corral.providers.vector_io.weaviate.records import RequestLimits

from ..replace_faults import Late, ReplaceFaults, failing_afterwards, methods_of
from .conftest import CONFIG


def too_late() -> ProviderTimeout:
    """Return the error of a request that took too long."""
    return ProviderTimeout("farm: Weaviate did not answer in time.")


@pytest.mark.usefixtures("shared_server")
class TestWeaviate(ReplaceFaults):
    """One request writes a document."""

    limits = RequestLimits()

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        prefix = f"T{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}_"
        settings = json.loads(os.environ[CONFIG]) | {"collection_prefix": prefix}
        config = WeaviateConfig.model_validate(settings)
        provider = WeaviateProvider("farm", config, FileWriteLog.of_home(folder), self.limits)
        return await provider.open_index(vector_db, create=True)

    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        requests = methods_of(what, "_put", "_delete")
        return failing_afterwards(engine.Collection, requests, too_late)


class TestWeaviateInParts(TestWeaviate):
    """Each request holds one object, so that writing is undone in parts, too."""

    limits = RequestLimits(write_objects=1)
