"""inline::lancedb: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from typing_extensions import override

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.lancedb.config import LanceDBConfig
from corral.providers.vector_io.lancedb.search import LanceDBSearch
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider


class LanceDBProvider(ChunkFileProvider):
    """Keeps one file per vector DB in one folder, and a LanceDB table beside each large one."""

    def __init__(self, provider_id: str, config: LanceDBConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        beside = path.with_suffix(".lancedb")
        searcher = partial(LanceDBSearch, vector_db, self._config, beside)
        return ChunkFileEngine(vector_db, path, self._config, searcher)


def create(provider_id: str, config: LanceDBConfig, home: Path) -> LanceDBProvider:
    """Build the provider (its spec's factory)."""
    return LanceDBProvider(
        provider_id, config, config.folder or provider_folder(provider_id, "lancedb", home)
    )
