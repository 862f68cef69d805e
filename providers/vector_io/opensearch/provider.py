"""remote::opensearch: creates and opens the indexes of vector DBs on one cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corral.api.engine_index import EngineIndex
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import stored_name, strays
from corral.providers.vector_io.kit.refusals import health_of
from corral.providers.vector_io.kit.write_ahead import FileWriteLog, WriteAheadEngine, WriteLogs
from corral.providers.vector_io.opensearch.client import (
    Cluster,
    ClusterIndex,
    drop_index,
    index_names,
)
from corral.providers.vector_io.opensearch.config import OpenSearchConfig
from corral.providers.vector_io.opensearch.engine import OpenSearchEngine
from corral.providers.vector_io.opensearch.records import RequestLimits


class OpenSearchProvider(VectorIOProvider):
    """Keeps one index per vector DB; its indexes share one client.

    Args:
        config: The cluster and its settings.
        logs: The write-ahead logs of its vector DBs.
        limits: Maximum sizes of requests.
    """

    def __init__(
        self,
        provider_id: str,
        config: OpenSearchConfig,
        logs: WriteLogs,
        limits: RequestLimits | None = None,
    ) -> None:
        super().__init__(provider_id)
        self._cluster = Cluster(provider_id, config)
        self._logs = logs
        self._limits = limits or RequestLimits()
        self._prefix = config.index_prefix

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            ConfigError: The server is too old or refuses the settings, a newer Corral wrote the
                vector DB, or its mapping was changed.
        """
        name = stored_name(vector_db, self._prefix)
        index = ClusterIndex(vector_db, name, self._cluster, self._limits)
        try:
            engine = OpenSearchEngine(vector_db, index)
            if not create or not await index.make():
                await engine.prepare()
        except BaseException:
            await index.leave()
            raise
        return EngineIndex(await WriteAheadEngine.open(engine, self._logs))

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the indexes without a registration; see the contract."""
        names = await index_names(self._cluster, self._prefix)
        name_of = partial(stored_name, prefix=self._prefix)
        drop = partial(drop_index, self._cluster)
        return await strays(names, registered, drop, name_of, self._prefix)

    async def health(self) -> Health:
        """Return OK if the cluster answers."""
        return await health_of(self._cluster.version())

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.client.close()


def create(
    provider_id: str, config: OpenSearchConfig, home: Path, logs: WriteLogs | None = None
) -> OpenSearchProvider:
    """Build the provider (its spec's factory)."""
    return OpenSearchProvider(provider_id, config, logs or FileWriteLog.of_home(home))
