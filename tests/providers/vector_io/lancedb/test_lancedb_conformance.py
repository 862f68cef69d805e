"""inline::lancedb passes the conformance suite: without a table, and with one from the start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.lancedb import SPEC
from corral.providers.vector_io.lancedb.config import LanceDBConfig
from corral.providers.vector_io.lancedb.provider import LanceDBProvider
from corral.providers.vector_io.lancedb.search import LanceDBSearch
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import file_name
from tests.providers.vector_io.sqlite import test_sqlite_conformance as sqlite


class TestLanceDB(IndexConformance):
    """The default: so few chunks have no table, and the strict tests apply."""

    same_as = (sqlite.TestSqlite, sqlite.EXACT)
    capabilities = replace(SPEC.capabilities, exact=True)

    def provider(self, folder: Path) -> LanceDBProvider:
        """Return the provider of a folder."""
        return LanceDBProvider("lancedb", LanceDBConfig(), folder)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's file, made if it is absent."""
        is_new = not (folder / file_name(vector_db)).exists()
        return await self.provider(folder).open_index(vector_db, create=is_new)


class SettledSearch(LanceDBSearch):
    """Waits for the first table, so that the suite meets it beside chunks of later writes."""

    def written(self) -> None:
        super().written()
        if not self.covered:
            self.settle()


class SettledProvider(LanceDBProvider):
    """Opens indexes with such searchers."""

    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        """Return the engine of a vector DB on its file."""
        searcher = partial(SettledSearch, vector_db, self._config, path.with_suffix(".lancedb"))
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class TestTable(TestLanceDB):
    """A table from the first chunk on."""

    same_as = (sqlite.TestSqlite, sqlite.ROWS)
    capabilities = SPEC.capabilities

    def provider(self, folder: Path) -> LanceDBProvider:
        """Return the provider of a folder."""
        return SettledProvider("lancedb", LanceDBConfig(approximate_from=1), folder)
