"""inline::sqlite: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from pathlib import Path

import sqlite_vec
from typing_extensions import override

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider
from corral.providers.vector_io.store.vectors import VectorSearch


class SqliteProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder."""

    def __init__(self, provider_id: str, config: SqliteConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        vectors = VectorSearch(
            vector_db.embedding_dimension,
            effective_metric(vector_db),
            memory_mib=self._config.vector_memory_mib,
            beside=path,
        )
        return ChunkFileEngine(
            vector_db, path, self._config, lambda _: vectors, sqlite_vec.loadable_path()
        )


def create(provider_id: str, config: SqliteConfig, home: Path) -> SqliteProvider:
    """Build the provider (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "sqlite", home)
    return SqliteProvider(provider_id, config, folder)
