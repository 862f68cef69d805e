"""Calls in flight, so that deletion can wait for them, and a lock for writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from corral.api.errors import NotFound, Unavailable

DRAIN_SECONDS = 30.0
"""Default of `InFlight`; a query takes far less."""


class InFlight:
    """Counts the running calls of one index, and rejects new ones after it was closed.

    A call is `with in_flight:`. For one event loop.

    Args:
        name: The vector DB's identifier, for messages.
        drain_seconds: Maximum time that `closing` and `wait_idle` wait for running calls.
    """

    def __init__(self, name: str, drain_seconds: float = DRAIN_SECONDS) -> None:
        self._name = name
        self._drain_seconds = drain_seconds
        self._running = 0
        self._shut = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        if self._shut:
            raise NotFound(
                f"Vector DB {self._name!r} was deleted or closed.",
                hint="List vector DBs with `corral dbs list`.",
                field="vector_db_id",
            )
        self._running += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    def accept(self) -> None:
        """Accept calls again."""
        self._shut = False

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Reject new calls, wait for running ones, then enter; accept calls again on failure.

        Raises:
            Unavailable: Calls still run after `drain_seconds`.
        """
        before, self._shut = self._shut, True
        try:
            if not await self.wait_idle():
                raise Unavailable(
                    f"Vector DB {self._name!r} is in use: {self._running} requests are still "
                    f"running after {self._drain_seconds:g} s.",
                    hint="Nothing was deleted. Try again.",
                    field="vector_db_id",
                )
            yield
        except BaseException:
            self._shut = before
            raise

    async def wait_idle(self) -> bool:
        """Reject new calls; return True when none runs, False after `drain_seconds`."""
        self._shut = True
        try:
            await asyncio.wait_for(self._idle.wait(), self._drain_seconds)
        except TimeoutError:
            return False
        return True


class SharedLock:
    """A lock that many tasks hold shared, or one exclusively.

    It is fair: tasks that come after an exclusive one wait for it. For one event loop.
    """

    def __init__(self) -> None:
        self._entry = asyncio.Lock()
        self._holders = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other shared holders."""
        async with self._entry:
            self._holders += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._empty.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone."""
        async with self._entry:
            await self._empty.wait()
            yield
