"""inline::milvus and remote::milvus: create and open the collections of vector DBs."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pymilvus import MilvusClient

from corral.api.engine import Engine
from corral.api.engine_index import EngineIndex
from corral.api.errors import Unavailable
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.channels import channel_options
from corral.providers.vector_io.kit.folders import make_folder
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.refusals import data_is_gone, health_of
from corral.providers.vector_io.kit.write_ahead import FileWriteLog, WriteAheadEngine, WriteLogs
from corral.providers.vector_io.milvus.client import UNFLUSHED_TERMS, Collection, Connection
from corral.providers.vector_io.milvus.config import MilvusConfig, RemoteMilvusConfig
from corral.providers.vector_io.milvus.engine import MilvusEngine
from corral.providers.vector_io.milvus.records import LITE, SERVER, Layout, VectorIndex

_NO_ADDRESS = "unix:"  # no network connection is made
# Calls in this process cannot be lost; only the work itself takes time.
_LITE_SECONDS = 600


class MilvusProvider(VectorIOProvider):
    """Keeps one collection per vector DB.

    Args:
        connection: The connection that all its indexes share.
        vectors: The index of new vector DBs.
        prefix: Prefix of the names of collections.
        max_age_seconds: Maximum age of the statistics of other processes' writes.
        logs: The write-ahead logs of its vector DBs; None for a transactional engine.
        unflushed_terms: Maximum number of unflushed terms in Milvus Lite.
    """

    def __init__(
        self,
        provider_id: str,
        connection: Connection,
        layout: Layout,
        vectors: VectorIndex,
        prefix: str,
        max_age_seconds: float = 0.0,
        logs: WriteLogs | None = None,
        unflushed_terms: int = UNFLUSHED_TERMS,
    ) -> None:
        self._unflushed_terms = unflushed_terms
        super().__init__(provider_id)
        self._max_age, self._logs = max_age_seconds, logs
        self.connection, self._layout = connection, layout
        self._vectors, self._prefix = vectors, prefix

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        engine: Engine = await self.connection.threads.run(self._open, vector_db, create)
        if self._logs is not None:
            engine = await WriteAheadEngine.open(engine, self._logs)
        return EngineIndex(engine)

    def _open(self, vector_db: VectorDB, create: bool) -> MilvusEngine:
        name = stored_name(vector_db, self._prefix)
        stored = self._layout, self._vectors, self._unflushed_terms
        collection = Collection(self.connection, name, vector_db, *stored)
        with self.connection.client.using():
            is_new = not collection.exists()
            if is_new and not create:
                raise data_is_gone(
                    f"The collection of vector DB {vector_db.identifier!r} is gone from Milvus."
                )
            if is_new:
                collection.make()
            engine = MilvusEngine(vector_db, collection, self._max_age)
            try:
                engine.prepare(is_new=is_new)
            except BaseException:
                try:
                    if is_new:
                        collection.drop()
                finally:
                    self.connection.client.leave()
                raise
        return engine

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the collections without a registration; see the contract."""
        once = partial(self.connection.threads.run, self.connection.call_once)
        name_of = partial(stored_name, prefix=self._prefix)
        names = await once("list_collections")
        return await strays(
            names, registered, partial(once, "drop_collection"), name_of, self._prefix
        )

    async def health(self) -> Health:
        """Check that Milvus answers."""
        connection = self.connection
        return await health_of(connection.threads.run(connection.call_once, "get_server_version"))

    async def close(self) -> None:
        """Close the connection."""
        await asyncio.to_thread(self.connection.client.close)


class Embedded:
    """Milvus Lite in this process, as a gRPC channel for the driver; opens no port.

    Args:
        path: Its folder.

    Raises:
        Exception: Milvus Lite cannot open the folder.
    """

    def __init__(self, path: str) -> None:
        import milvus_lite
        from milvus_lite.adapter.grpc import servicer

        self._engine = milvus_lite.MilvusLite(path)
        _remove_torn(Path(path))
        self._methods = servicer.MilvusServicer(self._engine)
        atexit.register(self.close)

    def unary_unary(self, path: str, *_: Any, **__: Any) -> _Method:
        """Return a method by its path."""
        return _Method(getattr(self._methods, path.rpartition("/")[2]))

    unary_stream = stream_stream = unary_unary  # the driver looks these up but never calls them

    def close(self) -> None:
        """Release the folder."""
        atexit.unregister(self.close)
        self._engine.close()


def _remove_torn(folder: Path) -> None:
    """Remove incomplete index files of a killed process.

    Milvus Lite writes them in place and refuses to load a collection with an incomplete one; a
    missing one is rebuilt from the rows.
    """
    for file in folder.glob("collections/*/partitions/*/indexes/*.idx"):
        try:
            np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            file.unlink()


class _Method:
    """A method of an embedded Milvus, callable in the three ways that the driver uses."""

    def __init__(self, method: Callable[[Any, None], Any]) -> None:
        self._method = method

    def __call__(self, request: Any, **_: Any) -> Any:
        return self._method(request, None)

    def with_call(self, request: Any, **_: Any) -> tuple[Any, None]:
        """Return the response; there is no call object."""
        return self(request), None

    def future(self, request: Any, **_: Any) -> Future[Any]:
        """Return a completed future of the response."""
        answer: Future[Any] = Future()
        answer.set_result(self(request))
        return answer


def create(
    provider_id: str, config: MilvusConfig, home: Path, unflushed_terms: int = UNFLUSHED_TERMS
) -> MilvusProvider:
    """Build inline::milvus (its spec's factory)."""
    folder = config.folder or provider_folder(provider_id, "milvus", home)
    path = str((folder / "milvus.db").absolute())

    def connect() -> MilvusClient:
        make_folder(folder, provider_id)
        try:
            channel = Embedded(path)
        except Exception as error:
            raise Unavailable(
                f"{provider_id}: Milvus Lite cannot open {folder}.",
                hint="It allows one process at a time. Stop the other one, such as a server, or "
                "use remote::milvus.",
            ) from error
        return MilvusClient(_NO_ADDRESS, channel=channel, dedicated=True)

    connection = Connection(provider_id, connect, timeout_seconds=_LITE_SECONDS, embedded=True)
    lite = LITE, VectorIndex(), "corral_"
    return MilvusProvider(provider_id, connection, *lite, unflushed_terms=unflushed_terms)


def create_remote(
    provider_id: str,
    config: RemoteMilvusConfig,
    home: Path,
    logs: WriteLogs | None = None,
    unflushed_terms: int = UNFLUSHED_TERMS,
) -> MilvusProvider:
    """Build remote::milvus (its spec's factory)."""
    seconds = config.timeout_seconds
    channel = {**channel_options(seconds), "grpc.use_local_subchannel_pool": 1}
    options: dict[str, Any] = {"grpc_options": channel}
    if config.certificate:
        options["server_pem_path"] = str(config.certificate)

    def connect() -> MilvusClient:
        return MilvusClient(
            config.uri,
            token=config.token.get_secret_value(),
            db_name=config.database,
            timeout=seconds,
            dedicated=True,
            **options,
        )

    vectors = VectorIndex("FLAT")
    if config.index == "HNSW":
        build = (("M", config.hnsw_m), ("efConstruction", config.hnsw_ef_construction))
        vectors = VectorIndex("HNSW", build, config.hnsw_ef_search)
    connection = Connection(provider_id, connect, timeout_seconds=seconds, embedded=False)
    max_age = config.statistics_max_age_seconds
    far = SERVER, vectors, config.collection_prefix, max_age, logs or FileWriteLog.of_home(home)
    return MilvusProvider(provider_id, connection, *far, unflushed_terms=unflushed_terms)
