"""What the tests of inline::qdrant share: a provider that makes shards in its own process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant import shard as edge
from corral.providers.vector_io.qdrant.provider import QdrantEdgeProvider
from corral.providers.vector_io.qdrant.search import EdgeSearch
from corral.providers.vector_io.store.engine import ChunkFileEngine


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
