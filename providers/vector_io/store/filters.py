"""Filters as sets of rows, read from a chunk file's index of attributes.

A cached filter is updated by reading only the new rows that pass and the deleted rows.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import apsw
import numpy as np

from corral.api.filters import Comparison, Filter, Scalar, elements
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import State, deleted_after, read_state

CACHED_FILTERS = 16
"""Maximum number of cached filters; 8 bytes per row."""

# SQLite orders numbers before texts before blobs, so '' bounds numbers from above and texts from
# below, and x'' bounds texts from above.
_RANGES = {
    ("gt", True): "value > ? AND value < ''",
    ("gte", True): "value >= ? AND value < ''",
    ("lt", True): "value < ?",
    ("lte", True): "value <= ?",
    ("gt", False): "value > ? AND value < x''",
    ("gte", False): "value >= ? AND value < x''",
    ("lt", False): "value < ? AND value >= ''",
    ("lte", False): "value <= ? AND value >= ''",
}


class FilterCache:
    """Caches the rows that pass recent filters, for both legs and the next queries."""

    def __init__(self) -> None:
        self._passing: OrderedDict[str, tuple[State, RowSet]] = OrderedDict()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Release the memory."""
        with self._lock:
            self._passing.clear()

    def passing(self, connection: apsw.Connection, filter_: Filter | None) -> RowSet | None:
        """Return the rows that pass the filter, or None without a filter.

        Args:
            connection: In a read transaction.
        """
        if filter_ is None:
            return None
        now = read_state(connection)
        key = repr(filter_)  # not the filter: to Python, 1 equals True
        with self._lock:  # held while reading, because the other leg needs the same rows
            known, rows = self._passing.get(key, (State(), None))
            if known.version > now.version:
                return _read(connection, filter_, 0)
            if known.version < now.version:
                rows = _followed(connection, filter_, known, rows)
                self._passing[key] = now, rows
                if len(self._passing) > CACHED_FILTERS:
                    self._passing.popitem(last=False)
            self._passing.move_to_end(key)
            return rows


def _followed(
    connection: apsw.Connection, filter_: Filter, known: State, old: RowSet | None
) -> RowSet:
    """Return the rows that pass, given those that passed in an earlier state."""
    if old is None:
        return _read(connection, filter_, 0)
    new = _read(connection, filter_, known.last_row)
    _, gone = deleted_after(connection, known.deletion)
    rows = old.rows
    if len(gone):
        rows = rows[~RowSet(np.unique(gone)).mask(rows)]
    return RowSet(np.concatenate([rows, new.rows]), old.negated)


def _read(connection: apsw.Connection, filter_: Filter, after_row: int) -> RowSet:
    """Return the passing rows above a row; a negated set excludes only such rows too."""
    if isinstance(filter_, Comparison):
        return _compare(connection, filter_, after_row)
    parts = (_read(connection, part, after_row) for part in filter_.filters)
    return reduce(operator.and_ if filter_.type == "and" else operator.or_, parts)


def attributes(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | float | int | bytes]]:
    """Yield the (key, value) pairs by which filters find a chunk; a pair may appear twice."""
    for key, value in metadata.items():
        for element in elements(value):
            yield key, _stored(element)


def _compare(connection: apsw.Connection, comparison: Comparison, after_row: int) -> RowSet:
    if comparison.type in ("eq", "ne", "in", "nin"):
        marks = ", ".join("?" for _ in comparison.values)
        condition, operands = f"value IN ({marks})", [_stored(v) for v in comparison.values]
    else:
        value = comparison.values[0]
        condition, operands = _RANGES[comparison.type, not isinstance(value, str)], [_stored(value)]
    query = f"SELECT row FROM attributes WHERE {condition} AND key = ? AND row > ?"  # noqa: S608 - `condition` has only marks
    bound = (*operands, comparison.key, after_row)
    found = np.fromiter((row for (row,) in connection.execute(query, bound)), dtype=np.int64)
    return RowSet(np.unique(found), negated=comparison.type in ("ne", "nin"))


def _stored(value: Scalar) -> str | float | int | bytes:
    return bytes([value]) if isinstance(value, bool) else value
