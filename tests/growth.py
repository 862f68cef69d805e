"""How work grows with its input, for rules such as "not with the square of the length"."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def growth(work: Callable[[T], object], small: T, large: T) -> float:
    """Return how many times as long work takes on a large input as on a small one.

    The thread's own processor time, and the best of three, so that a busy machine does not count.
    """
    return _seconds(work, large) / _seconds(work, small)


def _seconds(work: Callable[[T], object], given: T) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        work(given)
        best = min(best, time.thread_time() - start)
    return best
