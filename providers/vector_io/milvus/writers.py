"""How processes that share a collection learn of each other's writes: a row for each writer.

The row counts the process's writes and goes into the request of each of them. Whoever finds other
rows than before counts anew. An embedded Milvus, which one process uses, has none.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from corral.providers.vector_io.milvus.engine import MOST_ROWS
from corral.providers.vector_io.milvus.rows import Row, RowMaker
from corral.providers.vector_io.milvus.schema import Kind

IDLE_SECONDS = 3600
"""After which a process that writes again takes a new row: the old one may go at any moment."""
ENDED_SECONDS = 7 * 86_400
"""Age at which a row is one that nobody writes any more; so much longer, since clocks differ."""

_PAST = "past-"


class Writers:
    """The rows of the processes that write to one collection. One write at a time is the caller's.

    Args:
        call: Calls a method of the client on the collection.
        maker: Makes its rows.
    """

    def __init__(self, call: Callable[..., Any], maker: RowMaker) -> None:
        self._call, self._maker = call, maker
        self._own = ""
        self._written = 0
        self._wrote_at = 0.0

    def others(self) -> dict[str, str]:
        """Return how often each other process has written, as text, by its row's key."""
        return {pk: payload for pk, payload in self._all().items() if pk != self._own}

    def announcement(self) -> Row:
        """Return the row that tells other processes of one more write."""
        now = time.time()
        if now - self._wrote_at > IDLE_SECONDS:
            self._own = f"writer-{uuid.uuid4().hex}"
        self._wrote_at = now
        self._written += 1
        return self._maker.blank(self._own, Kind.WRITER, f"{self._written} {now:.0f}")

    def fold(self) -> None:
        """Put one row in the place of those of processes that ended without doing so."""
        ended = self._ended()
        if len(ended) > 1:
            self._replace(ended)

    def close(self) -> None:
        """Put one row in the place of this process's own, which has ended, and of such others."""
        if self._own:
            self._replace([self._own, *self._ended()])
            self._own = ""

    def _replace(self, ended: list[str]) -> None:
        """Put a row in the place of others. Its key is new, so that who compares sees a change.

        It comes before the others go: a kill, or two processes at once, leave too many rows and
        never too few.
        """
        key = f"{_PAST}{uuid.uuid4().hex}"
        row = self._maker.blank(key, Kind.WRITER, f"0 {time.time():.0f}")
        self._call("upsert", data=[row])
        self._call("delete", ids=ended)

    def _ended(self) -> list[str]:
        """Return the keys of rows that no other process writes any more."""
        oldest = time.time() - ENDED_SECONDS
        return [
            pk
            for pk, payload in self.others().items()
            if pk.startswith(_PAST) or _written_at(payload) < oldest
        ]

    def _all(self) -> dict[str, str]:
        found = self._call(
            "query",
            filter=f"kind == {Kind.WRITER:d}",
            output_fields=["pk", "payload"],
            limit=MOST_ROWS,
        )
        return {row["pk"]: row["payload"] for row in found}


def _written_at(payload: str) -> float:
    """Return when a row was written; 0 where an earlier version of Corral did not say."""
    _, _, seconds = payload.partition(" ")
    return float(seconds or 0)
