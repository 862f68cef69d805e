"""remote::opensearch when the cluster carries a request out and its answer is lost."""

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
from corral.providers.vector_io.opensearch.client import ClusterIndex
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.provider import OpenSearchProvider
from corral.providers.vector_io.opensearch.records import RequestLimits

from ..replace_faults import Late, ReplaceFaults, failing_afterwards, methods_of
from .conftest import CONFIG


def too_late() -> ProviderTimeout:
    """Return the error of a request that took too long."""
    return ProviderTimeout("farm: OpenSearch did not answer in time.")


@pytest.mark.usefixtures("shared_server")
class TestOpenSearch(ReplaceFaults):
    """One request writes a document."""

    limits = RequestLimits()

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        prefix = f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}-"
        settings = json.loads(os.environ[CONFIG]) | {"index_prefix": prefix}
        config = OpenSearchConfig.model_validate(settings | {"timeout_seconds": 30})
        provider = OpenSearchProvider("farm", config, FileWriteLog.of_home(folder), self.limits)
        return await provider.open_index(vector_db, create=True)

    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        return failing_afterwards(ClusterIndex, methods_of(what, "put", "delete"), too_late)


class TestOpenSearchInParts(TestOpenSearch):
    """Each request holds one document, so that writing is undone in parts, too."""

    limits = RequestLimits(write_documents=1)
