"""What BM25 needs to know of a vector DB, kept between two queries instead of counted in each.

The writer's own process forgets what it knew with every write, so to itself it is always right.
What another process writes is seen after `max_age_seconds` at the latest.
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
"""Short enough that nobody who watches two processes sees a score lag, long enough that of a
hundred queries one counts. Only scores can lag: which chunks hold a word is never kept."""


@dataclass(slots=True, eq=False)
class _Known(Generic[S, T]):
    """What was counted at one time.

    Attributes:
        statistics: Of the vector DB.
        until: When it is too old, on the clock of `time.monotonic`.
        holding: How many chunks hold each term, for those that were asked for.
    """

    statistics: S
    until: float
    holding: dict[T, int] = field(default_factory=dict)

    def note(self, terms: Iterable[T], numbers: Iterable[int]) -> None:
        """Keep what was counted."""
        pairs = zip(terms, numbers, strict=True)
        self.holding.update((term, number) for term, number in pairs if number)


class KeptStatistics(Generic[S, T]):
    """The statistics of one vector DB, and how many chunks hold each term.

    Args:
        count: Counts the statistics.
        hold: Counts the chunks that hold each of these terms.
        max_age_seconds: Most age; infinite where no other process can write.
        lasts: Returns False for statistics that are of no use once another process has written.
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
        """Count anew for the next query: a write of this process has ended, well or not."""
        self._known = None
        self._writes += 1

    async def holding(self, terms: Sequence[T]) -> list[int]:
        """Return for each term how many chunks hold it."""
        known = self._latest()
        if known is None:
            return list(await self._hold(terms))
        missing = [term for term in terms if term not in known.holding]
        if missing:
            known.note(missing, await self._hold(missing))
        return [known.holding.get(term, 0) for term in terms]

    async def read(self, terms: Sequence[T]) -> tuple[S, list[int]]:
        """Return the statistics, and for each term how many chunks hold it.

        That no chunk holds a term is never kept: the first one that does may come from elsewhere.
        """
        known = self._latest()
        if known is None:
            return await self._read_anew(terms)
        return known.statistics, await self.holding(terms)

    def _latest(self) -> _Known[S, T] | None:
        known = self._known
        return None if known is None or known.until <= time.monotonic() else known

    async def _read_anew(self, terms: Sequence[T]) -> tuple[S, list[int]]:
        started, writes = time.monotonic(), self._writes
        statistics, numbers = await asyncio.gather(self._count(), self._hold(terms))
        lasting = math.isinf(self._max_age) or (self._max_age > 0 and self._lasts(statistics))
        if self._writes == writes and lasting:
            self._known = known = _Known[S, T](statistics, started + self._max_age)
            known.note(terms, numbers)
        return statistics, list(numbers)


def finds_new_chunks(statistics: Statistics) -> bool:
    """Return True if what another process adds is found, though it is not counted yet.

    It is not where nothing is stored, and where a search names the references that there are.
    """
    return statistics.average > 0 and len(bands(statistics, statistics.average)) == 1
