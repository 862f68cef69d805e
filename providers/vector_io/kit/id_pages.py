"""Pages of chunk ids in order, for engines that cannot give them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from heapq import nsmallest

MOST_IDS = 100_000
"""Most ids held for the pages to come, 10 MB or so; no page is larger (`chunk_ids`)."""


class IdPages:
    """Holds what follows a page for the next one, so that not every page reads all ids.

    To go through n chunks reads all of them n / `MOST_IDS` times, however small the pages. Only who
    goes on where the last page ended is served from what is held, and only while nobody has
    written: this process says so by `forget`, and other processes' writes show in `version`, any
    value that each of them changes. Safe to use from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, list[str], bool] = (None, [], False)
        self._writes = 0

    def page(
        self, after: str, limit: int, version: Hashable, read: Callable[[], Iterable[str]]
    ) -> list[str]:
        """Return the first ids that follow one.

        Args:
            version: Of what `read` will find at least.
            read: Returns all ids, in any order.
        """
        writes = self._writes
        with self._lock:
            state, ids, is_end = self._held
        if state != (version, writes, after) or (len(ids) < limit and not is_end):
            ids = nsmallest(MOST_IDS, (one for one in read() if one > after))
            is_end = len(ids) < MOST_IDS
        page = ids[:limit]
        if len(page) == limit:
            with self._lock:
                self._held = (version, writes, page[-1]), ids[limit:], is_end
        return page

    def forget(self) -> None:
        """Drop what is held: this process has written."""
        with self._lock:
            self._writes += 1
            self._held = None, [], False
