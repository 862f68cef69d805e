"""Concurrent questions, each timed: the behavior of a system under load.

Corral's backends are asked by tasks of one event loop, as in the server. Foreign systems with
blocking calls are asked by threads, as their users would.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.api.vector_dbs import SearchMode
from corral.bench.system import BlockingSystem, Search, System

LEAST = 3
"""Minimum questions per round, however slow the system, because fewer have no median."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question: its text, and its embedding of shape (dimension,)."""

    text: str
    embedding: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Load:
    """One round of questions: mode, filter and concurrency.

    Attributes:
        mode: The mode of the queries.
        k: Hits per query.
        below: As in `Search.below`.
        concurrency: Concurrent questions.
        most: Maximum questions of the round.
        seconds: Time after which no question starts, except the first `LEAST`.
    """

    mode: SearchMode
    k: int = 10
    below: int | None = None
    concurrency: int = 1
    most: int = 100
    seconds: float = 1.0

    def search(self, question: Question) -> Search:
        """Return a question in the form for a system."""
        return Search(self.mode, question.text, question.embedding, self.k, self.below)


@dataclass(frozen=True, slots=True)
class Timed:
    """The latencies of a round in seconds, in order of completion, and its total duration."""

    latencies: tuple[float, ...]
    seconds: float


async def run_load(system: System, questions: Sequence[Question], load: Load, first: int) -> Timed:
    """Ask questions until there are enough, or time is up.

    Args:
        system: A filled, warm system.
        questions: Asked cyclically, starting with number `first`.
        load: Parameters of the round.
        first: Differs between rounds, so that they do not all ask the same questions.

    Raises:
        Exception: An exception of the system, which ends the round.
    """
    number = len(questions)
    wanted = (questions[(first + n) % number] for n in itertools.count())
    budget = _Budget(wanted, load)
    start = time.perf_counter()
    if isinstance(system, BlockingSystem):
        latencies = await _in_threads(system, budget, load)
    else:
        latencies = await _in_tasks(system, budget, load)
    return Timed(tuple(latencies), time.perf_counter() - start)


class _Budget:
    """Hands out questions to all threads until there are enough or time is up."""

    def __init__(self, questions: Iterator[Question], load: Load) -> None:
        self._questions: Iterator[Question] = itertools.islice(questions, load.most)
        self._least = max(LEAST, load.concurrency)
        self._ends = time.perf_counter() + load.seconds
        self._lock = threading.Lock()
        self._given = 0

    def next(self) -> Question | None:
        with self._lock:
            if self._given >= self._least and time.perf_counter() >= self._ends:
                return None
            self._given += 1
            return next(self._questions, None)

    def stop(self) -> None:
        with self._lock:
            self._questions = iter(())


async def _in_tasks(system: System, budget: _Budget, load: Load) -> list[float]:
    latencies: list[float] = []

    async def ask() -> None:
        while (question := budget.next()) is not None:
            start = time.perf_counter()
            await system.search(load.search(question))
            latencies.append(time.perf_counter() - start)

    await _all_or_stop(budget, [asyncio.create_task(ask()) for _ in range(load.concurrency)])
    return latencies


async def _in_threads(system: BlockingSystem, budget: _Budget, load: Load) -> list[float]:
    latencies: list[float] = []

    def ask() -> None:
        while (question := budget.next()) is not None:
            start = time.perf_counter()
            system.find(load.search(question))
            latencies.append(time.perf_counter() - start)

    if load.concurrency == 1:
        ask()
        return latencies
    with ThreadPoolExecutor(load.concurrency) as pool:
        loop = asyncio.get_running_loop()
        tasks = [loop.run_in_executor(pool, ask) for _ in range(load.concurrency)]
        await _all_or_stop(budget, tasks)
    return latencies


async def _all_or_stop(budget: _Budget, tasks: Sequence[Awaitable[None]]) -> None:
    """Wait for all; after the first failure, hand out no more questions."""
    try:
        await asyncio.gather(*tasks)
    finally:
        budget.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
