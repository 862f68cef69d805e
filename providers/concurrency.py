"""Concurrency for the whole project: a thread pool, a micro-batcher and a debouncer."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from corral.api.errors import Unavailable

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

MAX_THREADS = 16

BATCH_CONCURRENCY = 2
"""Concurrent batches: more than one, so that a slow batch does not block all later batches. Use 1
with a single thread."""

QUIET_SECONDS = 2.0
"""Seconds without a write after which a load is over."""


def at_low_priority(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call `work` in a thread with the lowest priority, and wait for its result.

    Only for long calls that compute without the interpreter's lock, such as those of numpy and
    FAISS: on a busy machine, a slow thread that holds the lock delays all others. Only Linux has
    priorities of threads.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            future.set_result(work(*arguments, **options))
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            future.set_exception(error)

    threading.Thread(target=run, name="low-priority", daemon=True).start()
    return future.result()


class ThreadPool:
    """Runs blocking calls in its own threads; calls beyond `max_threads` wait.

    asyncio's default pool is small, six threads on two cores, and shared by all code: a server that
    does not answer would occupy every thread, and requests to other backends would wait, too.

    Args:
        name: The name of the threads and of the provider in the error.
        wait_seconds: Maximum wait for a thread, so that requests to a server that does not answer
            do not queue up behind each other's timeouts; None for no limit.
        max_threads: Maximum concurrent calls.
    """

    def __init__(
        self, name: str, wait_seconds: float | None, max_threads: int = MAX_THREADS
    ) -> None:
        self._name = name
        self._wait_seconds = wait_seconds
        self._executor = ThreadPoolExecutor(max_threads, thread_name_prefix=name)

    async def run(self, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call `work` in a thread and return what it returns.

        If the caller is canceled, work that has started still runs to completion.

        Raises:
            Unavailable: All threads were busy for `wait_seconds`.
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
                    f"{self._name}: too many requests are waiting for the server.",
                    hint="Is it overloaded? Try again later.",
                )
            return await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise

    async def close(self) -> None:
        """Wait for the running calls, and end the threads; later calls fail."""
        await asyncio.to_thread(self._executor.shutdown)


class MicroBatcher(Generic[A, R]):
    """Answers questions in batches: questions that arrive during a batch form the next batch.

    A question never waits for others to arrive. A thread per question would double the cost of a
    fast answer, because the threads compete for the interpreter lock.

    Args:
        work: Returns the answers to a list of questions, in their order. It must only read: if it
            fails, each question is retried alone, so that no caller gets another caller's error.
        run: Calls `work` in a thread, with its argument.
        concurrency: Maximum concurrent batches.
    """

    def __init__(
        self,
        work: Callable[[Sequence[A]], Sequence[R]],
        run: Callable[..., Awaitable[Sequence[R]]] = asyncio.to_thread,
        concurrency: int = BATCH_CONCURRENCY,
    ) -> None:
        self._work, self._run, self._concurrency = work, run, concurrency
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[A, R]] = WeakKeyDictionary()

    async def submit(self, question: A) -> R:
        """Return the answer to one question."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(loop, _Line())
        answer: asyncio.Future[R] = loop.create_future()
        line.waiting.append((question, answer))
        if len(line.serving) < self._concurrency:
            # The task runs in an empty context, because it also serves later callers.
            line.serving.append(loop.create_task(self._serve(line), context=contextvars.Context()))
        return await answer

    async def _serve(self, line: _Line[A, R]) -> None:
        try:
            while line.waiting:
                batch, line.waiting = line.waiting, []
                await self._answer(batch)
        finally:  # before the task ends; otherwise a question in between would wait forever
            line.serving = [each for each in line.serving if each is not asyncio.current_task()]

    async def _answer(self, batch: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        batch = [each for each in batch if not each[1].done()]  # some callers may be canceled
        if not batch:
            return
        try:
            results = await self._run(self._work, [question for question, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            if len(batch) > 1:
                await asyncio.gather(*(self._answer([each]) for each in batch))
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)


class _Line(Generic[A, R]):
    """The waiting questions of one event loop, and the tasks that answer them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[A, asyncio.Future[R]]] = []
        self.serving: list[asyncio.Task[None]] = []


class Debouncer:
    """Runs work once the writes of a bulk load pause, in the event loop that scheduled it last.

    Args:
        work: The work; it must tolerate calls with nothing to do, and log its own failures.
        quiet_seconds: Pause after the last call.
    """

    def __init__(
        self, work: Callable[[], Awaitable[None]], quiet_seconds: float = QUIET_SECONDS
    ) -> None:
        self._work, self._quiet_seconds = work, quiet_seconds
        self._task: asyncio.Task[None] | None = None
        self._scheduled = 0.0
        self._writers = 0
        self._due = False
        self._over = asyncio.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Delay the work during a write, however long the write takes."""
        self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1
            self._scheduled = time.monotonic()

    def schedule(self) -> None:
        """Run the work `quiet_seconds` after the last call."""
        self._scheduled, self._due = time.monotonic(), True
        if self._task is None or self._task.done() or self._elsewhere(self._task):
            self._over = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._when_quiet())

    async def flush(self) -> None:
        """Run the work now if it is scheduled; wait for it if it is running."""
        task, self._task = self._task, None
        if task is not None and not self._elsewhere(task):
            self._over.set()
            await task
        elif self._due:
            await self._do()

    async def cancel(self) -> None:
        """Cancel the scheduled work; if it is running, wait for it."""
        self._due = False
        await self.flush()

    async def _when_quiet(self) -> None:
        while self._writers or time.monotonic() < self._scheduled + self._quiet_seconds:
            left = self._scheduled + self._quiet_seconds - time.monotonic()
            try:
                async with asyncio.timeout(self._quiet_seconds if self._writers else left):
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
        """Return True if the task belongs to another event loop, which may have ended."""
        return task.get_loop() is not asyncio.get_running_loop()
