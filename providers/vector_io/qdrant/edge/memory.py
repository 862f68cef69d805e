"""Fields of points that stay in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from uuid import UUID

import qdrant_edge as qdrant

from corral.providers.vector_io.qdrant.edge import client
from corral.providers.vector_io.qdrant.records import Json


class Memory:
    """Some fields of the points read latest, each until it is written again.

    The engine takes ten times longer to hand a payload over than to find its point.

    Args:
        fields: Which; they are read together.
        most: Points that are kept; the oldest make room.
        longest: Characters of the longest text that is kept.
    """

    def __init__(self, fields: Iterable[str], most: int, longest: int) -> None:
        self._fields = sorted(fields)
        self._most, self._longest = most, longest
        self._known: dict[int, Json] = {}  # the oldest first

    def has(self, fields: Iterable[str]) -> bool:
        """Return True if these are fields that it keeps."""
        return set(self._fields).issuperset(fields)

    def read(self, shard: qdrant.EdgeShard, ids: Sequence[UUID]) -> list[Json | None]:
        """Return the fields of each of these points, None for one that does not exist."""
        found = [self._known.get(one.int) for one in ids]
        if None in found:
            missing = [one for one, payload in zip(ids, found, strict=True) if payload is None]
            read = client.payloads(shard, missing, self._fields)
            found = [payload or read.get(one.int) for one, payload in zip(ids, found, strict=True)]
            self._keep({one: payload for one, payload in read.items() if self._fits(payload)})
        return found

    def forget(self, ids: Iterable[UUID]) -> None:
        """Forget points that are written or deleted."""
        for one in ids:
            self._known.pop(one.int, None)

    def clear(self) -> None:
        """Forget every point."""
        self._known.clear()

    def _fits(self, payload: Json) -> bool:
        return all(
            len(value) <= self._longest for value in payload.values() if isinstance(value, str)
        )

    def _keep(self, read: dict[int, Json]) -> None:
        known = self._known
        for oldest in list(islice(known, max(0, len(known) + len(read) - self._most))):
            del known[oldest]
        known.update(islice(read.items(), self._most))
