"""Send a request to an engine again: one policy, for threads and for tasks."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
)

T = TypeVar("T")
Again = Callable[[BaseException], bool]
"""Return True for an error after which another attempt may succeed."""


def retried(
    request: Callable[[], T],
    again: Again,
    attempts: int,
    pause_seconds: float,
    *,
    within_seconds: float,
) -> T:
    """Call a blocking function until it succeeds; at last its own error is raised.

    The pauses are spread over their upper half, so that clients do not return together.

    Args:
        request: Sends the request, once for each attempt.
        again: Which errors lead to another attempt.
        attempts: The most, with the first one.
        pause_seconds: The first pause; each further one is twice as long.
        within_seconds: No attempt begins later than this after the first one.
    """
    wait = wait_exponential(multiplier=pause_seconds)

    def spread(state: RetryCallState) -> float:
        return wait(state) * random.uniform(0.5, 1)  # noqa: S311 - no secret

    stop = stop_after_attempt(attempts) | stop_before_delay(within_seconds)
    return Retrying(stop=stop, wait=spread, **_common(again))(request)


async def retried_async(
    request: Callable[[], Awaitable[T]], again: Again, attempts: int, pause_seconds: float
) -> T:
    """Await a function until it succeeds; at last its own error is raised.

    Arguments as for `retried`. The first attempt costs nothing beside the request.
    """
    try:
        return await request()
    except Exception as error:  # noqa: BLE001 - raised again below
        failed: list[Exception] = [error]

    async def attempt() -> T:
        if failed:
            raise failed.pop()
        return await request()

    wait = wait_exponential(multiplier=pause_seconds)
    policy = AsyncRetrying(stop=stop_after_attempt(attempts), wait=wait, **_common(again))
    return await policy(attempt)


def _common(again: Again) -> dict[str, Any]:
    return {"retry": retry_if_exception(again), "reraise": True}
