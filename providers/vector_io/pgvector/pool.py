"""A pool of connections that fails at once.

A refused connection is an error now, not after a timeout. Nothing runs in the background: nothing
is left over when an event loop ends, and a server that is back serves the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

CANCEL_SECONDS = 1.0
"""How long a server that was silent for too long is asked to cancel; psycopg would take 10."""

Row: TypeAlias = tuple[Any, ...]


class NoConnection(Exception):
    """None was to be had in time: all are in use, or the server does not answer."""


class Connection(psycopg.AsyncConnection[Row]):
    """A connection on which no wait is endless, even when the server says nothing any more."""

    guard_seconds: float | None = None

    async def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, as psycopg does, for so many seconds at most.

        Raises:
            TimeoutError: It did not answer.
        """
        seconds = self.guard_seconds
        most = None if seconds is None else seconds + CANCEL_SECONDS
        async with asyncio.timeout(most), asyncio.timeout(seconds):
            return await super().wait(*args, **options)


class Pool:
    """Lends connections, the one used last first, and makes them as they are needed.

    Belongs to one event loop.

    Args:
        connect: Makes a connection.
        size: Most connections at a time; further requests wait for their turn.
        timeout_seconds: How long a request waits for its turn and for a connection, in all.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], size: int, timeout_seconds: float
    ) -> None:
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._turns = asyncio.Semaphore(size)
        self._free: list[Connection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection, which must be given back idle to be lent again.

        Raises:
            NoConnection: The time is over.
            psycopg.OperationalError: The server refuses.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._turns.acquire()
                try:
                    connection = self._free.pop() if self._free else await self._connect()
                except BaseException:
                    self._turns.release()
                    raise
        except TimeoutError:
            raise NoConnection from None
        try:
            yield connection
        finally:
            self._turns.release()
            if connection.info.transaction_status is TransactionStatus.IDLE and not self._closed:
                self._free.append(connection)
            else:
                await connection.close()

    async def clear(self) -> None:
        """Close the connections that nobody uses."""
        free, self._free = self._free, []
        for connection in free:
            await connection.close()

    async def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._closed = True
        await self.clear()
