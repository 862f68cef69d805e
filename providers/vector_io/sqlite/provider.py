"""inline::sqlite: creates and opens the files of vector DBs in one folder."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import sqlite_vec
from typing_extensions import override

from corral.api.errors import MissingDependency
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.kit.names import provider_folder
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.store.engine import ChunkFileEngine, Lend, VectorSearcher
from corral.providers.vector_io.store.provider import ChunkFileProvider
from corral.providers.vector_io.store.vectors import VectorSearch

MIN_RECALL = 0.99
"""Minimum recall@10 of the index of `index: auto`."""


class SqliteProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder."""

    def __init__(self, provider_id: str, config: SqliteConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        make = self._indexed if self._config.index == "auto" else self._exact
        searcher = partial(make, vector_db, path)
        index = path.with_suffix(".faiss")  # It may be there from an earlier configuration.
        return ChunkFileEngine(
            vector_db,
            path,
            self._config,
            searcher,
            sqlite_vec.loadable_path(),
            on_drop=partial(index.unlink, missing_ok=True),
        )

    def _exact(self, vector_db: VectorDB, path: Path, lend: Lend) -> VectorSearcher:
        return VectorSearch(
            vector_db.embedding_dimension,
            effective_metric(vector_db),
            memory_mib=self._config.vector_memory_mib,
            beside=path,
        )

    def _indexed(self, vector_db: VectorDB, path: Path, lend: Lend) -> VectorSearcher:
        from corral.providers.vector_io.store.faiss.config import IndexConfig
        from corral.providers.vector_io.store.faiss.search import FaissSearch

        return FaissSearch(
            vector_db,
            IndexConfig(index="ivf", approximate_from=self._config.approximate_from),
            path.with_suffix(".faiss"),
            lend,
            min_recall=MIN_RECALL,
            most_bytes=int(self._config.vector_memory_mib * 2**20),
            beside=path,
        )


def create(provider_id: str, config: SqliteConfig, home: Path) -> SqliteProvider:
    """Build the provider (its spec's factory).

    Raises:
        MissingDependency: `index` is `auto`, and FAISS is not installed.
    """
    if config.index == "auto" and find_spec("faiss") is None:
        command = "pip install 'corral-rag[faiss]'"
        raise MissingDependency("inline::sqlite with index: auto", "faiss-cpu", command)
    folder = config.folder or provider_folder(provider_id, "sqlite", home)
    return SqliteProvider(provider_id, config, folder)
