"""A cache of a vector DB's BM25 statistics, so that not every query counts them.

A write clears the cache of its own process, so this process always sees its own writes. The writes
of other processes are visible after at most `max_age_seconds`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

from pydantic import Field

from corral.providers.vector_io.kit.sparse import Statistics, bands

S = TypeVar("S")
T = TypeVar("T", bound=Hashable)

MaxAge = Annotated[
    float,
    Field(
        ge=0,
        le=3600,
        description="Maximum age of the numbers that BM25 needs (chunks, average length, chunks "
        "that hold a term) where another process writes. 0 counts again for each query. "
        "Writes of this process count at once.",
    ),
]
"""The setting `statistics_max_age_seconds`."""

DEFAULT_MAX_AGE_SECONDS = 5.0
"""Short enough for a lag of scores between processes to go unnoticed, and long enough for only one
query in a hundred to count. Only scores can lag: the hits of a word are never cached."""


@dataclass(slots=True, eq=False)
class _Known(Generic[S, T]):
    """Statistics that were counted at one time.

    Attributes:
        statistics: The vector DB's statistics.
        until: Expiry on the clock of `time.monotonic`, in seconds.
        holding: For the terms of earlier queries, the number of chunks that contain each.
    """

    statistics: S
    until: float
    holding: dict[T, int] = field(default_factory=dict)

    def note(self, terms: Iterable[T], numbers: Iterable[int]) -> None:
        """Cache the numbers above 0."""
        pairs = zip(terms, numbers, strict=True)
        self.holding.update((term, number) for term, number in pairs if number)


class KeptStatistics(Generic[S, T]):
    """The cached statistics of one vector DB, with the number of chunks that contain each term.

    Args:
        count: Counts the statistics.
        hold: Counts the chunks that contain each of these terms.
        max_age_seconds: Maximum age; infinite if no other process can write.
        lasts: Returns False for statistics that become useless when another process writes.
    """

    def __init__(
        self,
        count: Callable[[], Awaitable[S]],
        hold: Callable[[Sequence[T]], Awaitable[Sequence[int]]],
        max_age_seconds: float,
        lasts: Callable[[S], bool] = lambda _: True,
    ) -> None:
        self._count, self._hold, self._lasts = count, hold, lasts
        self._max_age = max_age_seconds
        self._known: _Known[S, T] | None = None
        self._writes = 0

    def forget(self) -> None:
        """Clear the cache after a write of this process, successful or not."""
        self._known = None
        self._writes += 1

    async def holding(self, terms: Sequence[T]) -> list[int]:
        """Return the number of chunks that contain each term."""
        cached = self._latest()
        if cached is None:
            return list(await self._hold(terms))
        missing = [term for term in terms if term not in cached.holding]
        if missing:
            cached.note(missing, await self._hold(missing))
        return [cached.holding.get(term, 0) for term in terms]

    async def read(self, terms: Sequence[T]) -> tuple[S, list[int]]:
        """Return the statistics and the number of chunks that contain each term.

        A count of 0 is never cached: another process may write the first chunk with the term.
        """
        cached = self._latest()
        if cached is None:
            return await self._read_anew(terms)
        return cached.statistics, await self.holding(terms)

    def _latest(self) -> _Known[S, T] | None:
        cached = self._known
        return None if cached is None or cached.until <= time.monotonic() else cached

    async def _read_anew(self, terms: Sequence[T]) -> tuple[S, list[int]]:
        started, writes = time.monotonic(), self._writes
        statistics, numbers = await asyncio.gather(self._count(), self._hold(terms))
        lasting = math.isinf(self._max_age) or (self._max_age > 0 and self._lasts(statistics))
        if self._writes == writes and lasting:
            self._known = cached = _Known[S, T](statistics, started + self._max_age)
            cached.note(terms, numbers)
        return statistics, list(numbers)


def finds_new_chunks(statistics: Statistics) -> bool:
    """Return True if a search finds another process's new chunks before they are counted.

    It does not if the vector DB was empty, or if the search lists the references in use.
    """
    return statistics.average > 0 and len(bands(statistics, statistics.average)) == 1
