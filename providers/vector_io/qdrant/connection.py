"""The connection to a Qdrant server: its pool, its retries, and its errors as Corral's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
from grpc import RpcError, StatusCode
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from corral.api.errors import (
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.qdrant.config import QdrantConfig

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.1

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
        provider_id: For messages.
        client: Over REST or gRPC, or the client's local mode in tests.
        config: The provider's settings.
    """

    def __init__(self, provider_id: str, client: AsyncQdrantClient, config: QdrantConfig) -> None:
        self.client = client
        self.config = config
        self._provider_id = provider_id

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request, again where the server cannot be reached: every request of ours may be.

        Raises:
            Unavailable, ProviderTimeout, NotFound, ProviderError: See `translated`.
        """
        attempt = 0
        while True:
            try:
                return await request()
            except FAILURES as error:
                if attempt == self.config.retries or not _unreachable(error):
                    raise translated(error, self._provider_id) from error
            await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
            attempt += 1


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
        grpc_options={"grpc.max_reconnect_backoff_ms": 1000},  # recover as soon as the server does
    )


def translated(error: Exception, provider_id: str) -> CorralError:
    """Return Corral's error for one of `FAILURES`. Their texts may quote data: dropped."""
    status = _status(error)
    if _unreachable(error):
        return Unavailable(f"{provider_id}: the Qdrant server cannot be reached.")
    if status in (408, 504, StatusCode.DEADLINE_EXCEEDED) or _timed_out(error):
        return ProviderTimeout(f"{provider_id}: the Qdrant server did not answer in time.")
    if status in (429, 502, 503, StatusCode.RESOURCE_EXHAUSTED):
        return Unavailable(f"{provider_id}: the Qdrant server is overloaded.", hint="Try again.")
    if status in (404, StatusCode.NOT_FOUND):
        return NotFound(
            f"{provider_id}: the collection of this vector DB is gone.",
            hint="Delete the vector DB and register it anew.",
            field="vector_db_id",
        )
    if status in (401, 403, StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED):
        return ProviderError(
            f"{provider_id}: the Qdrant server refuses access.", hint="Check api_key."
        )
    shown = getattr(status, "name", status) or type(error).__name__
    return ProviderError(f"{provider_id}: the Qdrant server answered with an error ({shown}).")


def _status(error: Exception) -> Any:
    """Return the HTTP or gRPC status of an error, None for none."""
    if isinstance(error, UnexpectedResponse):
        return error.status_code
    if isinstance(error, ResourceExhaustedResponse):
        return 429
    return error.code() if isinstance(error, RpcError) else None


def _unreachable(error: Exception) -> bool:
    """Say whether there was no connection, or it broke."""
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
