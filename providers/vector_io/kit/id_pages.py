"""Ordered pages of chunk ids, for engines that cannot return ids in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from heapq import nsmallest

MAX_IDS = 100_000
"""Maximum ids cached for the next pages, about 10 MB; also the largest page of `chunk_ids`."""


class IdPages:
    """Caches the ids after a page for the next page, so that not every page reads all ids.

    Listing n chunks reads all ids n / `MAX_IDS` times, however small the pages. The cache serves
    only a caller that continues where the last page ended, and only until a write: writers in this
    process call `forget`, and writes of other processes change `version`. Safe to use from threads.

    Args:
        most: Maximum number of ids in the cache, and of a page.
    """

    def __init__(self, most: int = MAX_IDS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: tuple[Hashable, list[str], bool] = (None, [], False)
        self._writes = 0

    def page(
        self, after: str, limit: int, version: Hashable, read: Callable[[], Iterable[str]]
    ) -> list[str]:
        """Return the first ids that follow an id, ascending.

        Args:
            after: The last id of the previous page; "" starts at the first id.
            limit: Maximum number of ids, 1 to `MAX_IDS`.
            version: A version of the data, read before the ids; every write changes it.
            read: Returns all ids, in any order.
        """
        writes = self._writes
        with self._lock:
            state, ids, is_end = self._held
        if state != (version, writes, after) or (len(ids) < limit and not is_end):
            ids = nsmallest(self._most, (one for one in read() if one > after))
            is_end = len(ids) < self._most
        page = ids[:limit]
        if len(page) == limit:
            with self._lock:
                self._held = (version, writes, page[-1]), ids[limit:], is_end
        return page

    def forget(self) -> None:
        """Clear the cache after a write of this process."""
        with self._lock:
            self._writes += 1
            self._held = None, [], False
