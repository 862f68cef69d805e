"""An event loop in a thread, for code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from threading import Lock, Thread
from typing import Any, TypeVar

from corral.api.errors import InvalidRequest

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, which does not delay the interpreter's exit."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = Lock()
        self._at_work: set[Future[Any]] = set()
        self._closed = False
        self._thread = Thread(target=self._loop.run_forever, name="corral", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """True once it is closed or closing."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result; an interrupted wait cancels it.

        Raises:
            InvalidRequest: The loop is closed, or was closed during the call.
        """
        future = self.start(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._closed:
                raise closed() from None
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop.

        Raises:
            InvalidRequest: The loop is closed.
        """
        with self._lock:
            if self._closed:
                work.close()
                raise closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._at_work.add(future)
        future.add_done_callback(self._at_work.discard)
        return future

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Cancel the running calls, run `last`, stop the loop and end its threads."""
        with self._lock:
            self._closed = True
            cut_off = list(self._at_work)
        for future in cut_off:
            future.cancel()
        try:
            asyncio.run_coroutine_threadsafe(_end(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _end(last: Coroutine[Any, Any, None] | None) -> None:
    """Run `last`, then shut the loop down as `asyncio.run` does."""
    try:
        if last is not None:
            await last
    finally:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


def closed() -> InvalidRequest:
    """Return the error for a call after closing."""
    return InvalidRequest("This Corral is closed.", hint="Open its folder again.")
