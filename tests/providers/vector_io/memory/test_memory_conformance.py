"""inline::memory passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.memory import SPEC
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.provider import create
from tests.providers.vector_io.sqlite import test_sqlite_conformance as sqlite


class TestMemory(IndexConformance):
    """The chunk store on a database in memory."""

    same_as = (sqlite.TestSqlite, sqlite.EXACT)
    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Make an empty index."""
        return await create("memory", MemoryConfig(), folder).open_index(vector_db, create=True)
