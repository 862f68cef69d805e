"""A cache of FTS5 postings in memory, updated incrementally from the file.

For each term, the cache has the rows that contain it and, for each row, the number of a pair
(frequency of the term, length of the chunk): 5 or 6 bytes per posting. There are few distinct
pairs, and BM25 depends on nothing else in a chunk. So when a write changes the average length, only
the weights of the pairs are recomputed; they equal BM25's to the last bit. After a write, a term's
new postings are those in rows above its last read row; postings of deleted rows are removed. New
postings are read from FTS5 when a query next contains the term.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.providers.text.bm25 import term_weight
from corral.providers.vector_io.store.changes import (
    StaleRead,
    State,
    deleted_after,
    read_state,
)

_BATCH = 8192
_READERS = 64
_OCCURRENCES = (  # https://www.sqlite.org/fts5.html#the_fts5vocab_virtual_table_module
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.occurrences USING fts5vocab(main, lexical, instance)"
)
_READ = np.dtype([("row", np.int64), ("frequency", np.float64)])
_OVERHEAD = 200  # approximate size of a posting's objects and key, in bytes


def term_frequency(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
    """Return the sum over the columns of weight times count, for a query of one term.

    An auxiliary function of FTS5 (https://www.sqlite.org/fts5.html#custom_auxiliary_functions): it
    runs per row, so unlike `bm25()` it neither reads the row's length nor counts all rows first.
    """
    columns = api.phrase_locations(0)
    counted = zip(weights, columns, strict=True)
    return float(sum(weight * len(found) for weight, found in counted))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of the file for reading and weighting postings.

    Attributes:
        lengths: By row number, the number of a chunk's terms plus one; 0 if there is no chunk.
        total: Number of terms of all chunks.
    """

    state: State
    lengths: NDArray[np.int32]
    total: int


@dataclass(frozen=True, slots=True)
class Posting:
    """The rows that contain a term, ascending, and the number of each row's shape.

    Attributes:
        rows, shapes: Integers, shape (n,).
        last_row, deletion: The state of the file at which the posting was read.
    """

    rows: NDArray[np.integer]
    shapes: NDArray[np.integer]
    last_row: int
    deletion: int

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return self.rows.nbytes + self.shapes.nbytes + _OVERHEAD


_NOTHING = Posting(np.empty(0, np.uint32), np.empty(0, np.uint8), 0, 0)


class CachedPostings:
    """An LRU cache of postings by term. Safe to use from many threads.

    Args:
        weights: Weights of FTS5's columns. The first half of the columns has the words, and their
            number is a chunk's length; a chunk without words has the length of the other half.
        most_bytes: Maximum memory for postings. Lengths take 4 more bytes per row.
    """

    def __init__(self, weights: Sequence[float], most_bytes: int) -> None:
        columns = ", ".join(map(repr, weights))
        self._query = (
            f"SELECT rowid, term_frequency(lexical, {columns}) FROM lexical"  # noqa: S608 - weights are floats
            " WHERE lexical MATCH ? AND rowid > ?"
        )
        self._weights = weights
        self._most = most_bytes
        self._lock = threading.Lock()
        # The first read of a common word takes long, so one thread does it for all waiting threads.
        self._reading = [threading.Lock() for _ in range(_READERS)]
        self._shapes = _Shapes()
        self.forget()

    def forget(self) -> None:
        """Release the memory, and read the file again at the next query."""
        with self._lock:
            self._held = 0
            self._terms: OrderedDict[str, Posting] = OrderedDict()
            self._now = Snapshot(State(), np.zeros(1, np.int32), 0)
            self._total = 0

    def follow(self, connection: apsw.Connection) -> Snapshot:
        """Return the snapshot of a connection's transaction.

        Raises:
            StaleRead: Another transaction has seen a newer state.
        """
        state = read_state(connection)
        with self._lock:
            if state.version < self._now.state.version:
                raise StaleRead
            if state.version > self._now.state.version:
                lengths = self._catch_up(connection, self._now, state)
                self._now = Snapshot(state, lengths, self._total)
            return self._now

    def _catch_up(
        self, connection: apsw.Connection, known: Snapshot, state: State
    ) -> NDArray[np.int32]:
        lengths = known.lengths
        if known.state.version >= 0 and state.deletion != known.state.deletion:
            lengths = lengths.copy()  # snapshots keep the old one
            gone = np.unique(deleted_after(connection, known.state.deletion)[1])
            gone = gone[gone <= known.state.last_row]
            gone = gone[lengths[gone] > 0]
            self._total -= int(lengths[gone].sum()) - len(gone)
            lengths[gone] = 0
        if state.last_row >= len(lengths):
            old, lengths = lengths, np.zeros(state.last_row * 5 // 4 + 1024, np.int32)
            lengths[: known.state.last_row + 1] = old[: known.state.last_row + 1]
        query = "SELECT id, sz FROM lexical_docsize WHERE id > ?"
        cursor = connection.execute(query, (known.state.last_row,))
        while batch := list(islice(cursor, _BATCH)):
            rows, sizes = zip(*batch, strict=True)
            columns = _varints(sizes).reshape(len(rows), len(self._weights))
            found = columns[:, : len(self._weights) // 2].sum(axis=1)
            found = np.where(found, found, columns.sum(axis=1))
            lengths[np.array(rows)] = found + 1
            self._total += int(found.sum())
        return lengths

    def posting(self, connection: apsw.Connection, snapshot: Snapshot, term: str) -> Posting:
        """Return a term's posting in a snapshot from `follow`, in the same transaction."""
        held = self._of(term)
        if _is_of(held, snapshot.state):
            return held
        with self._reading[hash(term) % _READERS]:
            held = self._of(term)
            if not _is_of(held, snapshot.state):
                held = self._extended(connection, snapshot, term, held)
                self._put(term, held)
        return held

    def _of(self, term: str) -> Posting:
        with self._lock:
            held = self._terms.get(term, _NOTHING)
            if term in self._terms:
                self._terms.move_to_end(term)
        return held

    def weights(self, average: float) -> NDArray[np.float64]:
        """Return the saturated weight (`bm25.term_weight`) of each shape read so far."""
        with self._lock:
            return self._shapes.weights(average)

    def _extended(
        self, connection: apsw.Connection, snapshot: Snapshot, term: str, held: Posting
    ) -> Posting:
        """Return a posting updated to another state."""
        state = snapshot.state
        if held.last_row > state.last_row or held.deletion > state.deletion:
            held = _NOTHING  # another transaction has seen a newer state
        rows, shapes = held.rows, held.shapes
        if held.deletion != state.deletion and len(rows):
            alive = snapshot.lengths[rows] > 0
            rows, shapes = rows[alive], shapes[alive]
        if held is _NOTHING:
            new = self._all(connection, term)
        else:
            new = np.fromiter(connection.execute(self._query, (f'"{term}"', held.last_row)), _READ)
        if len(new):
            lengths = snapshot.lengths[new["row"]] - 1
            with self._lock:
                numbers = self._shapes.numbers(new["frequency"], lengths)
            kind = np.uint32 if state.last_row < 2**32 else np.int64
            rows = np.concatenate([rows, new["row"].astype(kind)])
            shapes = np.concatenate([shapes, numbers])
        return Posting(rows, shapes, state.last_row, state.deletion)

    def _all(self, connection: apsw.Connection, term: str) -> NDArray[Any]:
        """Return all rows of a term with its frequencies, like `_query`.

        SQLite concatenates the occurrences without the interpreter's lock; a call per row would
        take up to three times as long and block other threads.
        """
        connection.execute(_OCCURRENCES)
        occurrences: Any = connection.execute(
            "SELECT group_concat(doc), group_concat(substr(col, 2)) FROM temp.occurrences"
            " WHERE term = ?",
            (term,),
        ).fetchone()
        if occurrences[0] is None:
            return np.empty(0, _READ)
        every, columns = (np.fromstring(text, np.int64, sep=",") for text in occurrences)
        rows, places = np.unique(every, return_inverse=True)
        found = np.zeros(len(rows), _READ)
        found["row"] = rows
        for column, weight in enumerate(self._weights):
            counted = np.bincount(places[columns == column], minlength=len(rows))
            found["frequency"] += weight * counted
        return found

    def _put(self, term: str, posting: Posting) -> None:
        with self._lock:
            held = self._terms.get(term)
            if held is not None:
                if (held.last_row, held.deletion) > (posting.last_row, posting.deletion):
                    return
                self._held -= held.nbytes
            self._terms[term] = posting
            self._terms.move_to_end(term)
            self._held += posting.nbytes
            while self._held > self._most:
                self._held -= self._terms.popitem(last=False)[1].nbytes


def _is_of(posting: Posting, state: State) -> bool:
    return (posting.last_row, posting.deletion) == (state.last_row, state.deletion)


class _Shapes:
    """Numbers the occurring pairs (frequency, length). Not safe to use from many threads."""

    def __init__(self) -> None:
        self._numbers: dict[complex, int] = {}
        self._weights = np.empty(0)
        self._average = 0.0

    def numbers(
        self, frequencies: NDArray[np.float64], lengths: NDArray[np.int32]
    ) -> NDArray[np.integer]:
        """Return the number of each pair."""
        distinct, places = np.unique(frequencies + 1j * lengths, return_inverse=True)
        numbers = self._numbers
        found = [numbers.setdefault(pair, len(numbers)) for pair in distinct.tolist()]
        return np.array(found)[places].astype(np.min_scalar_type(len(numbers)))

    def weights(self, average: float) -> NDArray[np.float64]:
        """Return the weight of each pair if chunks have this average length.

        If the average is 0, the index has no terms, and no row needs a weight.
        """
        known = average == self._average and len(self._weights) == len(self._numbers)
        if average > 0 and not known:
            pairs = np.fromiter(self._numbers, np.complex128, len(self._numbers))
            self._weights = term_weight(pairs.real, pairs.imag, average)
            self._average = average
        return self._weights


def _varints(blobs: Sequence[bytes]) -> NDArray[np.int64]:
    """Decode the blobs of FTS5's table of sizes, one number per column.

    A number is one of SQLite's varints (https://www.sqlite.org/fileformat.html#varint): groups of 7
    bits, the highest first; the last byte's top bit is 0. Each blob has at least one number.
    """
    values = np.frombuffer(b"".join(blobs), np.uint8).astype(np.int64)
    ends = np.flatnonzero(values < 128)
    to_end = ends[np.searchsorted(ends, np.arange(len(values)))] - np.arange(len(values))
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers: NDArray[np.int64] = np.add.reduceat((values & 127) << (7 * to_end), starts)
    return numbers
