"""Run coroutines concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results; the first failure cancels the rest.

    A single coroutine is awaited without a task. A task costs three rounds of the event loop, which
    is as long as a fast engine takes.
    """
    waiting = list(coroutines)
    if len(waiting) <= 1:
        return [await coroutine for coroutine in waiting]
    tasks = [asyncio.create_task(coroutine) for coroutine in waiting]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
