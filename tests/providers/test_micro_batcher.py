"""Reads that wait become one batch; `MicroBatcher` says how."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from corral.providers.concurrency import BATCH_CONCURRENCY, MicroBatcher


class Doubling:
    """Doubles numbers, refuses negative ones, and notes its batches.

    Each batch with a 0 is held up until it is told to go on.
    """

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.held = threading.Semaphore(0)
        self.go_on = threading.Event()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        if 0 in numbers:
            self.held.release()
            assert self.go_on.wait(60)
        if min(numbers) < 0:
            raise ValueError(min(numbers))
        return [2 * number for number in numbers]

    async def hold(self, batcher: MicroBatcher[int, int], slots: int) -> list[asyncio.Task[int]]:
        """Ask so many questions that are held up, each in a batch of its own."""
        tasks = []
        for _ in range(slots):
            tasks.append(asyncio.create_task(batcher.submit(0)))
            assert await asyncio.to_thread(self.held.acquire, timeout=60)
        return tasks


async def asked(batcher: MicroBatcher[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    """Ask, and let the questions reach their line."""
    tasks = [asyncio.create_task(batcher.submit(number)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


async def test_what_waits_is_the_next_batch() -> None:
    """Questions that come while all threads are at work are answered by one call, each its own.

    If this fails: every question costs a thread, or callers get each other's answers.
    """
    work = Doubling()
    batcher = MicroBatcher(work)
    first = await work.hold(batcher, BATCH_CONCURRENCY)
    others = await asked(batcher, 1, 2, 3, 4, 5)
    work.go_on.set()
    assert await asyncio.gather(*first, *others) == [0] * BATCH_CONCURRENCY + [2, 4, 6, 8, 10]
    assert work.batches == [[0]] * BATCH_CONCURRENCY + [[1, 2, 3, 4, 5]]


async def test_a_slow_batch_holds_nobody_up() -> None:
    """While one batch is held up, others are answered, also who asks the moment another is.

    If this fails: one slow search stops all that come after it, or a question waits for nobody.
    """
    work = Doubling()
    batcher = MicroBatcher(work)
    slow = await work.hold(batcher, 1)

    async def client() -> list[int]:
        return [await batcher.submit(number) for number in range(1, 5)]

    assert await asyncio.wait_for(client(), 60) == [2, 4, 6, 8]
    work.go_on.set()
    assert await slow[0] == 0


async def test_an_error_reaches_its_own_caller_only() -> None:
    """A batch that fails is asked again one by one; the caller of the bad one gets the error.

    If this fails: a search fails because of what somebody else has asked.
    """
    work = Doubling()
    batcher = MicroBatcher(work)
    first = await work.hold(batcher, BATCH_CONCURRENCY)
    good, bad, other = await asked(batcher, 1, -1, 2)
    work.go_on.set()
    assert await asyncio.gather(*first, good, other) == [0] * BATCH_CONCURRENCY + [2, 4]
    with pytest.raises(ValueError, match="-1"):
        await bad
    assert await batcher.submit(3) == 6


async def test_a_caller_may_leave() -> None:
    """Who leaves while waiting is not asked for, and who leaves during the work harms nobody.

    If this fails: a client that hangs up costs work, or the answers of others.
    """
    work = Doubling()
    batcher = MicroBatcher(work)
    first = await work.hold(batcher, BATCH_CONCURRENCY)
    stays, leaves = await asked(batcher, 1, 2)
    for task in (leaves, first[0]):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    work.go_on.set()
    assert await stays == 2
    assert work.batches[BATCH_CONCURRENCY:] == [[1]]
    assert await batcher.submit(3) == 6


def test_loops_do_not_wait_for_each_other() -> None:
    """Each event loop has its own line: an index may be used from one after the other.

    If this fails: a question of a second loop is answered in the first, which may be closed.
    """
    batcher = MicroBatcher(Doubling())
    assert [asyncio.run(batcher.submit(number)) for number in (1, 2, 3)] == [2, 4, 6]
