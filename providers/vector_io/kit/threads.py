"""Threads of a provider's own, for a driver that blocks while it waits for a server."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from corral.api.errors import Unavailable

T = TypeVar("T")

MOST_THREADS = 16


class Threads:
    """Runs blocking calls, so many at a time; further ones take turns.

    asyncio's own threads are few, six on two cores, and everything uses them: a server that says
    nothing would hold all of them, and requests to other backends would wait with those to it.

    Args:
        wait_seconds: How long a call may wait for its turn, so that requests to a silent server do
            not queue up behind each other's timeouts; None for as long as it takes, where nothing
            can be silent.
        most: How many run at a time.
    """

    def __init__(
        self, provider_id: str, wait_seconds: float | None, most: int = MOST_THREADS
    ) -> None:
        self._provider_id = provider_id
        self._wait_seconds = wait_seconds
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=provider_id)

    async def run(self, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call `work` in a thread and return what it returns.

        When the caller is canceled, work that has begun runs to its end.

        Raises:
            Unavailable: All threads were taken for `wait_seconds`.
        """
        context = contextvars.copy_context()
        future = self._executor.submit(context.run, work, *arguments, **options)
        answer = asyncio.wrap_future(future)
        if self._wait_seconds is None:
            return await answer
        try:
            await asyncio.wait({answer}, timeout=self._wait_seconds)
            if not answer.done() and future.cancel():
                raise Unavailable(
                    f"{self._provider_id}: too many requests are waiting for the server.",
                    hint="Is it overloaded? Try again later.",
                )
            return await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise
