"""inline::qdrant and remote::qdrant: make and open the collections of vector DBs."""

from __future__ import annotations

import asyncio
import math
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corral.api.engine_index import EngineIndex
from corral.api.errors import CorralError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.folders import folder_health
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.write_ahead import WriteAheadEngine
from corral.providers.vector_io.qdrant.config import QdrantConfig, QdrantEdgeConfig
from corral.providers.vector_io.qdrant.engine import QdrantEngine
from corral.providers.vector_io.qdrant.records import VERSION

if TYPE_CHECKING:
    from corral.providers.vector_io.qdrant.server.client import Server

# Each provider imports its own client when it is used: the other may not be installed.


class QdrantEdgeProvider(VectorIOProvider):
    """Holds one shard a vector DB, each in a folder of its own below one folder."""

    def __init__(self, provider_id: str, config: QdrantEdgeConfig, folder: Path) -> None:
        super().__init__(provider_id)
        self._config = config
        self._folder = folder

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            Unavailable: Another process has it open.
            ConfigError: A newer Corral wrote it.
        """
        from corral.providers.vector_io.qdrant.edge import collection as edge

        get = edge.EdgeCollection.make if create else edge.EdgeCollection.open
        collection = await asyncio.to_thread(
            get,
            vector_db,
            self._folder / stored_name(vector_db),
            self._config,
        )
        engine = QdrantEngine(vector_db, collection, math.inf)  # no other process can write
        try:
            await engine.reindex()
        except BaseException:
            await engine.close()
            raise
        return EngineIndex(engine)

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the folders that no registration holds; see the contract."""
        names = await asyncio.to_thread(self._names)
        return await strays(names, registered, self._remove)

    async def _remove(self, name: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder / name)

    def _names(self) -> list[str]:
        return [path.name for path in self._folder.glob("*") if path.is_dir()]

    async def health(self) -> Health:
        """Check that the folder, or the one it will be made in, can be written to."""
        return folder_health(self._folder)


class QdrantProvider(VectorIOProvider):
    """Holds one collection a vector DB on one Qdrant server or cluster."""

    def __init__(self, provider_id: str, server: Server, home: Path) -> None:
        super().__init__(provider_id)
        self._home = home
        self._server = server

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract. A failure leaves nothing that it made.

        Raises:
            ConfigError: The server is too old, or a newer Corral wrote the vector DB.
        """
        from corral.providers.vector_io.qdrant.server import collection as remote

        name = self._name(vector_db)
        collection = remote.ServerCollection(vector_db, name, self._server)
        made = create and await collection.make()
        max_age = self._server.config.statistics_max_age_seconds
        engine = QdrantEngine(vector_db, collection, max_age)
        try:
            await (collection.upgrade(VERSION) if made else engine.reindex())
        except CorralError:
            if made:
                with suppress(CorralError):
                    await collection.drop()
            raise
        return EngineIndex(await WriteAheadEngine.open(engine, self._home))

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections that no registration holds; see the contract."""
        found = await self._server.call(self._server.client.get_collections)
        names = [one.name for one in found.collections]
        prefix = self._server.config.collection_prefix
        return await strays(names, registered, self._drop, self._name, prefix)

    def _name(self, vector_db: VectorDB) -> str:
        return stored_name(vector_db, self._server.config.collection_prefix)

    async def _drop(self, name: str) -> None:
        await self._server.call(lambda: self._server.client.delete_collection(name))

    async def health(self) -> Health:
        """Ask the server for one thing, with the API key."""
        name = f"{self._server.config.collection_prefix}health"
        try:
            await self._server.call(lambda: self._server.client.collection_exists(name))
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Close the connections."""
        await self._server.client.close()


def create(provider_id: str, config: QdrantEdgeConfig, home: Path) -> QdrantEdgeProvider:
    """Build inline::qdrant (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "qdrant", home)
    return QdrantEdgeProvider(provider_id, config, folder)


def create_remote(provider_id: str, config: QdrantConfig, home: Path) -> QdrantProvider:
    """Build remote::qdrant (its spec's factory). It connects at the first request."""
    from corral.providers.vector_io.qdrant.server.client import Server, make_client

    return QdrantProvider(provider_id, Server(provider_id, make_client(config), config), home)
