"""Clients that the indexes of a provider share, opened on demand and closed when idle.

A client has *users*, which register and unregister, and running *calls*. The first call opens it.
After its last user has left, it is closed when its last call ends, never during a call.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import certifi

from corral.api.errors import ConfigError, MissingDependency, Unavailable

C = TypeVar("C")


def tls_context(provider_id: str, ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts only the authorities in a file.

    Args:
        ca_file: Certificates as PEM; None for the usual authorities (certifi's).

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or certifi.where())
    except OSError as error:
        raise ConfigError(
            f"{provider_id}: ca_file cannot be read ({type(error).__name__}).",
            hint="It must contain certificates as PEM.",
        ) from error


def aws_credentials(provider_id: str, command: str) -> Any:
    """Return the credentials that botocore finds, to sign requests with.

    Args:
        command: Installs botocore.

    Raises:
        MissingDependency: botocore is not installed.
        ConfigError: It finds none.
    """
    try:
        from botocore.session import Session  # noqa: PLC0415 - only if requests are signed
    except ImportError:
        raise MissingDependency(f"{provider_id}, with aws_region,", "botocore", command) from None
    credentials = Session().get_credentials()
    if credentials is None:
        raise ConfigError(
            f"{provider_id}: botocore finds no AWS credentials.",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role.",
        )
    return credentials


class _Counts:
    """The number of users and of running calls of a client."""

    def __init__(self, provider_id: str) -> None:
        self._provider_id = provider_id
        self.users = self.calls = 0

    def begin(self) -> None:
        """Count a call.

        Raises:
            Unavailable: All users have left, so a late call must not open the client again.
        """
        if not self.users:
            raise Unavailable(f"{self._provider_id}: the vector DB is closed.")
        self.calls += 1

    @property
    def idle(self) -> bool:
        """True if the client has no users and no running calls."""
        return not self.users and not self.calls


class SharedClient(Generic[C]):
    """A client with blocking calls. Safe to use from threads.

    Attributes:
        lock: Held while the client is opened or closed.
    """

    def __init__(
        self, provider_id: str, connect: Callable[[], C], disconnect: Callable[[C], object]
    ) -> None:
        self._connect, self._disconnect = connect, disconnect
        self._counts = _Counts(provider_id)
        self._client: C | None = None
        self.lock = threading.RLock()

    def enter(self) -> None:
        """Register a user."""
        with self.lock:
            self._counts.users += 1

    def leave(self) -> None:
        """Unregister a user."""
        with self.lock:
            self._counts.users -= 1
            self._close_if_idle()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Register as a user for the duration of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Keep the client open during a call.

        Raises:
            Unavailable: All users have left.
        """
        with self.lock:
            self._counts.begin()
        try:
            yield
        finally:
            with self.lock:
                self._counts.calls -= 1
                self._close_if_idle()

    def connected(self) -> C:
        """Return the client, opening it if necessary; call within `calling`."""
        with self.lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    @property
    def is_open(self) -> bool:
        """True from the first call until the client is closed."""
        return self._client is not None

    def close(self) -> None:
        """Close the client now; the next call opens it again."""
        with self.lock:
            client, self._client = self._client, None
            if client is not None:
                self._disconnect(client)

    def _close_if_idle(self) -> None:
        if self._counts.idle:
            self.close()


class SharedAsyncClient(Generic[C]):
    """A client with asynchronous calls; like `SharedClient`, for tasks."""

    def __init__(
        self,
        provider_id: str,
        connect: Callable[[], Awaitable[C]],
        disconnect: Callable[[C], Awaitable[object]],
    ) -> None:
        self._connect, self._disconnect = connect, disconnect
        self._counts = _Counts(provider_id)
        self._client: C | None = None
        self._closing = False
        self._opening = asyncio.Lock()
        self._no_call = asyncio.Event()

    def enter(self) -> None:
        """Register a user."""
        self._counts.users += 1
        self._closing = False

    async def leave(self) -> None:
        """Unregister a user."""
        self._counts.users -= 1
        self._closing = not self._counts.users
        await self._close_if_due()

    @asynccontextmanager
    async def using(self) -> AsyncIterator[None]:
        """Register as a user for the duration of a block."""
        self.enter()
        try:
            yield
        finally:
            await self.leave()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Keep the client open during a call.

        Raises:
            Unavailable: All users have left.
        """
        self._counts.begin()
        self._no_call.clear()
        try:
            yield
        finally:
            self._counts.calls -= 1
            await self._close_if_due()
            if not self._counts.calls:
                self._no_call.set()

    async def connected(self) -> C:
        """Return the client, opening it if necessary; call within `calling`."""
        async with self._opening:
            if self._client is None:
                self._client = await self._connect()
            return self._client

    @property
    def is_open(self) -> bool:
        """True from the first call until the client is closed."""
        return self._client is not None

    async def close(self) -> None:
        """Close the client after its running calls; the next call opens it again."""
        self._closing = True
        while self._counts.calls:
            await self._no_call.wait()
        await self._close_if_due()

    async def _close_if_due(self) -> None:
        if self._closing and not self._counts.calls:
            client, self._client = self._client, None
            if client is not None:
                await self._disconnect(client)
