"""inline::sqlite: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from pathlib import Path

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.index import SqliteIndex
from corral.providers.vector_io.store.provider import ChunkFileProvider


class SqliteProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder."""

    def __init__(self, provider_id: str, config: SqliteConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    def index_of(self, vector_db: VectorDB, path: Path) -> SqliteIndex:
        """Return the index of a vector DB on its file."""
        return SqliteIndex(vector_db, path, self._config)


def create(provider_id: str, config: SqliteConfig, home: Path) -> SqliteProvider:
    """Build the provider (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "sqlite", home)
    return SqliteProvider(provider_id, config, folder)
