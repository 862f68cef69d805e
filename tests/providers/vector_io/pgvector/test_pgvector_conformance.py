"""remote::pgvector passes the conformance suite, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector import SPEC
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.provider import PgvectorProvider, create


class TestPgvector(IndexConformance):
    """With fewer chunks than `exact_below_rows`, search is exact: the strict tests apply."""

    capabilities = dataclasses.replace(SPEC.capabilities, exact=True)
    settings: ClassVar[dict[str, Any]] = {"exact_below_rows": 10_000}
    providers: ClassVar[WeakKeyDictionary[Any, PgvectorProvider]] = WeakKeyDictionary()

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        loop = asyncio.get_running_loop()
        if loop not in self.providers:  # one pool a test
            dsn = os.environ["CORRAL_TEST_PGVECTOR_DSN"]
            config = PgvectorConfig.model_validate({"dsn": dsn, **self.settings})
            self.providers[loop] = create("pgvector", config, folder)
        return await self.providers[loop].open_index(vector_db, create=True)
