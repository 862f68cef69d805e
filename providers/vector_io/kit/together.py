"""Reads of one file for many callers: those that wait are done together, in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

A = TypeVar("A")
R = TypeVar("R")

BATCHES_AT_ONCE = 2
"""So that a slow batch does not hold up all that come after it; 1 where there is one thread."""


class Together(Generic[A, R]):
    """Answers questions in batches: those that come while others are answered are the next batch.

    Nobody waits for others to come. A thread for each question would cost as much again as a quick
    answer, since threads take the interpreter's lock from each other.

    Args:
        work: Returns the answers to some questions, in their order. It only reads: where it fails,
            each question is asked again alone, so that nobody gets the error of another's.
        run: Calls it in a thread, with its argument.
        at_once: Batches that are at work at once.
    """

    def __init__(
        self,
        work: Callable[[Sequence[A]], Sequence[R]],
        run: Callable[..., Awaitable[Sequence[R]]] = asyncio.to_thread,
        at_once: int = BATCHES_AT_ONCE,
    ) -> None:
        self._work, self._run, self._at_once = work, run, at_once
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[A, R]] = WeakKeyDictionary()

    async def ask(self, question: A) -> R:
        """Return the answer to one question."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(loop, _Line())
        answer: asyncio.Future[R] = loop.create_future()
        line.waiting.append((question, answer))
        if len(line.serving) < self._at_once:
            # In no caller's context: it serves those that come later, too.
            line.serving.append(loop.create_task(self._serve(line), context=Context()))
        return await answer

    async def _serve(self, line: _Line[A, R]) -> None:
        try:
            while line.waiting:
                taken, line.waiting = line.waiting, []
                await self._answer(taken)
        finally:  # here, and not once it is over: who asks in between would wait for nobody
            line.serving = [each for each in line.serving if each is not asyncio.current_task()]

    async def _answer(self, asked: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        asked = [each for each in asked if not each[1].done()]  # some callers may have left
        if not asked:
            return
        try:
            found = await self._run(self._work, [question for question, _ in asked])
        except Exception as error:  # noqa: BLE001 - it is raised where it belongs
            if len(asked) > 1:
                await asyncio.gather(*(self._answer([each]) for each in asked))
            elif not asked[0][1].done():
                asked[0][1].set_exception(error)
            return
        for (_, answer), one in zip(asked, found, strict=True):
            if not answer.done():
                answer.set_result(one)


class _Line(Generic[A, R]):
    """Who waits in one event loop, and the tasks that serve them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[A, asyncio.Future[R]]] = []
        self.serving: list[asyncio.Task[None]] = []
