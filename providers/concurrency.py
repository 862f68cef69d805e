"""Concurrency for the whole project: a thread pool, a micro-batcher and a debouncer."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from corral.api.errors import Unavailable

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

MAX_THREADS = 16

BATCH_CONCURRENCY = 2
"""So that a slow batch does not hold up all later ones; 1 if there is one thread."""

QUIET_SECONDS = 2.0
"""Seconds without a write after which a load is over."""


class ThreadPool:
    """Runs blocking calls in threads of its own; calls beyond `max_threads` wait.

    asyncio's own threads are few, six on two cores, and everything uses them: a server that does
    not answer would hold all of them, and requests to other backends would wait with its own.

    Args:
        name: The name of the threads and of the provider in the error.
        wait_seconds: How long a call may wait for a thread, so that requests to a server that does
            not answer do not queue up behind each other's timeouts; None for as long as it takes.
        max_threads: How many calls run at a time.
    """

    def __init__(
        self, name: str, wait_seconds: float | None, max_threads: int = MAX_THREADS
    ) -> None:
        self._name = name
        self._wait_seconds = wait_seconds
        self._executor = ThreadPoolExecutor(max_threads, thread_name_prefix=name)

    async def run(self, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call `work` in a thread and return what it returns.

        When the caller is canceled, work that has begun runs to its end.

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


class MicroBatcher(Generic[A, R]):
    """Answers questions in batches: those that arrive while others are answered form the next one.

    A question never waits for others to arrive. A thread for each question would cost as much again
    as a quick answer, since threads take the interpreter's lock from each other.

    Args:
        work: Returns the answers to some questions, in their order. It only reads: if it fails,
            each question is asked again alone, so that no caller gets the error of another.
        run: Calls `work` in a thread, with its argument.
        concurrency: Batches that run at once.
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
            # The task runs in no caller's context: it serves later callers, too.
            line.serving.append(loop.create_task(self._serve(line), context=contextvars.Context()))
        return await answer

    async def _serve(self, line: _Line[A, R]) -> None:
        try:
            while line.waiting:
                batch, line.waiting = line.waiting, []
                await self._answer(batch)
        finally:  # here, not after the task: a question in between would wait for no task
            line.serving = [each for each in line.serving if each is not asyncio.current_task()]

    async def _answer(self, batch: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        batch = [each for each in batch if not each[1].done()]  # some callers may have left
        if not batch:
            return
        try:
            results = await self._run(self._work, [question for question, _ in batch])
        except Exception as error:  # noqa: BLE001 - its caller raises it
            if len(batch) > 1:
                await asyncio.gather(*(self._answer([each]) for each in batch))
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)


class _Line(Generic[A, R]):
    """The questions that wait in one event loop, and the tasks that serve them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[A, asyncio.Future[R]]] = []
        self.serving: list[asyncio.Task[None]] = []


class Debouncer:
    """Does work once the writes of a load have paused, in the event loop that scheduled it last.

    Args:
        work: What to do; it may be called when nothing is left to do, and logs its own failures.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._scheduled = 0.0
        self._writers = 0
        self._due = False
        self._over = asyncio.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a write, however long it takes, as a load that is not over."""
        self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1
            self._scheduled = time.monotonic()

    def schedule(self) -> None:
        """Do the work `QUIET_SECONDS` after the last call."""
        self._scheduled, self._due = time.monotonic(), True
        if self._task is None or self._task.done() or self._elsewhere(self._task):
            self._over = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._when_quiet())

    async def flush(self) -> None:
        """Do the work now if it is due, or wait until it is done."""
        task, self._task = self._task, None
        if task is not None and not self._elsewhere(task):
            self._over.set()
            await task
        elif self._due:
            await self._do()

    async def cancel(self) -> None:
        """Drop the work; if it has begun, wait until it is done."""
        self._due = False
        await self.flush()

    async def _when_quiet(self) -> None:
        while self._writers or time.monotonic() < self._scheduled + QUIET_SECONDS:
            left = self._scheduled + QUIET_SECONDS - time.monotonic()
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
        """Return True if the task belongs to another event loop, which may have ended."""
        return task.get_loop() is not asyncio.get_running_loop()
