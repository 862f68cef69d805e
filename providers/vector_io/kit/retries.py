"""Retry requests to an engine, with the same policy for threads and tasks."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
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

CHECK_BEFORE_REQUEST: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)
"""Called before each request of a write; raises Unavailable if the write must not continue."""

Again = Callable[[BaseException], bool]
"""Return True for an error after which another attempt may succeed."""


def check_before_request() -> None:
    """Call `CHECK_BEFORE_REQUEST`, for clients that retry by themselves."""
    if check := CHECK_BEFORE_REQUEST.get():
        check()


def retried(
    request: Callable[[], T],
    again: Again,
    attempts: int,
    pause_seconds: float,
    *,
    within_seconds: float,
) -> T:
    """Call a blocking function until it succeeds; raise the error of the last attempt.

    Each pause is 50 % to 100 % of its nominal length, at random, so that clients do not retry in
    lockstep.

    Args:
        request: Sends the request; called once per attempt.
        again: Returns True for an error that allows another attempt.
        attempts: Maximum number of attempts, including the first.
        pause_seconds: The first pause; each further pause is twice as long.
        within_seconds: Time after the first attempt when no further attempt starts.
    """
    wait = wait_exponential(multiplier=pause_seconds)

    def spread(state: RetryCallState) -> float:
        return wait(state) * random.uniform(0.5, 1)  # noqa: S311 - spreads retries; nothing is secret

    stop = stop_after_attempt(attempts) | stop_before_delay(within_seconds)

    def attempt() -> T:
        check_before_request()
        return request()

    return Retrying(stop=stop, wait=spread, **_common(again))(attempt)


async def retried_async(
    request: Callable[[], Awaitable[T]], again: Again, attempts: int, pause_seconds: float
) -> T:
    """Await a function until it succeeds; raise the error of the last attempt.

    Arguments as for `retried`. The first attempt adds no overhead to the request.
    """
    check_before_request()
    try:
        return await request()
    except Exception as error:  # noqa: BLE001 - `attempt` raises it to `Retrying`
        failed: list[Exception] = [error]

    async def attempt() -> T:
        if failed:
            raise failed.pop()
        check_before_request()
        return await request()

    wait = wait_exponential(multiplier=pause_seconds)
    policy = AsyncRetrying(stop=stop_after_attempt(attempts), wait=wait, **_common(again))
    return await policy(attempt)


def _common(again: Again) -> dict[str, Any]:
    return {"retry": retry_if_exception(again), "reraise": True}
