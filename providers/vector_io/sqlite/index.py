"""The index of one vector DB: a chunk file whose vectors are searched exactly."""

from __future__ import annotations

from pathlib import Path

import sqlite_vec

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.vectors import VectorSearch
from corral.providers.vector_io.store.index import ChunkFileIndex


class SqliteIndex(ChunkFileIndex):
    """Chunks, keywords and vectors in one SQLite file; every public method is the contract's.

    Args:
        path: The file, which exists.
    """

    def __init__(self, vector_db: VectorDB, path: Path, config: SqliteConfig) -> None:
        vectors = VectorSearch(
            vector_db.embedding_dimension,
            effective_metric(vector_db),
            memory_mib=config.vector_memory_mib,
            beside=path,
        )
        super().__init__(vector_db, path, config, vectors, sqlite_vec.loadable_path())
