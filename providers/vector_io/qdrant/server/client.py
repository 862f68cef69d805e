"""The connection to a Qdrant server: its pool, its retries, and its errors as Corral's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from grpc import RpcError, StatusCode
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.kit.channels import channel_options
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.qdrant.config import QdrantConfig

T = TypeVar("T")

OLDEST_VERSION = (1, 12)
"""The first release with facets."""

_FIRST_PAUSE_SECONDS = 0.1
# A server compresses an answer above 1 KiB in another thread and writes its headers before; the
# body then waits 40 ms for their acknowledgment, which the kernel here delays.
_REST_HEADERS = {"Accept-Encoding": "identity"}
_MISSING = (404, StatusCode.NOT_FOUND)
_REFUSED = (401, 403, StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED)
_LIMIT = ". Help: "  # how strict mode says what to do; it is a 403 before 1.14.1, then a 400

FAILURES = (
    ResponseHandlingException,
    UnexpectedResponse,
    ResourceExhaustedResponse,
    RpcError,
)
"""What qdrant-client raises when a request fails."""


class Server:
    """A client with Corral's errors and retries; one a provider, shared by its collections.

    Args:
        client: Over REST or gRPC.
    """

    def __init__(self, provider_id: str, client: AsyncQdrantClient, config: QdrantConfig) -> None:
        self.client = client
        self.config = config
        self._provider_id = provider_id
        self._is_new_enough = False

    async def call(
        self,
        request: Callable[[], Awaitable[T]],
        *,
        collection: str = "",
        configures: bool = False,
    ) -> T:
        """Send a request, again where the server cannot be reached: every request of ours may be.

        The first one asks for the server's version before.

        Args:
            collection: Its collection; a 404 asks whether that exists.
            configures: Whether it holds settings only, so that the server's words may be shown.

        Raises:
            Unavailable, ProviderTimeout, NotFound, ProviderError: See `translated`.
            ConfigError: The server is too old.
        """
        if not self._is_new_enough:
            await self._check_version()
        try:
            return await self._send(request)
        except FAILURES as error:
            if collection and _status(error) in _MISSING:
                raise await self._missing(collection) from error
            raise translated(error, self._provider_id, configures=configures) from error

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        attempts = self.config.retries + 1
        return await retried_async(request, _unreachable, attempts, _FIRST_PAUSE_SECONDS)

    async def _check_version(self) -> None:
        """Refuse a server that is too old; a proxy may keep its version to itself."""
        try:
            found = (await self._send(self.client.info)).version
        except FAILURES as error:
            meaning = translated(error, self._provider_id)
            if meaning.retryable:
                raise meaning from error
            found = ""
        parts = re.match(r"v?([0-9]+)\.([0-9]+)", found)
        if parts and (int(parts[1]), int(parts[2])) < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise ConfigError(
                f"{self._provider_id}: the Qdrant server has version {found};"
                f" Corral needs {oldest} or newer.",
                hint="Upgrade the server.",
            )
        self._is_new_enough = True

    async def _missing(self, collection: str) -> CorralError:
        """Return what a 404 means: the collection is gone only if the server says so."""
        try:
            gone = not await self._send(lambda: self.client.collection_exists(collection))
        except FAILURES as error:
            if _status(error) not in _MISSING:
                return translated(error, self._provider_id)
            gone = False
        if gone:
            return NotFound(
                f"{self._provider_id}: the collection of this vector DB is gone.",
                hint="Delete the vector DB and register it again.",
                field="vector_db_id",
            )
        return ProviderError(
            f"{self._provider_id}: {self.config.url} answered 404, but did not say that the "
            "collection is gone.",
            hint="Check that url is a Qdrant server, and that proxies forward all its routes.",
        )


def make_client(config: QdrantConfig) -> AsyncQdrantClient:
    """Return a client with a pool of connections; it connects at the first request."""
    return AsyncQdrantClient(
        url=config.url,
        port=None,
        grpc_port=config.grpc_port,
        prefer_grpc=config.transport == "grpc",
        api_key=config.api_key.get_secret_value() if config.api_key else None,
        timeout=config.timeout_seconds,
        check_compatibility=False,  # it would ask the server now, and may be down
        limits=httpx.Limits(max_connections=config.max_connections),
        grpc_options=channel_options(config.timeout_seconds),
        metadata=dict(_REST_HEADERS),
        # Certificates take 30 ms to load, and plain http has none.
        verify=urlsplit(config.url).scheme == "https",
    )


def translated(error: Exception, provider_id: str, *, configures: bool = False) -> CorralError:
    """Return Corral's error for one of `FAILURES`.

    Their texts may quote data and are dropped, but for those of requests that configure and for
    those that name a limit of strict mode.
    """
    status = _status(error)
    if _unreachable(error):
        return Unavailable(f"{provider_id}: the Qdrant server cannot be reached.")
    if status in (408, 504, StatusCode.DEADLINE_EXCEEDED) or _timed_out(error):
        return ProviderTimeout(f"{provider_id}: the Qdrant server did not answer in time.")
    if status in (429, 502, 503, StatusCode.RESOURCE_EXHAUSTED):
        return Unavailable(f"{provider_id}: the Qdrant server is overloaded.", hint="Try again.")
    words = _words(error)
    is_limit = _LIMIT in words
    says = f" It says: {words}" if words and (configures or is_limit) else ""
    if status in _REFUSED and not is_limit:
        return ProviderError(
            f"{provider_id}: the Qdrant server refuses access.{says}", hint="Check api_key."
        )
    shown = getattr(status, "name", status) or type(error).__name__
    return ProviderError(
        f"{provider_id}: the Qdrant server answered with an error ({shown}).{says}"
    )


def _words(error: Exception) -> str:
    """Return the beginning of what the server says of an error; empty where it says nothing."""
    text: Any = ""
    if isinstance(error, UnexpectedResponse):
        with suppress(ValueError, KeyError, TypeError):  # a proxy answers with something else
            text = error.structured()["status"]["error"]
    elif isinstance(error, RpcError):
        text = error.details()
    return " ".join(text.split())[:500] if isinstance(text, str) else ""


def _status(error: Exception) -> Any:
    """Return the HTTP or gRPC status of an error, None for none."""
    if isinstance(error, UnexpectedResponse):
        return error.status_code
    if isinstance(error, ResourceExhaustedResponse):
        return 429
    return error.code() if isinstance(error, RpcError) else None


def _unreachable(error: BaseException) -> bool:
    """Return True if there was no connection, or it broke."""
    if isinstance(error, ResponseHandlingException):
        source = error.source
        timed_out = isinstance(source, httpx.TimeoutException)
        connecting = isinstance(source, httpx.ConnectTimeout)
        return isinstance(source, httpx.TransportError) and (connecting or not timed_out)
    return isinstance(error, RpcError) and error.code() is StatusCode.UNAVAILABLE


def _timed_out(error: Exception) -> bool:
    return isinstance(error, ResponseHandlingException) and isinstance(
        error.source, httpx.TimeoutException
    )
