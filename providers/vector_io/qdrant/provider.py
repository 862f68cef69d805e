"""inline::qdrant and remote::qdrant: create and open the collections of vector DBs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from corral.api.engine_index import EngineIndex
from corral.api.errors import CorralError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.refusals import health_of
from corral.providers.vector_io.kit.write_ahead import FileWriteLog, WriteAheadEngine, WriteLogs
from corral.providers.vector_io.qdrant.config import QdrantConfig, QdrantEdgeConfig
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider

if TYPE_CHECKING:
    from corral.providers.vector_io.qdrant.client import Server

# Each provider imports its client on first use: the other's may not be installed.


class QdrantEdgeProvider(ChunkFileProvider):
    """Keeps one file per vector DB in one folder, and a Qdrant Edge shard beside each large one."""

    def __init__(self, provider_id: str, config: QdrantEdgeConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        from corral.providers.vector_io.qdrant.edge.search import EdgeSearch

        searcher = partial(EdgeSearch, vector_db, self._config, path)
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class QdrantProvider(VectorIOProvider):
    """Keeps one collection per vector DB on a Qdrant server or cluster."""

    def __init__(self, provider_id: str, server: Server, logs: WriteLogs) -> None:
        super().__init__(provider_id)
        self._logs = logs
        self._server = server

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract. A failure leaves nothing behind.

        Raises:
            ConfigError: The server is too old, or a newer Corral wrote the vector DB.
        """
        from corral.providers.vector_io.qdrant.engine import QdrantEngine, ServerCollection
        from corral.providers.vector_io.qdrant.records import VERSION

        name = self._name(vector_db)
        collection = ServerCollection(vector_db, name, self._server)
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
        return EngineIndex(await WriteAheadEngine.open(engine, self._logs))

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections without a registration; see the contract."""
        found = await self._server.call(self._server.client.get_collections)
        names = [one.name for one in found.collections]
        prefix = self._server.config.collection_prefix
        return await strays(names, registered, self._drop, self._name, prefix)

    def _name(self, vector_db: VectorDB) -> str:
        return stored_name(vector_db, self._server.config.collection_prefix)

    async def _drop(self, name: str) -> None:
        await self._server.call(lambda: self._server.client.delete_collection(name))

    async def health(self) -> Health:
        """Send two requests to the server; the first one needs the API key."""
        return await health_of(self._version())

    async def _version(self) -> str:
        name = f"{self._server.config.collection_prefix}health"
        await self._server.call(lambda: self._server.client.collection_exists(name))
        return (await self._server.call(self._server.client.info)).version

    async def close(self) -> None:
        """Close the connections."""
        await self._server.client.close()


def create(provider_id: str, config: QdrantEdgeConfig, home: Path) -> QdrantEdgeProvider:
    """Build inline::qdrant (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "qdrant", home)
    return QdrantEdgeProvider(provider_id, config, folder)


def create_remote(
    provider_id: str, config: QdrantConfig, home: Path, logs: WriteLogs | None = None
) -> QdrantProvider:
    """Build remote::qdrant (its spec's factory). It connects at the first request."""
    from corral.providers.vector_io.qdrant.client import Server, make_client

    server = Server(provider_id, make_client(config), config)
    return QdrantProvider(provider_id, server, logs or FileWriteLog.of_home(home))
