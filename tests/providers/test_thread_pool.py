"""The thread pool: how many threads, how long a call waits for one, and what is left over."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time

import pytest

from corral.api.errors import Unavailable
from corral.providers.concurrency import ThreadPool, at_low_priority


async def test_answers_and_errors_come_back() -> None:
    """What the work returns or raises is what the caller gets, from one event loop or another."""
    threads = ThreadPool("farm", 5)
    for _ in range(2):
        assert await threads.run(sum, [1, 2], start=3) == 6
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)


async def test_a_turn_is_waited_for_so_long_only() -> None:
    """With all threads taken for good, others get Unavailable with the provider's name in time.

    Work that has a thread is never cut off, and what was given up is not done later.
    """
    threads, end, done = ThreadPool("farm", 0.1, max_threads=2), threading.Event(), list[int]()

    held = [asyncio.create_task(threads.run(end.wait, 30)) for _ in range(2)]
    await asyncio.sleep(0.05)
    began = time.monotonic()
    late = [threads.run(done.append, n) for n in range(20)]
    for error in await asyncio.gather(*late, return_exceptions=True):
        assert isinstance(error, Unavailable)
        assert "farm" in error.message
    assert 0.1 <= time.monotonic() - began < 20
    end.set()
    assert await asyncio.gather(*held) == [True, True]
    await threads.run(done.append, 99)
    assert done == [99]


async def test_asyncios_own_threads_stay_free() -> None:
    """A hundred calls that hang leave `asyncio.to_thread` to others."""
    threads, end = ThreadPool("farm", None), threading.Event()

    held = [asyncio.create_task(threads.run(end.wait, 30)) for _ in range(100)]
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(asyncio.to_thread(sum, [1, 2]), timeout=20) == 3
    end.set()
    assert all(await asyncio.gather(*held))


async def test_a_caller_that_goes_away_takes_its_turn_along() -> None:
    """Work that had not begun when its caller was canceled is not done."""
    threads, end, done = ThreadPool("farm", None, max_threads=1), threading.Event(), list[int]()

    held = asyncio.create_task(threads.run(end.wait, 30))
    gone = asyncio.create_task(threads.run(done.append, 1))
    await asyncio.sleep(0.05)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    end.set()
    await held
    await threads.run(done.append, 2)
    assert done == [2]


def test_long_calculations_yield_to_everything_else() -> None:
    """Their thread has the lowest priority, the caller keeps its own, and errors come back.

    If this fails: the build of an index slows down questions.
    """

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()
    assert at_low_priority(sum, [1, 2], start=3) == 6
    with pytest.raises(ZeroDivisionError):
        at_low_priority(divmod, 1, 0)
    if sys.platform == "linux":
        assert at_low_priority(priority) == 19
        assert priority() == before
