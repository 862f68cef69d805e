"""inline::faiss passes the conformance suite: exact, in a graph, and in lists of codes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss import SPEC
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.provider import FaissProvider
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.faiss.search import FaissSearch
from corral.providers.vector_io.store.provider import file_name
from tests.providers.vector_io.sqlite import test_sqlite_conformance as sqlite


class SettledSearch(FaissSearch):
    """Waits for the builds that its writes start, so that the suite meets the built index."""

    def written(self) -> None:
        super().written()
        self.settle()


class SettledProvider(FaissProvider):
    """Opens indexes with such searchers."""

    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        """Return the engine of a vector DB on its file."""
        searcher = partial(SettledSearch, vector_db, self._config, path.with_suffix(".faiss"))
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class TestFlat(IndexConformance):
    """The default, which is exact."""

    same_as = (sqlite.TestSqlite, sqlite.EXACT)
    capabilities = replace(SPEC.capabilities, exact=True)
    config = FaissConfig()

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's file, made where it is absent."""
        is_new = not (folder / file_name(vector_db)).exists()
        provider = SettledProvider("faiss", self.config, folder)
        return await provider.open_index(vector_db, create=is_new)


class TestHnsw(TestFlat):
    """A graph from the first chunk on."""

    same_as = (sqlite.TestSqlite, sqlite.ROWS)
    capabilities = SPEC.capabilities
    config = FaissConfig(index="hnsw", approximate_from=1)


class TestIvf(TestFlat):
    """Lists of codes from the first chunk on."""

    same_as = (sqlite.TestSqlite, sqlite.ROWS)
    capabilities = SPEC.capabilities
    config = FaissConfig(index="ivf", approximate_from=1)
