"""The connection to Weaviate: made when it is needed, and the one place that knows its errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

import grpc
import httpx
from weaviate import WeaviateAsyncClient
from weaviate.auth import Auth
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

from corral.api.errors import ConfigError, CorralError, ProviderError, ProviderTimeout, Unavailable
from corral.providers.vector_io.kit.channels import channel_options
from corral.providers.vector_io.kit.clients import SharedAsyncClient
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.weaviate.config import WeaviateConfig

T = TypeVar("T")
Work = Callable[[WeaviateAsyncClient], Awaitable[T]]

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
            work: Makes one request; called anew for each attempt.
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
                return await retried_async(attempt, _not_connected, _ATTEMPTS, _PAUSE_SECONDS)
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
        other = (ProviderError, f"Weaviate answered with error {_name(code, error)}")
        kind, message = _STATUS_ERRORS.get(code, other)
        return kind(f"{self.provider_id}: {message}.")


async def waiting(client: WeaviateAsyncClient, name: str) -> int:
    """Return how many vectors of a collection wait to be indexed, over all its replicas."""
    try:
        nodes = await client.cluster.nodes(name, output="verbose")
    except UnexpectedStatusCodeError as error:
        if error.status_code == 404:  # the collection is gone
            return 0
        raise
    return sum(shard.vector_queue_length for node in nodes for shard in node.shards)


def _not_connected(error: BaseException) -> bool:
    return isinstance(error, _NOT_CONNECTED)


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


def _name(code: object, error: BaseException) -> str:
    if code is None:
        return type(error).__name__
    return code.name if isinstance(code, grpc.StatusCode) else str(code)
