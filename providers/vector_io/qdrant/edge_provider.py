"""inline::qdrant: makes and opens the shards of vector DBs in one folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from functools import partial
from pathlib import Path

from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.strays import strays
from corral.providers.vector_io.qdrant.collection import collection_name
from corral.providers.vector_io.qdrant.config import QdrantEdgeConfig
from corral.providers.vector_io.qdrant.edge import EdgeCollection
from corral.providers.vector_io.qdrant.index import QdrantIndex


class QdrantEdgeProvider(VectorIOProvider):
    """Holds one shard a vector DB, each in a folder of its own below one folder."""

    def __init__(self, provider_id: str, config: QdrantEdgeConfig, folder: Path) -> None:
        super().__init__(provider_id)
        self._config = config
        self._folder = folder

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> QdrantIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            Unavailable: Another process has it open.
            ConfigError: A newer Corral wrote it.
        """
        get = EdgeCollection.make if create else EdgeCollection.open
        collection = await asyncio.to_thread(
            get,
            vector_db,
            self._folder / collection_name(vector_db),
            flush_each_write=self._config.flush_each_write,
        )
        index = QdrantIndex(vector_db, collection)
        try:
            await index.reindex()
        except BaseException:
            await index.close()
            raise
        return index

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the folders that no registration holds; see the contract."""
        found = await strays(await asyncio.to_thread(self._names), registered, collection_name)
        return [Orphan(name, partial(self._remove, name)) for name in found]

    async def _remove(self, name: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder / name)

    def _names(self) -> list[str]:
        return [path.name for path in self._folder.glob("*") if path.is_dir()]

    async def health(self) -> Health:
        """Say whether the folder, or the one it will be made in, can be written to."""
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK):
            return Health("OK")
        return Health("Error", f"{folder} cannot be written to")


def create(provider_id: str, config: QdrantEdgeConfig, home: Path) -> QdrantEdgeProvider:
    """Build inline::qdrant (its spec's factory)."""
    folder = (
        config.folder or home / "qdrant" / hashlib.sha256(provider_id.encode()).hexdigest()[:16]
    )
    return QdrantEdgeProvider(provider_id, config, folder)
