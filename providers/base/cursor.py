"""Ends of list pages, so that the next page continues even after a deleted object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

P = TypeVar("P")

MOST_PLACES = 10_000


class Places(Generic[P]):
    """Caches the sort positions of the latest page ends in memory.

    A client that deletes the objects it lists requests the page after a deleted object.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[Hashable, P] = OrderedDict()

    def keep(self, name: Hashable, place: P) -> None:
        """Cache a position under a name, which must include the owner who may see it."""
        self._places[name] = place
        self._places.move_to_end(name)
        if len(self._places) > MOST_PLACES:
            self._places.popitem(last=False)

    def find(self, name: Hashable) -> P | None:
        """Return a cached position, or None."""
        return self._places.get(name)
