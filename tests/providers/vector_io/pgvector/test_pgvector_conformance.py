"""remote::pgvector passes the conformance suite, on a real PostgreSQL."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector import SPEC
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.provider import create


class TestPgvector(IndexConformance):
    """Where no vector DB has so many chunks that HNSW is used, search is exact."""

    capabilities = dataclasses.replace(SPEC.capabilities, exact=True)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        config = PgvectorConfig.model_validate(
            {"dsn": os.environ["CORRAL_TEST_PGVECTOR_DSN"], "exact_below_rows": 10_000}
        )
        return await create("pgvector", config, folder).open_index(vector_db, create=True)
