"""inline::chroma: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from typing_extensions import override

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma.config import ChromaConfig
from corral.providers.vector_io.chroma.search import ChromaSearch
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider


class ChromaProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder, and a collection beside a large one."""

    searcher = ChromaSearch

    def __init__(self, provider_id: str, config: ChromaConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        beside = path.with_suffix(".chroma")
        searcher = partial(self.searcher, vector_db, self._config, beside)
        return ChunkFileEngine(vector_db, path, self._config, searcher)


def create(provider_id: str, config: ChromaConfig, home: Path) -> ChromaProvider:
    """Build the provider (its spec's factory)."""
    return ChromaProvider(
        provider_id, config, config.folder or provider_folder(provider_id, "chroma", home)
    )
