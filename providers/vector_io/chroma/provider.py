"""inline::chroma and remote::chroma: create and open the files and collections of vector DBs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from typing_extensions import override

from corral.api.engine_index import EngineIndex
from corral.api.errors import ProviderError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.chroma.client import ChromaServer, Collection
from corral.providers.vector_io.chroma.config import ChromaConfig, RemoteChromaConfig
from corral.providers.vector_io.chroma.engine import ChromaEngine
from corral.providers.vector_io.chroma.keyword import Mirror
from corral.providers.vector_io.chroma.keyword.journal import MOST_MARKERS, fold
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.refusals import data_is_gone, health_of
from corral.providers.vector_io.kit.write_ahead import FileWriteLog, WriteAheadEngine, WriteLogs
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider

PREFIX = "corral-"
"""Prefix of the names of Corral's collections."""


class ChromaProvider(ChunkFileProvider):
    """Keeps one file per vector DB in one folder, and a collection beside each large one."""

    def __init__(self, provider_id: str, config: ChromaConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        # remote::chroma needs no chromadb.
        from corral.providers.vector_io.chroma.search import ChromaSearch

        searcher = partial(ChromaSearch, vector_db, self._config, path.with_suffix(".chroma"))
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class ChromaServerProvider(VectorIOProvider):
    """Keeps one collection per vector DB on a server, and its mirror in a folder."""

    def __init__(
        self, name: str, config: RemoteChromaConfig, folder: Path, logs: WriteLogs
    ) -> None:
        super().__init__(name)
        self._config, self._mirrors, self._logs = config, folder, logs
        self._server = ChromaServer(name, config)
        self._threads = ThreadPool(name, config.timeout_seconds, config.max_connections)

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        engine = await self._threads.run(self._open, vector_db, create)
        return EngineIndex(await WriteAheadEngine.open(engine, self._logs))

    def _open(self, vector_db: VectorDB, create: bool) -> ChromaEngine:
        name = stored_name(vector_db, PREFIX)
        with self._server.http.using():
            collection = self._collection(name, vector_db, create)
            path = self._mirrors / f"{name}.db"
            mirror = Mirror(path, collection, vector_db, self._config.keyword_memory_mib)
            mirror.prepare()
            with suppress(ProviderError):  # this is cleanup, which the next open can do
                fold(collection, MOST_MARKERS)
            self._server.http.enter()
        drop, release = partial(self._server.drop, name), self._server.http.leave
        return ChromaEngine(
            vector_db, collection, mirror, self._threads, drop=drop, release=release
        )

    def _collection(self, name: str, vector_db: VectorDB, create: bool) -> Collection:
        if create:
            metric = Metric.COSINE if vector_db.normalize else vector_db.metric
            return self._server.create(name, {"hnsw": self._config.graph(metric)})
        found = self._server.open(name)
        if found is None:
            raise data_is_gone(
                f"The collection of vector DB {vector_db.identifier!r} is gone from Chroma."
            )
        return found

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections and mirrors without a registration; see the contract."""
        names = await self._threads.run(self._names)
        drop = partial(self._threads.run, self._remove)
        return await strays(names, registered, drop, partial(stored_name, prefix=PREFIX), PREFIX)

    def _names(self) -> list[str]:
        mirrors = [path.stem for path in self._mirrors.glob("*.db")]
        with self._server.http.using():
            return mirrors + self._server.names()

    def _remove(self, name: str) -> None:
        with self._server.http.using():
            self._server.drop(name)
        for path in self._mirrors.glob(f"{name}.db*"):
            path.unlink(missing_ok=True)

    async def health(self) -> Health:
        """Return OK if Chroma answers."""
        return await health_of(self._threads.run(self._ping))

    def _ping(self) -> str:
        with self._server.http.using():
            return self._server.ping()


def create(provider_id: str, config: ChromaConfig, home: Path) -> ChromaProvider:
    """Build inline::chroma (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "chroma", home)
    return ChromaProvider(provider_id, config, folder)


def create_remote(
    provider_id: str, config: RemoteChromaConfig, home: Path, logs: WriteLogs | None = None
) -> ChromaServerProvider:
    """Build remote::chroma (its spec's factory). The server need not run yet."""
    folder = config.folder or provider_folder(provider_id, "chroma", home)
    return ChromaServerProvider(provider_id, config, folder, logs or FileWriteLog.of_home(home))
