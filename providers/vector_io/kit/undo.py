"""Undo a write of several requests, for engines without transactions.

A new version is written first and the old version deleted last. Only the writing is undone: after
it has succeeded, a failed delete may still have been carried out, and removing the new version
would then lose both. If both versions remain, sending the document again repairs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from corral.api.errors import CorralError, NotFound, Unavailable

R = TypeVar("R")


@contextmanager
def undone_on_failure(
    put_back: Iterable[Callable[[], object]], remove: Callable[[], object]
) -> Iterator[None]:
    """Undo the writes of a block if it fails, then raise the first failure.

    Args:
        put_back: Requests that rewrite the old rows.
        remove: Deletes the new rows; called only after every rewrite has succeeded.
    """
    try:
        yield
    except CorralError:
        steps, failure = _steps(put_back, remove), None
        with suppress(StopIteration):
            while True:
                failure = _failure(steps.send(failure))
        raise


@asynccontextmanager
async def undone_on_failure_async(
    put_back: Iterable[Callable[[], Awaitable[object]]],
    remove: Callable[[], Awaitable[object]],
    seconds: float | None = None,
) -> AsyncIterator[None]:
    """Undo the writes of a block if it fails or is canceled; see `undone_on_failure`.

    Args:
        put_back, remove: As for `undone_on_failure`, awaited.
        seconds: Time limit for undoing; None for no limit.
    """
    try:
        yield
    except (CorralError, asyncio.CancelledError):
        steps, failure = _steps(put_back, remove), None
        with suppress(StopIteration, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    failure = await _failure_async(steps.send(failure))
        raise


def _steps(put_back: Iterable[R], remove: R) -> Generator[R, CorralError | None, None]:
    """Yield the requests to send, and receive the error of each.

    A failed request does not stop the others, unless the engine is unavailable or the data were
    deleted: the request may still have been carried out, and stopping would leave half a version.
    """
    all_back = True
    for request in put_back:
        failure = yield request
        if isinstance(failure, NotFound | Unavailable):
            return
        all_back = all_back and failure is None
    if all_back:
        yield remove


def _failure(request: Callable[[], object]) -> CorralError | None:
    try:
        request()
    except CorralError as error:
        return error
    return None


async def _failure_async(request: Callable[[], Awaitable[object]]) -> CorralError | None:
    try:
        await request()
    except CorralError as error:
        return error
    return None
