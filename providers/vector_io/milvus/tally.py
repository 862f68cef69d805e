"""The numbers that BM25 needs, kept in memory beside the collection and never trusted blindly.

They are read from all rows once, follow this process's own writes, and are read anew when another
process has written. Nothing of them is stored, so nothing stored can be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from corral.providers.ranking.sparse import Statistics
from corral.providers.vector_io.milvus.rows import Entry


class Tally:
    """Counts of the chunks of a vector DB. Not safe to use from two threads at once.

    Args:
        entries: Every chunk stored; without keys where the terms are counted elsewhere.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._lengths: Counter[int] = Counter()
        self._references: Counter[int] = Counter()
        self._holding: Counter[int] = Counter()
        for one in entries:
            self._count(one, 1)

    def change(self, *, gone: Iterable[Entry], come: Iterable[Entry]) -> None:
        """Follow a write."""
        for one in gone:
            self._count(one, -1)
        for one in come:
            self._count(one, 1)

    def statistics(self) -> Statistics:
        """Return a copy of the counts."""
        return Statistics(dict(self._lengths), dict(self._references))

    def holding(self, keys: Iterable[int]) -> list[int]:
        """Return for each key how many chunks hold it, if they are counted by key."""
        return [self._holding[key] for key in keys]

    def _count(self, one: Entry, by: int) -> None:
        _add(self._lengths, one.length, by)
        _add(self._references, one.reference, by)
        if by > 0:
            self._holding.update(one.keys)
        else:
            for key in one.keys:
                _add(self._holding, key, by)


def _add(counter: Counter[int], value: int, by: int) -> None:
    counter[value] += by
    if not counter[value]:
        del counter[value]
