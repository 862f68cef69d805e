"""Work in the background of a server, from its start to its end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress


class BackgroundWork(ABC):
    """One task of the event loop that runs until it ends or is closed."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the background task; nothing to end is fine."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @abstractmethod
    async def _run(self) -> None:
        """Do the work."""
