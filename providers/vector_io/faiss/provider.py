"""inline::faiss: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from typing_extensions import override

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.faiss.search import FaissSearch
from corral.providers.vector_io.store.provider import ChunkFileProvider


class FaissProvider(ChunkFileProvider):
    """Keeps one file per vector DB in one folder, and a FAISS index beside each large one."""

    def __init__(self, provider_id: str, config: FaissConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        beside = path.with_suffix(".faiss")
        searcher = partial(FaissSearch, vector_db, self._config, beside)
        return ChunkFileEngine(vector_db, path, self._config, searcher)


def create(provider_id: str, config: FaissConfig, home: Path) -> FaissProvider:
    """Build the provider (its spec's factory)."""
    return FaissProvider(
        provider_id, config, config.folder or provider_folder(provider_id, "faiss", home)
    )
