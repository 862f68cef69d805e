"""Pages of chunk ids in order, for engines that cannot give them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

MOST_IDS = 100_000
"""Most ids held for the pages to come, 10 MB or so; no page is larger (`chunk_ids`)."""


class Reading:
    """The first `MOST_IDS` ids after one, of those that it is given in any order.

    Args:
        after: Only ids that follow it count.
        state: What the engine and this process had written when the reading began.
    """

    def __init__(self, after: str, state: Hashable) -> None:
        self.state = state
        self._after = after
        self._ids: list[str] = []

    def add(self, ids: Iterable[str]) -> None:
        """Take in some of the engine's ids."""
        self._ids += (one for one in ids if one > self._after)
        if len(self._ids) > 2 * MOST_IDS:
            self.first()

    def first(self) -> list[str]:
        """Return the first of them, in order."""
        self._ids.sort()
        del self._ids[MOST_IDS:]
        return self._ids


class IdPages:
    """Holds what follows a page for the next one, so that not every page reads all ids.

    To go through n chunks reads all of them n / `MOST_IDS` times, however small the pages. Only who
    goes on where the last page ended is served from what is held, and only while nobody has
    written: this process says so by `forget`, and other processes' writes show in `version`, any
    value that each of them changes. Safe to use from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: list[str] = []
        self._last: str | None = None  # of the page given last
        self._state: Hashable = None
        self._is_end = False
        self._writes = 0

    def following(self, after: str, limit: int, version: Hashable = None) -> list[str] | None:
        """Return the page that follows the one given last; None where all ids must be read."""
        with self._lock:
            is_next = after == self._last and self._state == (version, self._writes)
            if not is_next or (len(self._ahead) < limit and not self._is_end):
                return None
            return self._cut(limit)

    def reading(self, after: str, version: Hashable = None) -> Reading:
        """Return what takes in all ids; the version is that of before they are read."""
        return Reading(after, (version, self._writes))

    def page(self, reading: Reading, limit: int) -> list[str]:
        """Return the first page of a reading that is done, and hold the rest."""
        ids = reading.first()
        with self._lock:
            self._ahead, self._is_end = ids, len(ids) < MOST_IDS
            self._state = reading.state
            return self._cut(limit)

    def forget(self) -> None:
        """Drop what is held: this process has written."""
        with self._lock:
            self._writes += 1
            self._ahead, self._last, self._state = [], None, None

    def _cut(self, limit: int) -> list[str]:
        page, self._ahead = self._ahead[:limit], self._ahead[limit:]
        self._last = page[-1] if len(page) == limit else None
        return page
