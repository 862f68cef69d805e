"""The load generator keeps as many questions under way as it says, and stops when it should."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.speed.load import Load, Question, Timed, run_load
from corral.bench.system import BlockingSystem, Collection, Ranked, Search, System

QUESTIONS = [Question(f"question {n}", np.zeros(2, np.float32)) for n in range(5)]


class _Counting(System):
    """Takes a while; remembers what it was asked, and how many questions were under way.

    Args:
        together: An answer waits until so many questions are under way.
    """

    pause = 0.002

    def __init__(self, together: int = 1) -> None:
        super().__init__("counting", Path())
        self.asked: list[str] = []
        self.most = self._now = 0
        self._lock = threading.Lock()
        self._tasks = asyncio.Barrier(together)
        self._threads = threading.Barrier(together, timeout=60)

    async def prepare(self, collection: Collection) -> None: ...

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None: ...

    def begin(self, text: str) -> None:
        with self._lock:
            self.asked.append(text)
            self._now += 1
            self.most = max(self.most, self._now)
        if text == "question 3" and self.pause < 0:
            raise RuntimeError("broken")

    def end(self) -> None:
        with self._lock:
            self._now -= 1

    async def search(self, asked: Search) -> Ranked:
        self.begin(asked.text)
        async with asyncio.timeout(60):
            await self._tasks.wait()
        await asyncio.sleep(self.pause)
        self.end()
        return []


class _Blocking(_Counting, BlockingSystem):
    def find(self, asked: Search) -> Ranked:
        self.begin(asked.text)
        self._threads.wait()
        time.sleep(max(0.0, self.pause))
        self.end()
        return []


async def ask(system: System, load: Load, first: int = 0) -> Timed:
    """Run a round of questions."""
    return await run_load(system, QUESTIONS, load, first)


@pytest.mark.parametrize("kind", [_Counting, _Blocking])
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_as_many_questions_are_under_way(kind: type[_Counting], concurrency: int) -> None:
    """Tasks for an asynchronous system, threads for one that blocks; every answer is timed."""
    system = kind(together=concurrency)
    load = Load(SearchMode.VECTOR, concurrency=concurrency, most=24, seconds=60)
    timed = await ask(system, load, first=2)
    assert system.most == concurrency
    assert len(timed.latencies) == len(system.asked) == 24
    assert system.asked[0] == "question 2"
    assert set(system.asked) == {question.text for question in QUESTIONS}
    assert min(timed.latencies) >= 0.001
    assert timed.seconds >= max(timed.latencies)


@pytest.mark.parametrize("kind", [_Counting, _Blocking])
async def test_a_slow_system_is_asked_a_few_questions_all_the_same(kind: type[_Counting]) -> None:
    """Three of them when time is up before, so that there is a median."""
    timed = await ask(kind(), Load(SearchMode.VECTOR, most=50, seconds=0))
    assert len(timed.latencies) == 3


@pytest.mark.parametrize("kind", [_Counting, _Blocking])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_failure_ends_the_round(kind: type[_Counting], concurrency: int) -> None:
    """The error comes out, and no further questions are asked."""
    system = kind()
    system.pause = -1
    load = Load(SearchMode.VECTOR, concurrency=concurrency, most=1000, seconds=60)
    with pytest.raises(RuntimeError, match="broken"):
        await ask(system, load)
    assert len(system.asked) < 20
