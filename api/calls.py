"""The calls at work in an index: it is deleted after the last of them, and some exclude others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from corral.api.errors import NotFound, Unavailable

DRAIN_SECONDS = 30.0
"""How long a deletion or a closing waits for the calls at work: a query takes far less."""


class Calls:
    """Counts the calls at work in one index, and refuses new ones once it is shut.

    A call is `with calls:`. For one event loop.

    Args:
        name: The vector DB's identifier, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
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
        """Let new calls in again."""
        self._shut = False

    @asynccontextmanager
    async def ended(self) -> AsyncIterator[None]:
        """Refuse new calls for good and enter when the last one has ended; a failure lets them in.

        Raises:
            Unavailable: Some still run after `DRAIN_SECONDS`.
        """
        before, self._shut = self._shut, True
        try:
            if not await self.drained():
                raise Unavailable(
                    f"Vector DB {self._name!r} is in use: {self._running} requests are still "
                    f"running after {DRAIN_SECONDS:g} s.",
                    hint="Nothing was deleted. Try again.",
                    field="vector_db_id",
                )
            yield
        except BaseException:
            self._shut = before
            raise

    async def drained(self) -> bool:
        """Refuse new calls for good; return True once none runs, False after `DRAIN_SECONDS`."""
        self._shut = True
        try:
            await asyncio.wait_for(self._idle.wait(), DRAIN_SECONDS)
        except TimeoutError:
            return False
        return True


class SharedLock:
    """Many hold it together, or one exclusively, who waits for those before it.

    Whoever comes after it waits, too. For one event loop.
    """

    def __init__(self) -> None:
        self._door = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold it with others."""
        async with self._door:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold it without others."""
        async with self._door:
            await self._empty.wait()
            yield
