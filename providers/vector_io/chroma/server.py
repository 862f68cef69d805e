"""Chroma behind HTTP, by its documented interface (`/api/v2`), which servers have since 1.0.

Not by chromadb's own client: that sets no timeout, asks the server when it is made (so there is
none while the server is down), and brings a hundred megabytes of packages for a few requests.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray

from corral.api.engine_index import EngineIndex
from corral.api.errors import (
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import ThreadPool
from corral.providers.vector_io.chroma.client import (
    HALF_DROPPED,
    Collection,
    Engine,
    UnknownIds,
)
from corral.providers.vector_io.chroma.config import RemoteChromaConfig
from corral.providers.vector_io.chroma.engine import ChromaEngine
from corral.providers.vector_io.chroma.keyword import Mirror
from corral.providers.vector_io.chroma.keyword.journal import MOST_MARKERS, fold
from corral.providers.vector_io.chroma.records import Rows, Upsert, matrix_of
from corral.providers.vector_io.kit.clients import SharedClient
from corral.providers.vector_io.kit.names import provider_folder, stored_name, strays
from corral.providers.vector_io.kit.retries import retried
from corral.providers.vector_io.kit.write_ahead import WriteAheadEngine

BATCH_BYTES = 8 * 2**20
"""A server refuses requests of more than 40 MiB (its default); JSON may double what is counted."""
HEALTH_TIMEOUT_SECONDS = 3.0

_HINTS = {
    401: "Check headers.",
    403: "Check headers, tenant and database.",
    413: "Raise the server's max_payload_size_bytes.",
}

NAMES_AT_ONCE = 1000
"""Collections per page of a list."""


class ChromaServer(Engine):
    """One server, tenant and database; use it between `hold` and `release`.

    Neither texts nor headers reach a message.
    """

    def __init__(self, provider_id: str, config: RemoteChromaConfig) -> None:
        self._name = f"{provider_id} (remote::chroma)"
        self._config = config
        self._limits: dict[str, Any] = {}
        path = (
            f"/tenants/{quote(config.tenant, safe='')}/databases/{quote(config.database, safe='')}"
        )
        self._collections = f"{path}/collections"
        self._http = SharedClient(self._name, self._connect, httpx.Client.close)

    def hold(self) -> ChromaServer:
        """Return the server itself, connected for as long as it has holders. Sends nothing yet."""
        self._http.enter()
        return self

    def release(self) -> None:
        """Close the connections after the last holder's last request."""
        self._http.leave()

    def _connect(self) -> httpx.Client:
        headers = self._config.headers.items()
        return httpx.Client(
            base_url=f"{self._config.url}/api/v2",
            headers={name: value.get_secret_value() for name, value in headers},
            limits=httpx.Limits(max_connections=self._config.max_connections),
            # Certificates take 30 ms to load, and plain http has none.
            verify=httpx.URL(self._config.url).scheme == "https",
        )

    def create(self, name: str, configuration: Mapping[str, Any]) -> Collection:
        """Return the collection of this name, created if it is missing."""
        asked = {"name": name, "get_or_create": True, "configuration": dict(configuration)}
        found = self.request("POST", self._collections, asked)
        return self._collection(found)

    def open(self, name: str) -> Collection | None:
        """Return the collection of this name, or None."""
        try:
            return self._collection(self.request("GET", f"{self._collections}/{name}"))
        except NotFound:
            return None

    def names(self) -> list[str]:
        """Return the names of all collections, other programs' too."""
        found: list[str] = []
        while True:
            page = f"limit={NAMES_AT_ONCE}&offset={len(found)}"
            names = [one["name"] for one in self.request("GET", f"{self._collections}?{page}")]
            found += names
            if len(names) < NAMES_AT_ONCE:
                return found

    def drop(self, name: str) -> None:
        """Delete the collection of this name, if there is one."""
        try:
            self.request("DELETE", f"{self._collections}/{name}")
        except NotFound:
            return

    def ping(self) -> None:
        """Raise the error that a request would now meet; waits 3 seconds at most."""
        deadline = time.monotonic() + min(HEALTH_TIMEOUT_SECONDS, self._config.timeout_seconds)
        self._attempt("GET", f"{self._collections}?limit=1", None, deadline)

    def batch_rows(self) -> int:
        """Return how many rows the server takes at once."""
        if not self._limits:
            self._limits = self.request("GET", "/pre-flight-checks")
        return int(self._limits["max_batch_size"])

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of its answer; retried where the connection fails.

        Repeating is safe: each of Chroma's requests that are used here leaves the same when it is
        done twice.

        Raises:
            Unavailable: The server cannot be reached, or says that it cannot serve.
            ProviderTimeout: It did not answer in time.
            NotFound: It does not know the collection.
            ProviderError: It refused.
        """
        deadline = time.monotonic() + self._config.timeout_seconds
        return retried(
            partial(self._attempt, method, path, body, deadline),
            lambda error: isinstance(error, _ConnectionFailed),
            self._config.max_retries + 1,
            self._config.retry_delay_seconds,
            within_seconds=self._config.timeout_seconds,
        )

    def _attempt(
        self, method: str, path: str, body: Mapping[str, Any] | None, deadline: float
    ) -> Any:
        seconds = max(0.001, deadline - time.monotonic())
        try:
            with self._http.calling():
                http = self._http.connected()
                response = http.request(method, path, json=body, timeout=seconds)
            if response.is_success:
                return response.json()
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise ProviderTimeout(
                f"{self._name} did not answer within {self._config.timeout_seconds:g} seconds.",
                hint="Raise timeout_seconds.",
            ) from error
        except httpx.TransportError as error:
            raise _ConnectionFailed(
                f"{self._name} cannot be reached ({type(error).__name__}).",
                hint="Check that the server runs at url.",
            ) from error
        except (ValueError, httpx.DecodingError) as error:
            raise ProviderError(f"{self._name} did not answer with JSON.") from error
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> CorralError:
        status = response.status_code
        message = f"{self._name} answered {status}."
        if status == 404 or HALF_DROPPED in response.text:
            return NotFound(f"{self._name}: the collection is gone from Chroma.")
        if status in {429, 502, 503, 504}:
            return Unavailable(message, hint="The server is overloaded or still starting.")
        if "finding id" in response.text:
            return UnknownIds(f"{self._name}: a chunk is gone.")
        if "hnsw" in response.text:
            return ProviderError(
                f"{self._name}: the server cannot use its graph of embeddings.",
                hint="If it was killed, stop it, open its folder once with inline::chroma, which "
                "restores as much as possible, and start it again.",
            )
        return ProviderError(message, hint=_HINTS.get(status, ""))

    def _collection(self, found: Mapping[str, Any]) -> ServerCollection:
        return ServerCollection(self, f"{self._collections}/{found['id']}", str(found["id"]))


class ServerCollection(Collection):
    """One collection of a server."""

    def __init__(self, server: ChromaServer, path: str, uuid: str) -> None:
        self.uuid = uuid
        self._server = server
        self._path = path

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._server.request("GET", f"{self._path}/count"))

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one step."""
        packed = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows.embeddings]
        body = {
            "ids": list(rows.ids),
            "embeddings": packed,
            "metadatas": list(rows.metadatas),
        }
        self._server.request("POST", f"{self._path}/upsert", body)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        self._server.request("POST", f"{self._path}/delete", {"ids": list(ids)})

    def get(
        self,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
    ) -> Rows:
        """Return the rows of these ids or that pass Chroma's own filter, in any order."""
        body = {"ids": ids, "where": where, "include": list(include)}
        found = self._server.request("POST", f"{self._path}/get", body)
        return Rows(
            found["ids"],
            [dict(metadata or {}) for metadata in found.get("metadatas") or ()],
            matrix_of(found["embeddings"], len(found["ids"])) if "embeddings" in include else None,
        )

    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the ids and distances of about the k nearest rows, nearest first, k at most."""
        body = {
            "query_embeddings": [embedding.tolist()],
            "n_results": k,
            "ids": ids,
            "include": ["distances"],
        }
        found = self._server.request("POST", f"{self._path}/query", body)
        return Rows(found["ids"][0], distances=found["distances"][0])

    @property
    def batch_rows(self) -> int:
        """Most rows of one call, as the server says."""
        return self._server.batch_rows()

    @property
    def batch_bytes(self) -> int:
        """Most bytes of one call, about."""
        return BATCH_BYTES


class _ConnectionFailed(Unavailable):
    """A failure that is worth another attempt."""


PREFIX = "corral-"
"""How the names of Corral's collections begin."""


class ChromaServerProvider(VectorIOProvider):
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
            metric = Metric.COSINE if vector_db.normalize else vector_db.metric
            return engine.create(name, {"hnsw": self._config.graph(metric)})
        found = engine.open(name)
        if found is None:
            raise NotFound(
                f"The collection of vector DB {vector_db.identifier!r} is gone from Chroma.",
                hint="Delete the vector DB and register it again.",
                field="vector_db_id",
            )
        return found

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


def create(provider_id: str, config: RemoteChromaConfig, home: Path) -> ChromaServerProvider:
    """Build remote::chroma (its spec's factory). The server need not run yet."""
    mirrors = config.folder or provider_folder(provider_id, "chroma", home)
    server = ChromaServer(provider_id, config)
    threads = ThreadPool(provider_id, config.timeout_seconds, config.max_connections)
    return ChromaServerProvider(provider_id, config, home, mirrors, threads, hold=server.hold)
