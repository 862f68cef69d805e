"""Split items into batches of limited number and size, for requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def runs(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, at most `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


def batches(
    items: Iterable[T], bytes_of: Callable[[T], int], max_items: int, max_bytes: int
) -> Iterator[list[T]]:
    """Yield the items in order, in batches within both limits; a larger item gets its own batch."""
    batch: list[T] = []
    size = 0
    for item in items:
        more = bytes_of(item)
        if batch and (len(batch) == max_items or size + more > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch
