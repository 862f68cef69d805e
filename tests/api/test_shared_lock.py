"""SharedLock: many write together, or one alone, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from corral.api.calls import SharedLock


async def test_one_alone_is_alone() -> None:
    """Who wants to be alone enters after those inside and before those that come later.

    If this fails: what a restricted writer has looked at changes before it writes.
    """
    lock = SharedLock()
    seen: list[str] = []

    async def take(name: str, turn: AbstractAsyncContextManager[None]) -> None:
        async with turn:
            seen.append(f"{name} in")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(f"{name} out")

    await asyncio.gather(
        take("a", lock.shared()),
        take("b", lock.shared()),
        take("c", lock.exclusive()),
        take("d", lock.shared()),
        take("e", lock.exclusive()),
    )
    assert seen[:2] == ["a in", "b in"]
    assert seen[4:] == ["c in", "c out", "d in", "d out", "e in", "e out"]


async def test_a_failure_or_a_cancelled_call_leaves_the_door_open() -> None:
    """Whoever ends in any way lets the others in.

    If this fails: after one failed write no restricted principal writes any more.
    """
    lock = SharedLock()

    async def fail(turn: AbstractAsyncContextManager[None]) -> None:
        async with turn:
            await asyncio.sleep(0)
            raise RuntimeError

    await asyncio.gather(fail(lock.shared()), fail(lock.exclusive()), return_exceptions=True)
    inside = asyncio.Event()

    async def stay() -> None:
        async with lock.shared():
            inside.set()
            await asyncio.Event().wait()

    staying = asyncio.create_task(stay())
    await inside.wait()
    waiting = asyncio.create_task(fail(lock.exclusive()))
    await asyncio.sleep(0)
    waiting.cancel()
    staying.cancel()
    await asyncio.gather(waiting, staying, return_exceptions=True)
    async with asyncio.timeout(5), lock.exclusive():
        pass
