"""inline::faiss: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from pathlib import Path

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.index import FaissIndex
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.store.provider import ChunkFileProvider


class FaissProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder, and a FAISS index beside a large one."""

    def __init__(self, provider_id: str, config: FaissConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    def index_of(self, vector_db: VectorDB, path: Path) -> FaissIndex:
        """Return the index of a vector DB on its file."""
        return FaissIndex(vector_db, path, self._config)


def create(provider_id: str, config: FaissConfig, home: Path) -> FaissProvider:
    """Build the provider (its spec's factory)."""
    return FaissProvider(
        provider_id, config, config.folder or provider_folder(provider_id, "faiss", home)
    )
