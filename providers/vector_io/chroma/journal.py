"""How every process learns what the others wrote, without asking for everything.

Each write of rows carries the writer's id and a number that only grows, in the metadata of every
row; and, in the same request and thus in the same step, one more row, the *marker*, whose id names
both. So the markers and the number of rows are a version of the collection:

* a marker that a reader has not seen says whose rows are new, and from which number on;
* rows are never lost to a reader that has them all, so that an equal number of rows means that none
  was deleted. Where it differs, the ids tell which.

A writer deletes its older markers once a newer one is acknowledged, and only those that were: what
it does not know to be written may still arrive, and then has to be seen.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from corral.api.chunks import MAX_ID_LENGTH
from corral.providers.vector_io.chroma.engine import Collection, Upsert

KEPT_MARKERS = 16
"""Markers of one writer that may lie in a collection; few, since a search can meet them."""
RETIRED_SECONDS = 30 * 86_400
"""Age at which anyone may delete a marker; mirrors that have not followed for half of it start
anew, so that clocks may differ by days."""

_MARK: dict[str, str | int] = {"marker": "corral"}


@dataclass(frozen=True, slots=True)
class Head:
    """A version of a collection: its markers' ids, and how many chunks it holds."""

    markers: frozenset[str]
    count: int

    def dump(self) -> str:
        """Return it as text; equal heads have equal texts."""
        return json.dumps([self.count, *sorted(self.markers)])

    @classmethod
    def load(cls, text: str) -> Head:
        """Return what `dump` made a text of."""
        count, *markers = json.loads(text)
        return cls(frozenset(markers), count)


def read_head(collection: Collection) -> Head:
    """Return the version of a collection. The markers come first: what they tell of is counted."""
    markers = frozenset(collection.get(where=_MARK).ids)
    return Head(markers, collection.count() - len(markers))


def is_marker(row_id: str) -> bool:
    """Say whether a row is a marker: its id is longer than a chunk's may be."""
    return len(row_id) > MAX_ID_LENGTH


def written_since(collection: Collection, seen: Iterable[str], head: Head) -> Iterator[list[str]]:
    """Yield the ids of rows that were written after what a reader has seen.

    Args:
        collection: Where to look.
        seen: The markers that the reader knew.
        head: The version that it wants to reach.
    """
    seen = frozenset(seen)
    reached = _last_of_each(seen)
    for writer, last in sorted(_last_of_each(head.markers - seen).items()):
        if last > reached.get(writer, 0):
            yield _written(collection, writer, {"$gt": reached.get(writer, 0)})
    for writer, number in sorted(map(_parse, head.markers - seen)):
        if number < reached.get(writer, 0):  # it arrived late, after a timeout
            yield _written(collection, writer, {"$eq": number})


def _written(collection: Collection, writer: str, numbers: dict[str, int]) -> list[str]:
    where = {"$and": [{"writer": writer}, {"number": numbers}]}
    return [row_id for row_id in collection.get(where=where).ids if not is_marker(row_id)]


def _last_of_each(markers: Iterable[str]) -> dict[str, int]:
    """Return the largest number of each writer."""
    last: dict[str, int] = {}
    for writer, number in map(_parse, markers):
        last[writer] = max(number, last.get(writer, 0))
    return last


class Writer:
    """Writes rows with their markers. Not safe to use from several threads at once.

    Args:
        collection: Where to.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._id = uuid.uuid4().hex
        self._number = 0
        self._acknowledged: list[str] = []

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one request, one fewer than the collection's `batch_rows` at most."""
        self._number = max(self._number + 1, time.time_ns())
        stamp: dict[str, str | int] = {"writer": self._id, "number": self._number}
        marker = f"corral:{self._id}:{self._number}:".ljust(MAX_ID_LENGTH + 45, ".")
        direction = np.zeros((1, rows.embeddings.shape[1]), dtype=np.float32)
        direction[0, 0] = 1.0  # not zero, which has no cosine
        self._collection.upsert(
            Upsert(
                [*rows.ids, marker],
                [*({**metadata, **stamp} for metadata in rows.metadatas), {**_MARK, **stamp}],
                np.concatenate([rows.embeddings, direction]),
            )
        )
        self._acknowledged.append(marker)
        if len(self._acknowledged) > KEPT_MARKERS:
            self._retire()

    def _retire(self) -> None:
        """Delete this writer's markers but the last, and all that are old enough."""
        *mine, last = self._acknowledged
        oldest = time.time_ns() - RETIRED_SECONDS * 10**9
        markers = self._collection.get(where=_MARK).ids
        old = [marker for marker in markers if _parse(marker)[1] < oldest]
        self._collection.delete([*mine, *old])
        self._acknowledged = [last]


def _parse(marker: str) -> tuple[str, int]:
    _, writer, number, _ = marker.split(":")
    return writer, int(number)
