"""A stopwatch, and figures with their bounds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np


class Stopwatch:
    """Collects durations in seconds.

    Args:
        warm_up: Number of first measurements to discard.
    """

    def __init__(self, warm_up: int = 0) -> None:
        self.seconds: list[float] = []
        self._warm_up = warm_up

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the duration of a block."""
        start = time.perf_counter()
        yield
        spent = time.perf_counter() - start
        if self._warm_up:
            self._warm_up -= 1
        else:
            self.seconds.append(spent)

    async def call(self, work: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
        """Measure a call, and return its result."""
        with self.running():
            return await work(*given, **named)

    def ms(self, share: float = 0.5) -> float:
        """Return a percentile in milliseconds; by default the median."""
        return float(np.quantile(self.seconds, share)) * 1000


@dataclass(frozen=True, slots=True)
class Bound:
    """A measured figure and its bound."""

    what: str
    figure: str
    bound: str
    holds: bool

    @classmethod
    def ratio(cls, what: str, ours: float, theirs: float, most: float) -> Bound:
        """Return the ratio of two times in milliseconds with its bound."""
        figure = f"{ours:.2f} ms against {theirs:.2f} ms: {ours / theirs:.2f}x"
        return cls(what, figure, f"<= {most:g}x", ours / theirs <= most)


async def clocked(
    work: Callable[..., Awaitable[Any]], *given: Any, **named: Any
) -> tuple[float, Any]:
    """Return the duration of a call in seconds, and its result."""
    watch = Stopwatch()
    result = await watch.call(work, *given, **named)
    return watch.seconds[0], result
