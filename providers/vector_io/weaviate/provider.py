"""remote::weaviate: creates and opens the collections of vector DBs on a server or cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corral.api.engine_index import EngineIndex
from corral.api.errors import CorralError, ProviderError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import stored_name, strays
from corral.providers.vector_io.kit.write_ahead import FileWriteLog, WriteAheadEngine, WriteLogs
from corral.providers.vector_io.weaviate.client import Connection, waiting
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.engine import Collection, WeaviateEngine
from corral.providers.vector_io.weaviate.records import RequestLimits


class WeaviateProvider(VectorIOProvider):
    """Keeps one collection per vector DB; its indexes share one connection.

    Args:
        config: Address and settings of the server.
        logs, limits: The write-ahead logs of its vector DBs, and the limits of requests.
    """

    def __init__(
        self,
        name: str,
        config: WeaviateConfig,
        logs: WriteLogs,
        limits: RequestLimits | None = None,
    ) -> None:
        super().__init__(name)
        self._limits = limits or RequestLimits()
        self._config, self._logs = config, logs
        self._connection = Connection(name, config)

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            ConfigError: The server is too old or refuses the settings, or the data is newer.
        """
        name = stored_name(vector_db, self._config.collection_prefix)
        collection = Collection(vector_db, name, self._connection, self._limits)
        try:
            engine = WeaviateEngine(
                vector_db,
                collection,
                undo_seconds=self._config.timeout_seconds,
                statistics_max_age_seconds=self._config.statistics_max_age_seconds,
            )
            if not create or not await collection.make():
                await engine.prepare()  # after the creation, nothing can fail
        except BaseException:
            await collection.leave()
            raise
        return EngineIndex(await WriteAheadEngine.open(engine, self._logs))

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections without a registration; see the contract."""
        names = await self._connection.call_once(lambda client: client.collections.list_all())
        prefix = self._config.collection_prefix
        name_of = partial(stored_name, prefix=prefix)
        return await strays(names, registered, self._drop, name_of, prefix)

    async def _drop(self, name: str) -> None:
        await self._connection.call_once(lambda client: client.collections.delete(name))

    async def health(self) -> Health:
        """Return OK if the server answers, with the number of vectors waiting to be indexed."""
        try:
            meta = await self._connection.call_once(lambda client: client.get_meta())
            return Health("OK", await self._lag(), str(meta.get("version", "")))
        except CorralError as error:
            return Health("Error", str(error))

    async def _lag(self) -> str:
        names = sorted(set(self._connection.collections))
        try:
            late = 0
            for name in names:
                late += await self._connection.call_once(partial(waiting, name=name))
        except ProviderError as error:
            if error.retryable:
                raise
            return f"{error} Whether vector search finds the last writes is not known."
        message = f"Vector search does not find {late} chunks yet: they wait to be indexed."
        return message if late else ""

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.client.close()


def create(
    provider_id: str, config: WeaviateConfig, home: Path, logs: WriteLogs | None = None
) -> WeaviateProvider:
    """Build the provider (its spec's factory)."""
    return WeaviateProvider(provider_id, config, logs or FileWriteLog.of_home(home))
