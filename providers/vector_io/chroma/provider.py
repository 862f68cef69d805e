"""inline::chroma and remote::chroma: make and open the collections of vector DBs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from corral.api.engine_index import EngineIndex
from corral.api.errors import CorralError, NotFound, ProviderError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.chroma.client import Collection, Engine
from corral.providers.vector_io.chroma.config import ChromaConfig, RemoteChromaConfig
from corral.providers.vector_io.chroma.engine import ChromaEngine
from corral.providers.vector_io.chroma.keyword import Mirror
from corral.providers.vector_io.chroma.keyword.journal import MOST_MARKERS, fold
from corral.providers.vector_io.chroma.server import ChromaServer
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.write_ahead import WriteAheadEngine
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import ChunkFileProvider

PREFIX = "corral-"
"""How the names of Corral's collections begin."""


class InlineChromaProvider(ChunkFileProvider):
    """Holds one file per vector DB in one folder, and a collection beside a large one."""

    def __init__(self, provider_id: str, config: ChromaConfig, folder: Path) -> None:
        super().__init__(provider_id, folder)
        self._config = config

    @override
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        # Here, since remote::chroma does not need chromadb.
        from corral.providers.vector_io.chroma.search import ChromaSearch

        searcher = partial(ChromaSearch, vector_db, self._config, path.with_suffix(".chroma"))
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class ChromaProvider(VectorIOProvider):
    """Holds one collection per vector DB in a server.

    Args:
        home: The data folder, for the write-ahead log.
        mirrors: The folder of the mirrors.
        hold: Returns the engine, to be released after use.
    """

    def __init__(
        self,
        provider_id: str,
        config: RemoteChromaConfig,
        home: Path,
        mirrors: Path,
        threads: ThreadPool,
        *,
        hold: Callable[[], Engine],
    ) -> None:
        super().__init__(provider_id)
        self._config = config
        self._home = home
        self._mirrors = mirrors
        self._hold = hold
        self._threads = threads

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        engine = await self._threads.run(self._open, vector_db, create)
        return EngineIndex(await WriteAheadEngine.open(engine, self._home))

    def _open(self, vector_db: VectorDB, create: bool) -> ChromaEngine:
        engine = self._hold()
        try:
            name = stored_name(vector_db, PREFIX)
            collection = self._collection(engine, vector_db, create)
            mirror = Mirror(
                self._mirrors / f"{name}.db",
                collection,
                vector_db,
                self._config.keyword_memory_mib,
            )
            mirror.prepare()
            with suppress(ProviderError):  # housekeeping that the next one can do
                fold(collection, MOST_MARKERS)
        except BaseException:
            engine.release()
            raise
        drop = partial(engine.drop, name)
        return ChromaEngine(
            vector_db, collection, mirror, self._threads, drop=drop, release=engine.release
        )

    def _collection(self, engine: Engine, vector_db: VectorDB, create: bool) -> Collection:
        name = stored_name(vector_db, PREFIX)
        if create:
            return engine.create(name, self._graph(vector_db))
        found = engine.open(name)
        if found is None:
            raise NotFound(
                f"The collection of vector DB {vector_db.identifier!r} is gone from Chroma.",
                hint="Delete the vector DB and register it again.",
                field="vector_db_id",
            )
        return found

    def _graph(self, vector_db: VectorDB) -> dict[str, Any]:
        metric = Metric.COSINE if vector_db.normalize else vector_db.metric
        return {"hnsw": self._config.graph(metric)}

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections and mirrors that no registration holds; see the contract."""
        names = await self._threads.run(self._names)
        drop = partial(self._threads.run, self._remove)
        return await strays(names, registered, drop, partial(stored_name, prefix=PREFIX), PREFIX)

    def _names(self) -> list[str]:
        names = [path.stem for path in self._mirrors.glob("*.db")]
        engine = self._hold()
        try:
            return names + list(engine.names())
        finally:
            engine.release()

    def _remove(self, name: str) -> None:
        engine = self._hold()
        try:
            engine.drop(name)
        finally:
            engine.release()
        for path in self._mirrors.glob(f"{name}.db*"):
            path.unlink(missing_ok=True)

    async def health(self) -> Health:
        """Return OK if Chroma answers."""
        try:
            await self._threads.run(self._ping)
        except CorralError as error:
            return Health("Error", str(error))
        return Health("OK")

    def _ping(self) -> None:
        engine = self._hold()
        try:
            engine.ping()
        finally:
            engine.release()


def create(provider_id: str, config: ChromaConfig, home: Path) -> InlineChromaProvider:
    """Build inline::chroma (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "chroma", home)
    return InlineChromaProvider(provider_id, config, folder)


def create_remote(provider_id: str, config: RemoteChromaConfig, home: Path) -> ChromaProvider:
    """Build remote::chroma (its spec's factory). The server need not run yet."""
    mirrors = config.folder or provider_folder(provider_id, "chroma", home)
    server = ChromaServer(provider_id, config)
    threads = ThreadPool(provider_id, config.timeout_seconds, config.max_connections)
    return ChromaProvider(provider_id, config, home, mirrors, threads, hold=server.hold)
