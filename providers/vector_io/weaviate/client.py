"""The connection to Weaviate and its errors, and one collection of it as a whole.

Nothing that answers depend on is left to the server.
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
"""The client's handle of a collection, whose type parameters say nothing here."""

OLDEST = (1, 33)
"""The first version of Weaviate whose filters know `Not`."""

_GRACE_SECONDS = 0.5
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.1  # before the second; doubled before the third

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
# Between looks at the vector queue; the last one repeats.
_QUEUE_PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2)

# The driver logs whole objects where a write fails, a user's text among them.
logging.getLogger("weaviate-client").setLevel(logging.CRITICAL + 1)


class Connection:
    """One client, shared by the indexes of a provider; safe to use from many tasks of one loop.

    Attributes:
        client: The driver's client; its users say so. To close it under a call would cancel that.
        collections: The names of the collections that are open, one for each index.
    """

    def __init__(self, provider_id: str, config: WeaviateConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self.collections: list[str] = []
        self.client = SharedAsyncClient(provider_id, self._connect, WeaviateAsyncClient.close)

    async def call(self, work: Work[T]) -> T:
        """Do one request with the client, within the timeout, and translate its errors.

        Connection errors are tried again with back-off: over gRPC by the client itself, until the
        time is over, over REST here, twice. Every request of this provider may be repeated.

        Args:
            work: Makes one request; called once for each attempt.
        """

        async def attempt() -> T:
            return await work(await self.client.connected())

        try:
            # An attempt ends by the client's own, shorter timeout: when this one passes, one
            # attempt after the other has failed to connect.
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
        """Do one request as a user of its own, for when no index may be open."""
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
            skip_init_checks=True,  # they ask a package registry for the client's latest release
        )

    def _check_version(self, version: str) -> None:
        found = tuple(int(part) for part in version.split(".")[:2])
        if found < OLDEST:
            raise ConfigError(
                f"{self.provider_id}: Weaviate {version} is too old.",
                hint=f"Upgrade it to {'.'.join(map(str, OLDEST))} or newer.",
            )

    def _translated(self, error: BaseException) -> CorralError:
        """Return the contract's error; the driver's messages may hold data and are left out."""
        late = isinstance(error, WeaviateTimeoutError | httpx.TimeoutException)
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else _status(error)
        shown = getattr(code, "name", code) or type(error).__name__
        other = (ProviderError, f"Weaviate answered with error {shown}")
        kind, message = _STATUS_ERRORS.get(code, other)
        return kind(f"{self.provider_id}: {message}.")


async def waiting(client: WeaviateAsyncClient, name: str) -> int:
    """Return the number of a collection's vectors that wait to be indexed, over all replicas."""
    try:
        nodes = await client.cluster.nodes(name, output="verbose")
    except UnexpectedStatusCodeError as error:
        if error.status_code == 404:  # the collection is gone
            return 0
        raise
    return sum(shard.vector_queue_length for node in nodes for shard in node.shards)


def _status(error: BaseException) -> object:
    """Return the status of the call that an error of the driver stems from, if there is one."""
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
    """A collection by name: made, looked after and read.

    Its description names the layout of its objects. For an object of an unknown name Weaviate makes
    up a collection, whose description says so, and then refuses the object for want of a vector.

    Args:
        connection: To the server; the collection is one of its users until `leave`.

    Attributes:
        limits: Of its requests.
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
        """Make the collection if there is none; return True if it was made.

        One that another process makes at this moment is fine.

        Raises:
            ConfigError: Weaviate refused to make it, and said why.
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
            ConfigError: A newer Corral wrote it.
        """
        layout = await self.require()
        refuse_newer(layout, LAYOUT, self._connection.provider_id)
        if layout < LAYOUT:
            description = f"{_DESCRIPTION}{LAYOUT}"
            await self._request(lambda native: native.config.update(description=description))

    async def require(self) -> int:
        """Return the layout of the collection; 0 if none is recorded.

        Raises:
            NotFound: It is gone; one that Weaviate has made up in its place is dropped.
            Unavailable: The server is still starting and knows no collection yet (1.39).
        """
        description = await self._description()
        if description is None:
            if not await self._connection.call(lambda client: client.is_ready()):
                raise self._starting()
            description = await self._description()  # from a server that has started
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
        """Delete the collection; one that is gone already is fine."""
        await self._connection.call_once(lambda client: client.collections.delete(self._name))

    async def leave(self) -> None:
        """Let go of the connection."""
        if self._is_open:
            self._is_open = False
            self._connection.collections.remove(self._name)
            await self._connection.client.leave()

    async def settle(self) -> None:
        """Wait until vector search sees what was written, `timeout_seconds` at most.

        With ASYNC_INDEXING an acknowledged object waits in a queue. The write is stored by now, so
        nothing here raises; health says what still waits.
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
        """Return the objects that hold one of the terms, with Weaviate's BM25, best first."""
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
        """Return some objects that pass, at most `limit`."""
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
        """Return the number of objects, and of all their terms."""
        found = await self._request(
            lambda handle: handle.aggregate.over_all(
                total_count=True, return_metrics=[Metrics("length").integer(sum_=True)]
            )
        )
        length = found.properties.get("length")
        return TermStatistics(int(found.total_count or 0), int((length and length.sum_) or 0))

    # --- requests ----------------------------------------------------------------------------

    async def _write(self, request: Callable[[Native], Awaitable[T]]) -> T:
        everywhere = ConsistencyLevel.ALL  # so that any replica answers the next query

        def consistent(native: Native) -> Awaitable[T]:
            return request(native.with_consistency_level(everywhere))

        return await self._request(consistent)

    async def _request(self, request: Callable[[Native], Awaitable[T]]) -> T:
        """Send a request, again while the node that answers has not heard of the collection.

        That is so for a second after its start (1.39), and in a cluster for a moment after another
        node has made the collection (1.39).
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
        """Return the description, "" for none; None if there is no collection."""

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
        """Raise what making a collection was refused with: that text is about settings alone."""
        if error.status_code != 422:
            raise error
        raise ConfigError(
            f"{self._connection.provider_id}: Weaviate refused to create the collection:"
            f" {_said(error)}.",
            hint="Change the provider's settings, or the server's.",
        ) from error


def _said(error: UnexpectedStatusCodeError) -> str:
    """Return the server's own words."""
    body: Any = error.error
    with suppress(TypeError, KeyError):
        return "; ".join(str(one["message"]) for one in body["error"])
    return str(body)
