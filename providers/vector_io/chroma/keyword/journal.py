"""The journal: how every process learns what the others wrote, without reading everything.

Each write of rows carries the writer's id and a number that only grows, in the metadata of every
row; and, in the same request and thus in the same step, one more row, the *marker*, whose id names
both. So the markers and the number of rows are a version of the collection:

* a marker that a reader has not seen says whose rows are new, and from which number on;
* rows are never lost to a reader that has them all, so that an equal number of rows means that none
  was deleted. Where it differs, the ids tell which.

A writer deletes its older markers once a newer one is acknowledged, and only those that were: what
it does not know to be written may still arrive, and must then be seen.

A writer that ends folds all markers, its own and those of others, into one row, the *ledger*; who
opens a collection with many does the same. A ledger lists the markers that it replaces, and a
reader treats them as if they were there. It is written before they are deleted: a kill, or two
processes at once, leave too many and never too few.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from corral.api.wire import MAX_ID_LENGTH
from corral.providers.vector_io.chroma.client import Collection, UnknownIds, repeated
from corral.providers.vector_io.chroma.records import (
    Rows,
    Upsert,
    batches,
    is_marker,
    own_metadatas,
)
from corral.providers.vector_io.kit.undo import undone_on_failure

MOST_MARKERS = 16
"""Markers of one writer that may lie in a collection; few, since a search can meet them."""
RETIRED_SECONDS = 30 * 86_400
"""Age at which anyone may delete a marker; mirrors that have not followed for half of it start
anew, so that clocks may differ by days."""

_MARK: dict[str, str | int] = {"marker": "corral"}
_LEDGER = "ledger"


_Mark = tuple[str, int]
"""A marker: its writer and its number."""


@dataclass(frozen=True, slots=True)
class Head:
    """A version of a collection: the ids of its markers and ledgers, and how many chunks it holds.

    Attributes:
        folded: The markers that the ledgers replace; it follows from their ids.
    """

    markers: frozenset[str]
    count: int
    folded: frozenset[_Mark] = field(default=frozenset(), compare=False)

    def dump(self) -> str:
        """Return it as text."""
        return json.dumps([self.count, *sorted(self.markers), *sorted(self.folded)])

    @classmethod
    def load(cls, text: str) -> Head:
        """Return the value that `dump` wrote as text."""
        count, *rest = json.loads(text)
        markers = frozenset(one for one in rest if isinstance(one, str))
        folded = frozenset((one[0], one[1]) for one in rest if isinstance(one, list))
        return cls(markers, count, folded)

    def marks(self) -> frozenset[_Mark]:
        """Return all markers, those that ledgers replace too."""
        return self.folded.union(_parse(one) for one in self.markers if not _is_ledger(one))


def read_head(collection: Collection) -> Head:
    """Return the version of a collection, ledgers unread.

    The markers come first: what they tell of is counted.
    """
    markers = frozenset(collection.get(where=_MARK).ids)
    return Head(markers, collection.count() - len(markers))


def read_news(collection: Collection, known: Head, head: Head | None = None) -> Head:
    """Return the version of a collection, with its ledgers read unless all are known.

    Args:
        known: The version that the reader knows.
        head: What `read_head` has just returned, to spare its requests.

    Raises:
        UnknownIds: Ledgers were folded while they were read, each time.
    """
    heads = [head] if head else []

    def attempt() -> Head:
        return _with_ledgers(collection, known, heads.pop() if heads else read_head(collection))

    return repeated(attempt)


def _with_ledgers(collection: Collection, known: Head, head: Head) -> Head:
    ledgers = [one for one in head.markers if _is_ledger(one)]
    if known.markers.issuperset(ledgers):
        return replace(head, folded=known.folded)
    found = collection.get(ledgers, include=("metadatas",))
    if len(found.ids) < len(ledgers):
        raise UnknownIds("A ledger is gone.")
    return replace(head, folded=_folded(found))


def written_since(collection: Collection, seen: Head, head: Head) -> Iterator[list[str]]:
    """Yield the ids of rows that were written after what a reader has seen.

    Args:
        seen: The version that the reader knows.
        head: The version that it wants to reach, of `read_news`.
    """
    reached, news = _last_of_each(seen.marks()), head.marks() - seen.marks()
    for writer, last in sorted(_last_of_each(news).items()):
        if last > reached.get(writer, 0):
            yield _written(collection, writer, {"$gt": reached.get(writer, 0)})
    for writer, number in sorted(news):
        if number < reached.get(writer, 0):  # it arrived late, after a timeout
            yield _written(collection, writer, {"$eq": number})


def _written(collection: Collection, writer: str, numbers: dict[str, int]) -> list[str]:
    where = {"$and": [{"writer": writer}, {"number": numbers}]}
    return [row_id for row_id in collection.get(where=where).ids if not is_marker(row_id)]


def _last_of_each(marks: Iterable[_Mark]) -> dict[str, int]:
    """Return the largest number of each writer."""
    last: dict[str, int] = {}
    for writer, number in marks:
        last[writer] = max(number, last.get(writer, 0))
    return last


def fold(collection: Collection, most: int, own: str = "", needed: Container[int] = ()) -> None:
    """Replace all markers and ledgers by one ledger, if there are more than so many.

    Args:
        most: Maximum number of markers to leave.
        own: The caller's writer.
        needed: Those of its numbers that a reader may still need.
    """
    if len(collection.get(where=_MARK).ids) <= most:
        return
    found = repeated(partial(collection.get, where=_MARK, include=("metadatas", "embeddings")))
    if found.embeddings is None or not found.ids:
        return
    oldest = time.time_ns() - RETIRED_SECONDS * 10**9
    marks = _folded(found) | {_parse(one) for one in found.ids if not _is_ledger(one)}
    listed = [(w, n) for w, n in sorted(marks) if n >= oldest and (w != own or n in needed)]
    ledger = _row_id(uuid.uuid4().hex, time.time_ns(), _LEDGER)
    metadata = {**_MARK, "folded": json.dumps(listed, separators=(",", ":"))}
    collection.upsert(Upsert([ledger], [metadata], _place(found.embeddings)))
    collection.delete(found.ids)


def _folded(found: Rows) -> frozenset[_Mark]:
    """Return the markers that the ledgers among some rows replace."""
    texts = [one["folded"] for one in found.metadatas if "folded" in one]
    return frozenset((writer, number) for text in texts for writer, number in json.loads(text))


def _place(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a marker's or ledger's embedding, shape (1, dimension): as long as the longest here.

    Near the origin it would be closer to each row than rows are to each other under L2, and take
    the edges of Chroma's graph that lead from row to row. Not zero, which has no cosine.
    """
    squares = np.einsum("ij,ij->i", embeddings, embeddings, dtype=np.float64)
    place = np.zeros((1, embeddings.shape[1]), dtype=np.float32)
    place[0, 0] = min(float(np.sqrt(squares.max())), float(np.finfo(np.float32).max)) or 1.0
    return place


class Writer:
    """Writes rows with their markers. Not safe to use from several threads at once."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._id = uuid.uuid4().hex
        self._number = 0
        self._acknowledged: list[str] = []
        self._unsure: set[int] = set()  # of writes that failed, and may have been carried out

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one request, at most one fewer than the collection's `batch_rows`."""
        self._number = max(self._number + 1, time.time_ns())
        stamp: dict[str, str | int] = {"writer": self._id, "number": self._number}
        marker = _row_id(self._id, self._number)
        self._unsure.add(self._number)
        self._collection.upsert(
            Upsert(
                [*rows.ids, marker],
                [*({**metadata, **stamp} for metadata in rows.metadatas), {**_MARK, **stamp}],
                np.concatenate([rows.embeddings, _place(rows.embeddings)]),
            )
        )
        self._unsure.discard(self._number)
        self._acknowledged.append(marker)
        if len(self._acknowledged) > MOST_MARKERS:
            self._retire()

    def replace(self, new: Upsert | None, stale: Sequence[str]) -> None:
        """Write new rows and then delete stale ones; a write that fails is undone.

        Chroma has no transactions over several requests. One request is one step; only what takes
        several can be left half done, by a kill or a server that goes away for good. A delete that
        fails leaves two versions side by side, until the documents are sent again.
        """
        if new is not None:
            self._write(new)
        self._collection.delete_all(stale)

    def _write(self, new: Upsert) -> None:
        """Write rows, all or, as far as Chroma answers, none."""
        parts = self._parts(new)
        if len(parts) == 1:
            self.upsert(parts[0])
            return
        before = list(self._collection.read(new.ids, ("metadatas", "embeddings")))
        old = {row_id for rows in before for row_id in rows.ids}
        put_back = [
            partial(self.upsert, part)
            for rows in before
            if rows.ids and rows.embeddings is not None
            for part in self._parts(
                Upsert(rows.ids, own_metadatas(rows.metadatas), rows.embeddings)
            )
        ]
        added = [row_id for row_id in new.ids if row_id not in old]
        with undone_on_failure(put_back, partial(self._collection.delete_all, added)):
            for part in parts:
                self.upsert(part)

    def _parts(self, rows: Upsert) -> list[Upsert]:
        """Cut rows into requests, each with room for a marker."""
        return list(batches(rows, self._collection.batch_rows - 1, self._collection.batch_bytes))

    def close(self) -> None:
        """Fold the markers, if one is this writer's."""
        if self._acknowledged or self._unsure:
            last = {_parse(one)[1] for one in self._acknowledged[-1:]}
            fold(self._collection, 1, self._id, last | self._unsure)

    def _retire(self) -> None:
        """Delete this writer's markers but the last, and all that are old enough."""
        *mine, last = self._acknowledged
        oldest = time.time_ns() - RETIRED_SECONDS * 10**9
        markers = self._collection.get(where=_MARK).ids
        old = [marker for marker in markers if _parse(marker)[1] < oldest]
        self._collection.delete([*mine, *old])
        self._acknowledged = [last]


def _row_id(writer: str, number: int, kind: str = "") -> str:
    return f"corral:{writer}:{number}:{kind}".ljust(MAX_ID_LENGTH + 45, ".")


def _is_ledger(row_id: str) -> bool:
    return row_id.split(":")[3].startswith(_LEDGER)


def _parse(marker: str) -> _Mark:
    _, writer, number, _ = marker.split(":")
    return writer, int(number)
