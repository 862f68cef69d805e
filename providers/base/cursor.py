"""Where the pages of a list ended: the next one follows on, also from what was deleted since."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

P = TypeVar("P")

MOST_PLACES = 10_000


class Places(Generic[P]):
    """Remembers the places of the latest page ends, as long as the process lives.

    A client that deletes what it lists asks for what follows an object that it has deleted.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[Hashable, P] = OrderedDict()

    def keep(self, name: Hashable, place: P) -> None:
        """Remember a place under a name, which holds who may see it."""
        self._places[name] = place
        self._places.move_to_end(name)
        if len(self._places) > MOST_PLACES:
            self._places.popitem(last=False)

    def find(self, name: Hashable) -> P | None:
        """Return a place that was kept, None for none."""
        return self._places.get(name)
