"""Work that is put off while a load runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0
"""How long no write of a load must have come for the load to be over."""


class Renewal:
    """Does work once the writes of a load have paused. Belongs to the event loop that asked last.

    Args:
        work: What to do; it may be called when nothing is left to do, and logs its own failures.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._writers = 0
        self._due = False
        self._over = asyncio.Event()

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Count a write, however long it takes, as a load that is not over."""
        self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1
            self._asked = time.monotonic()

    def soon(self) -> None:
        """Have it done when nobody has asked for a while."""
        self._asked, self._due = time.monotonic(), True
        if self._task is None or self._task.done() or self._elsewhere(self._task):
            self._over = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._when_quiet())

    async def finish(self) -> None:
        """Do it now if it is due, or wait until it is done."""
        task, self._task = self._task, None
        if task is not None and not self._elsewhere(task):
            self._over.set()
            await task
        elif self._due:
            await self._do()

    async def forget(self) -> None:
        """Do it no more; where it has begun, wait until it is done."""
        self._due = False
        await self.finish()

    async def _when_quiet(self) -> None:
        while self._writers or time.monotonic() < self._asked + QUIET_SECONDS:
            left = self._asked + QUIET_SECONDS - time.monotonic()
            try:
                async with asyncio.timeout(QUIET_SECONDS if self._writers else left):
                    await self._over.wait()
                break
            except TimeoutError:
                continue
        if self._due:
            await self._do()

    async def _do(self) -> None:
        self._due = False
        await self._work()

    @staticmethod
    def _elsewhere(task: asyncio.Task[None]) -> bool:
        """Return True if the task is of another event loop, which may have ended."""
        return task.get_loop() is not asyncio.get_running_loop()
