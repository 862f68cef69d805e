"""inline::qdrant passes the conformance suite: without a shard, and with one from the start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import INLINE_SPEC
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge import shard as edge
from corral.providers.vector_io.qdrant.edge.search import EdgeSearch
from corral.providers.vector_io.qdrant.provider import QdrantEdgeProvider
from corral.providers.vector_io.store.approximate import ApproximateSearcher
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import file_name
from tests.providers.vector_io.sqlite import test_sqlite_conformance as sqlite


class TestQdrantEdge(IndexConformance):
    """The default: so few chunks have no shard, and the strict tests apply."""

    same_as = (sqlite.TestSqlite, sqlite.EXACT)
    capabilities = replace(INLINE_SPEC.capabilities, exact=True)

    def provider(self, folder: Path) -> QdrantEdgeProvider:
        """Return the provider of a folder."""
        return QdrantEdgeProvider("qdrant", QdrantEdgeConfig(), folder)

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's file, made where it is absent."""
        is_new = not (folder / file_name(vector_db)).exists()
        return await self.provider(folder).open_index(vector_db, create=is_new)


class LocalSearch(EdgeSearch):
    """Makes shards in this process, which takes a tenth of the time."""

    def make_shard(self, place: Path) -> None:
        """Make a shard here."""
        edge.make(self.file, place, self._dimension, self._metric, threads=1)


class LocalProvider(QdrantEdgeProvider):
    """Opens indexes with such searchers."""

    searcher: type[EdgeSearch] = LocalSearch

    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        """Return the engine of a vector DB on its file."""
        searcher = partial(self.searcher, vector_db, self._config, path)
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class SettledSearch(LocalSearch):
    """Waits for the first shard, so that the suite meets it beside chunks of later writes."""

    def written(self) -> None:
        super().written()
        if not self.covered:
            ApproximateSearcher.settle(self)


class SettledProvider(LocalProvider):
    """Opens indexes with such searchers."""

    searcher = SettledSearch


class TestShard(TestQdrantEdge):
    """A shard from the first chunk on."""

    same_as = (sqlite.TestSqlite, sqlite.ROWS)
    capabilities = INLINE_SPEC.capabilities

    def provider(self, folder: Path) -> QdrantEdgeProvider:
        """Return the provider of a folder."""
        return SettledProvider("qdrant", QdrantEdgeConfig(approximate_from=1), folder)
