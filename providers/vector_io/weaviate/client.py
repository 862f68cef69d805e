"""The connection to Weaviate, error translation, and one collection.

Everything that answers depend on is set explicitly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import grpc
import httpx
from weaviate import WeaviateAsyncClient
from weaviate.auth import Auth
from weaviate.classes.config import ConsistencyLevel
from weaviate.classes.query import BM25Operator, MetadataQuery, Metrics
from weaviate.collections.classes.filters import FilterReturn
from weaviate.config import AdditionalConfig, GrpcConfig, Timeout
from weaviate.connect import ConnectionParams
from weaviate.exceptions import (
    UnexpectedStatusCodeError,
    WeaviateBaseError,
    WeaviateConnectionError,
    WeaviateRetryError,
    WeaviateStartUpError,
    WeaviateTimeoutError,
)

from corral.api.errors import (
    ConfigError,
    CorralError,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.api.hits import TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.channels import channel_options
from corral.providers.vector_io.kit.clients import SharedAsyncClient
from corral.providers.vector_io.kit.refusals import data_is_gone, refuse_newer
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.filters import TERMS, of_ids
from corral.providers.vector_io.weaviate.records import (
    LAYOUT,
    VECTOR,
    RequestLimits,
    StoredObject,
    read_object,
    settings,
)

T = TypeVar("T")
Work = Callable[[WeaviateAsyncClient], Awaitable[T]]
Native = Any
"""The client's handle of a collection; its type parameters carry no information here."""

OLDEST = (1, 33)
"""The first version of Weaviate with `Not` in filters."""

_GRACE_SECONDS = 0.5
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.1  # before the second attempt; doubled before the third

_NOT_CONNECTED = (
    WeaviateConnectionError,
    WeaviateStartUpError,
    httpx.NetworkError,
    httpx.ConnectTimeout,
    httpx.RemoteProtocolError,
)

_STATUS_ERRORS: dict[object, tuple[type[ProviderError], str]] = {
    grpc.StatusCode.UNAVAILABLE: (Unavailable, "Weaviate cannot be reached"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Unavailable, "Weaviate has no resources left"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (ProviderTimeout, "Weaviate did not answer in time"),
    grpc.StatusCode.UNAUTHENTICATED: (ProviderError, "Weaviate refused the API key"),
    grpc.StatusCode.PERMISSION_DENIED: (ProviderError, "Weaviate refused permission"),
    401: (ProviderError, "Weaviate refused the API key"),
    403: (ProviderError, "Weaviate refused permission"),
    429: (Unavailable, "Weaviate limits the rate of requests"),
    502: (Unavailable, "Weaviate cannot be reached"),
    503: (Unavailable, "Weaviate is not ready"),
    504: (ProviderTimeout, "Weaviate did not answer in time"),
}

_DESCRIPTION = "Corral layout "
_MADE_UP = "Weaviate's auto-schema"
_UNKNOWN = ("could not find class", "non-existing index", "cannot find index for class")
_LOADING_ATTEMPTS = 5
_LOADING_SECONDS = 0.1  # before the second attempt; doubled before each further one
# Pauses between checks of the vector queue; the last one repeats.
_QUEUE_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2)

# If a write fails, the driver logs whole objects, including a user's text.
logging.getLogger("weaviate-client").setLevel(logging.CRITICAL + 1)


class Connection:
    """One client, shared by the indexes of a provider; safe to use from many tasks of one loop.

    Attributes:
        client: The shared client of the driver. Closing it would cancel its calls.
        collections: The names of the open collections, one per index.
    """

    def __init__(self, provider_id: str, config: WeaviateConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self.collections: list[str] = []
        self.client = SharedAsyncClient(provider_id, self._connect, WeaviateAsyncClient.close)

    async def call(self, work: Work[T]) -> T:
        """Send a request within the timeout, and translate its errors.

        Connection errors are retried with backoff: over gRPC by the client itself, until the
        timeout; over REST here, twice. All requests of this provider are idempotent.

        Args:
            work: Sends the request; called once per attempt.
        """

        async def attempt() -> T:
            return await work(await self.client.connected())

        try:
            # The client's own timeout is shorter; if this one expires, all attempts failed.
            async with (
                self.client.calling(),
                asyncio.timeout(self.config.timeout_seconds + _GRACE_SECONDS),
            ):
                return await retried_async(
                    attempt, lambda e: isinstance(e, _NOT_CONNECTED), _ATTEMPTS, _PAUSE_SECONDS
                )
        except (TimeoutError, *_NOT_CONNECTED) as error:
            raise Unavailable(f"{self.provider_id}: Weaviate cannot be reached.") from error
        except (WeaviateBaseError, grpc.RpcError, httpx.HTTPError) as error:
            raise self._translated(error) from error

    async def call_once(self, work: Work[T]) -> T:
        """Send a request as a temporary user of the client, for when no index may be open."""
        async with self.client.using():
            return await self.call(work)

    async def _connect(self) -> WeaviateAsyncClient:
        client = self._new_client()
        try:
            await client.connect()
            self._check_version((await client.get_meta())["version"])
        except BaseException:
            await client.close()
            raise
        return client

    def _new_client(self) -> WeaviateAsyncClient:
        config = self.config
        parts = urlsplit(config.url)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        key = config.api_key.get_secret_value() if config.api_key else ""
        seconds = config.timeout_seconds
        return WeaviateAsyncClient(
            connection_params=ConnectionParams.from_params(
                http_host=host,
                http_port=parts.port or (443 if secure else 80),
                http_secure=secure,
                grpc_host=config.grpc_host or host,
                grpc_port=config.grpc_port,
                grpc_secure=secure,
            ),
            auth_client_secret=Auth.api_key(key) if key else None,
            additional_config=AdditionalConfig(
                timeout=Timeout(query=seconds, insert=seconds, init=seconds),
                trust_env=config.trust_environment,
                grpc_config=GrpcConfig(channel_options=tuple(channel_options(seconds).items())),
            ),
            skip_init_checks=True,  # the client queries a package registry for its latest release
        )

    def _check_version(self, version: str) -> None:
        found = tuple(int(part) for part in version.split(".")[:2])
        if found < OLDEST:
            raise ConfigError(
                f"{self.provider_id}: Weaviate {version} is too old.",
                hint=f"Upgrade it to {'.'.join(map(str, OLDEST))} or newer.",
            )

    def _translated(self, error: BaseException) -> CorralError:
        """Return the contract's error; omit the driver's messages, which may contain data."""
        late = isinstance(error, WeaviateTimeoutError | httpx.TimeoutException)
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else _status(error)
        shown = getattr(code, "name", code) or type(error).__name__
        other = (ProviderError, f"Weaviate answered with error {shown}")
        kind, message = _STATUS_ERRORS.get(code, other)
        return kind(f"{self.provider_id}: {message}.")


async def waiting(client: WeaviateAsyncClient, name: str) -> int:
    """Return the number of a collection's vectors waiting to be indexed, over all replicas."""
    try:
        nodes = await client.cluster.nodes(name, output="verbose")
    except UnexpectedStatusCodeError as error:
        if error.status_code == 404:  # the collection is gone
            return 0
        raise
    return sum(shard.vector_queue_length for node in nodes for shard in node.shards)


def _status(error: BaseException) -> object:
    """Return the status of the call that caused a driver error; None if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, grpc.RpcError) and isinstance(cause, grpc.aio.AioRpcError):
            return cause.code()
        if isinstance(cause, UnexpectedStatusCodeError):
            return cause.status_code
        if isinstance(cause, WeaviateRetryError):
            return grpc.StatusCode.UNAVAILABLE
        cause = cause.__cause__ or cause.__context__
    return None


# --- a collection ---------------------------------------------------------------------------------


class _NotLoaded(Unavailable):
    """The server that answers has not loaded the collection yet."""


class CollectionReads:
    """A collection by name: creation, maintenance and reads.

    Its description records the layout of its objects. If an object is written to an unknown
    collection, Weaviate creates one, with a description that says so, and then rejects the object
    because the vector is missing.

    Args:
        connection: The connection to the server; the collection is registered as its user until
            `leave`.

    Attributes:
        limits: The limits of requests.
    """

    def __init__(
        self, vector_db: VectorDB, name: str, connection: Connection, limits: RequestLimits
    ) -> None:
        self.limits = limits
        self._vector_db = vector_db
        self._name = name
        self._connection = connection
        self._is_open = True
        connection.client.enter()
        connection.collections.append(name)

    async def make(self) -> bool:
        """Create the collection if it is missing; return True if it was created.

        A collection that another process creates at the same time is not an error.

        Raises:
            ConfigError: Weaviate refused to create it; the message has the reason.
        """

        async def create(client: WeaviateAsyncClient) -> None:
            wanted = settings(self._vector_db, self._connection.config)
            try:
                await client.collections.create(
                    self._name, description=f"{_DESCRIPTION}{LAYOUT}", **wanted
                )
            except UnexpectedStatusCodeError as error:
                if not await client.collections.exists(self._name):
                    self._refuse(error)

        if await self._description() is not None:
            return False
        await self._connection.call(create)
        return True

    async def check_layout(self) -> None:
        """Refuse a newer layout, and record ours if none is recorded.

        Raises:
            NotFound: The collection is gone.
            ConfigError: A newer Corral wrote the collection.
        """
        layout = await self.require()
        refuse_newer(layout, LAYOUT, self._connection.provider_id)
        if layout < LAYOUT:
            description = f"{_DESCRIPTION}{LAYOUT}"
            await self._request(lambda native: native.config.update(description=description))

    async def require(self) -> int:
        """Return the layout of the collection; 0 if none is recorded.

        Raises:
            NotFound: The collection is gone; one that Weaviate created in its place is dropped.
            Unavailable: The server is still starting and lists no collections yet (1.39).
        """
        description = await self._description()
        if description is None:
            if not await self._connection.call(lambda client: client.is_ready()):
                raise self._starting()
            description = await self._description()  # This asks a server that has started.
        made_up = description is not None and _MADE_UP in description
        if made_up:
            await self.drop()
        if description is None or made_up:
            raise data_is_gone(
                f"{self._connection.provider_id}: the vector DB's collection is gone from Weaviate."
            )
        layout = description.removeprefix(_DESCRIPTION)
        return int(layout) if layout.isdecimal() else 0

    async def drop(self) -> None:
        """Delete the collection; a missing one is not an error."""
        await self._connection.call_once(lambda client: client.collections.delete(self._name))

    async def leave(self) -> None:
        """Release the connection."""
        if self._is_open:
            self._is_open = False
            self._connection.collections.remove(self._name)
            await self._connection.client.leave()

    async def settle(self) -> None:
        """Wait until vector search sees earlier writes, at most `timeout_seconds`.

        With ASYNC_INDEXING, acknowledged objects wait in a queue. The write is already stored, so
        this never raises; health reports the waiting objects.
        """
        with suppress(CorralError, TimeoutError):
            async with asyncio.timeout(self._connection.config.timeout_seconds):
                for pause in chain(_QUEUE_PAUSES_SECONDS, repeat(_QUEUE_PAUSES_SECONDS[-1])):
                    if not await self._connection.call(partial(waiting, name=self._name)):
                        return
                    await asyncio.sleep(pause)

    # --- reading -----------------------------------------------------------------------------

    async def matching(
        self, text: str, limit: int, filters: FilterReturn | None, properties: Sequence[str]
    ) -> list[StoredObject]:
        """Return the objects with one of the terms, with Weaviate's BM25 scores, best first."""
        found = await self._request(
            lambda handle: handle.query.bm25(
                query=text,
                query_properties=[TERMS],
                operator=BM25Operator.or_(minimum_match=1),
                limit=limit,
                filters=filters,
                return_metadata=MetadataQuery(score=True),
                return_properties=list(properties),
            )
        )
        return [read_object(one) for one in found.objects]

    async def some(
        self, filters: FilterReturn, limit: int, properties: Sequence[str], *, dense: bool
    ) -> list[StoredObject]:
        """Return at most `limit` objects that pass."""
        found = await self._request(
            lambda handle: handle.query.fetch_objects(
                filters=filters,
                limit=limit,
                include_vector=[VECTOR] if dense else False,
                return_properties=list(properties),
            )
        )
        return [read_object(one) for one in found.objects]

    async def fetch(
        self, ids: Sequence[str], properties: Sequence[str], dense: bool
    ) -> list[StoredObject]:
        """Return the given objects that exist."""
        objects: list[StoredObject] = []
        for part in runs(ids, self.limits.read_objects):
            objects += await self.some(of_ids(part), len(part), properties, dense=dense)
        return objects

    async def count(self, filters: FilterReturn | None = None) -> int:
        """Return the exact number of objects that pass."""
        found = await self._request(
            lambda handle: handle.aggregate.over_all(filters=filters, total_count=True)
        )
        return int(found.total_count or 0)

    async def statistics(self) -> TermStatistics:
        """Return the number of objects and the total number of their terms."""
        found = await self._request(
            lambda handle: handle.aggregate.over_all(
                total_count=True, return_metrics=[Metrics("length").integer(sum_=True)]
            )
        )
        length = found.properties.get("length")
        return TermStatistics(int(found.total_count or 0), int((length and length.sum_) or 0))

    # --- requests ----------------------------------------------------------------------------

    async def _write(self, request: Callable[[Native], Awaitable[T]]) -> T:
        everywhere = ConsistencyLevel.ALL  # Any replica can then answer the next query.

        def consistent(native: Native) -> Awaitable[T]:
            return request(native.with_consistency_level(everywhere))

        return await self._request(consistent)

    async def _request(self, request: Callable[[Native], Awaitable[T]]) -> T:
        """Send a request; retry while the answering node does not know the collection.

        This happens for a second after its start, and briefly after another node of a cluster has
        created the collection (both 1.39).
        """
        return await retried_async(
            partial(self._attempt, request),
            lambda error: isinstance(error, _NotLoaded),
            _LOADING_ATTEMPTS,
            _LOADING_SECONDS,
        )

    async def _attempt(self, request: Callable[[Native], Awaitable[T]]) -> T:
        try:
            return await self._connection.call(
                lambda client: request(
                    client.collections.use(self._name, skip_argument_validation=True)
                )
            )
        except ProviderError as error:
            if not error.retryable:
                await self.require()
                if any(words in str(error.__cause__) for words in _UNKNOWN):
                    raise self._starting() from error
            raise

    def _starting(self) -> _NotLoaded:
        return _NotLoaded(
            f"{self._connection.provider_id}: Weaviate has not loaded its schema yet."
        )

    async def _description(self) -> str | None:
        """Return the description, "" if it has none; None if the collection does not exist."""

        async def describe(client: WeaviateAsyncClient) -> str | None:
            try:
                found = await client.collections.use(
                    self._name, skip_argument_validation=True
                ).config.get(simple=True)
            except UnexpectedStatusCodeError as error:
                if error.status_code == 404:
                    return None
                raise
            return found.description or ""

        return await self._connection.call(describe)

    def _refuse(self, error: UnexpectedStatusCodeError) -> NoReturn:
        """Raise the reason for refusing to create a collection; its text is only about settings."""
        if error.status_code != 422:
            raise error
        raise ConfigError(
            f"{self._connection.provider_id}: Weaviate refused to create the collection:"
            f" {_said(error)}.",
            hint="Change the provider's settings, or the server's.",
        ) from error


def _said(error: UnexpectedStatusCodeError) -> str:
    """Return the server's message."""
    body: Any = error.error
    with suppress(TypeError, KeyError):
        return "; ".join(str(one["message"]) for one in body["error"])
    return str(body)
