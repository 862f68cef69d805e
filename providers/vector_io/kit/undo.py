"""Undo a write of several requests, for engines without transactions over them.

A new version is written first and the old one deleted last. Only the writing is undone: once all of
it has succeeded, a delete that fails may have been carried out all the same, and to remove the new
version then would lose both. Two versions side by side are mended by sending the document again.
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
    """Undo what a block has written if it fails, then raise the first failure.

    Args:
        put_back: Requests that write again what was there before.
        remove: Removes what was not; called only once all is back.
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
    """Undo what a block has written if it fails or is canceled; see `undone_on_failure`.

    Args:
        put_back, remove: As there, awaited.
        seconds: How long undoing may take; None for as long as it needs.
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
    """Yield the requests to send, and take what each has failed with.

    One that fails stops none of the others, unless the engine or the data are gone: it may have
    been carried out all the same, and then half a version would stay that way.
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
