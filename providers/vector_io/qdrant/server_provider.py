"""remote::qdrant: makes and opens the collections of vector DBs on one server."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from corral.api.errors import CorralError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.strays import strays
from corral.providers.vector_io.qdrant.collection import collection_name
from corral.providers.vector_io.qdrant.config import QdrantConfig
from corral.providers.vector_io.qdrant.connection import Server, make_client
from corral.providers.vector_io.qdrant.index import QdrantIndex
from corral.providers.vector_io.qdrant.server import ServerCollection


class QdrantProvider(VectorIOProvider):
    """Holds one collection a vector DB on one Qdrant server or cluster.

    Args:
        provider_id: Its id.
        server: The connection.
    """

    def __init__(self, provider_id: str, server: Server) -> None:
        super().__init__(provider_id)
        self._server = server

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> QdrantIndex:
        """Return the index of a vector DB; see the contract. A failure leaves nothing that it made.

        Raises:
            ConfigError: The server is too old, or a newer Corral wrote the vector DB.
        """
        name = self._name(vector_db)
        collection = ServerCollection(vector_db, name, self._server)
        made = create and await collection.make()
        index = QdrantIndex(vector_db, collection)
        try:
            await index.reindex()
        except CorralError:
            if made:
                with suppress(CorralError):
                    await collection.drop()
            raise
        return index

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections that no registration holds; see the contract."""
        found = await self._server.call(self._server.client.get_collections)
        names = [one.name for one in found.collections]
        prefix = self._server.config.collection_prefix
        lost = await strays(names, registered, self._name, prefix)
        return [Orphan(name, partial(self._drop, name)) for name in lost]

    def _name(self, vector_db: VectorDB) -> str:
        return self._server.config.collection_prefix + collection_name(vector_db)

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


def create(provider_id: str, config: QdrantConfig, home: Path) -> QdrantProvider:
    """Build remote::qdrant (its spec's factory). It connects at the first request."""
    return QdrantProvider(provider_id, Server(provider_id, make_client(config), config))
