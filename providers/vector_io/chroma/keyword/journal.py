"""The journal: each process detects the others' writes without reading the whole collection.

Each write stores the writer's id and an increasing number in the metadata of every row. The same
request, and thus the same step, adds one more row, the *marker*, with both in its id. So the
markers and the number of rows are a version of the collection:

* a marker that is new to a reader names the writer of the new rows and their first number;
* a reader that has applied all markers has every row, so an equal number of rows means that none
  was deleted. If the numbers differ, comparing the ids shows which rows were deleted.

A writer deletes its older markers once a newer one is acknowledged, but only acknowledged ones: an
unacknowledged write may still arrive, and readers must then notice it.

When a writer closes, it folds all markers, including other writers', into one row, the *ledger*; so
does a process that opens a collection with many markers. A ledger lists the markers that it
replaces, and a reader treats these as present. It is written before they are deleted, so a killed
process, or two concurrent ones, can leave too many markers but never too few.
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
"""Maximum markers of one writer in a collection; few, because a search can return them."""
RETIRED_SECONDS = 30 * 86_400
"""Age at which any process may delete a marker. Mirrors that were not updated for half of it are
rebuilt, so clocks may differ by days."""

_MARK: dict[str, str | int] = {"marker": "corral"}
_LEDGER = "ledger"


_Mark = tuple[str, int]
"""A marker: the writer's id and its number."""


@dataclass(frozen=True, slots=True)
class Head:
    """A version of a collection: the ids of its markers and ledgers, and the number of chunks.

    Attributes:
        folded: The markers that the ledgers replace; determined by the ledgers' ids.
    """

    markers: frozenset[str]
    count: int
    folded: frozenset[_Mark] = field(default=frozenset(), compare=False)

    def dump(self) -> str:
        """Return the version as text."""
        return json.dumps([self.count, *sorted(self.markers), *sorted(self.folded)])

    @classmethod
    def load(cls, text: str) -> Head:
        """Parse the text that `dump` returns."""
        count, *rest = json.loads(text)
        markers = frozenset(one for one in rest if isinstance(one, str))
        folded = frozenset((one[0], one[1]) for one in rest if isinstance(one, list))
        return cls(markers, count, folded)

    def marks(self) -> frozenset[_Mark]:
        """Return all markers, including those that ledgers replace."""
        return self.folded.union(_parse(one) for one in self.markers if not _is_ledger(one))


def read_head(collection: Collection) -> Head:
    """Return the version of a collection without reading the ledgers.

    Markers are read before the rows are counted, so the count includes the rows they announce.
    """
    markers = frozenset(collection.get(where=_MARK).ids)
    return Head(markers, collection.count() - len(markers))


def read_news(collection: Collection, known: Head, head: Head | None = None) -> Head:
    """Return the version of a collection; read its ledgers unless the reader knows them all.

    Args:
        known: The version that the reader has applied.
        head: The result of a `read_head` just before, to save its requests.

    Raises:
        UnknownIds: Ledgers were folded during every attempt to read them.
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
    """Yield the ids of rows written after a reader's version.

    Args:
        seen: The version that the reader has applied.
        head: The version to reach, from `read_news`.
    """
    reached, news = _last_of_each(seen.marks()), head.marks() - seen.marks()
    for writer, last in sorted(_last_of_each(news).items()):
        if last > reached.get(writer, 0):
            yield _written(collection, writer, {"$gt": reached.get(writer, 0)})
    for writer, number in sorted(news):
        if number < reached.get(writer, 0):  # the write arrived late, after a timeout
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
    """Replace all markers and ledgers with one ledger, if there are more than `most`.

    Args:
        most: Maximum number of markers to leave.
        own: The caller's writer.
        needed: The writer's numbers that a reader may still need.
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
    """Return the markers that the ledgers among these rows replace."""
    texts = [one["folded"] for one in found.metadatas if "folded" in one]
    return frozenset((writer, number) for text in texts for writer, number in json.loads(text))


def _place(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the embedding of a marker or ledger, shape (1, dimension), as long as the longest row.

    Under L2, a point near the origin would be closer to each row than rows are to each other, and
    would take over the edges of Chroma's graph. It must not be zero, which has no cosine.
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
        # numbers of failed writes, which the server may have carried out
        self._unsure: set[int] = set()

    def upsert(self, rows: Upsert) -> None:
        """Write rows in one request; at most `batch_rows - 1`, to leave room for the marker."""
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

        Chroma has no transactions over several requests. Each request is atomic; only a write of
        several requests can be left half done, if the process is killed or the server never
        returns. A failed delete leaves two versions until the documents are sent again.
        """
        if new is not None:
            self._write(new)
        self._collection.delete_all(stale)

    def _write(self, new: Upsert) -> None:
        """Write all rows, or none as long as Chroma answers."""
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
        """Split rows into requests, each with room for a marker."""
        return list(batches(rows, self._collection.batch_rows - 1, self._collection.batch_bytes))

    def close(self) -> None:
        """Fold the markers if any belongs to this writer."""
        if self._acknowledged or self._unsure:
            last = {_parse(one)[1] for one in self._acknowledged[-1:]}
            fold(self._collection, 1, self._id, last | self._unsure)

    def _retire(self) -> None:
        """Delete this writer's markers except the last, and all expired markers."""
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
