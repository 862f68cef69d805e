"""Filters as sets of rows, read from a chunk file's index of attributes."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import apsw
import numpy as np

from corral.api.filters import Comparison, Filter, Scalar, elements
from corral.providers.ranking.rows import RowSet
from corral.providers.vector_io._sqlite.connections import state

CACHED_FILTERS = 16
"""Filters whose rows are cached until the next write; 8 bytes a row."""

# SQLite orders numbers before texts before blobs, so '' bounds numbers from above and texts from
# below, and x'' bounds texts from above.
_RANGES = {
    ("gt", True): "value > ?1 AND value < ''",
    ("gte", True): "value >= ?1 AND value < ''",
    ("lt", True): "value < ?1",
    ("lte", True): "value <= ?1",
    ("gt", False): "value > ?1 AND value < x''",
    ("gte", False): "value >= ?1 AND value < x''",
    ("lt", False): "value < ?1 AND value >= ''",
    ("lte", False): "value <= ?1 AND value >= ''",
}


class FilterCache:
    """The rows that pass the latest filters, so that both legs and the next query share them."""

    def __init__(self) -> None:
        self._version = -1
        self._passing: dict[str, RowSet] = {}
        self._lock = threading.Lock()

    def passing(self, connection: apsw.Connection, filter_: Filter | None) -> RowSet | None:
        """Return the rows that pass the filter, or None without a filter.

        Args:
            connection: In a read transaction.
            filter_: A parsed filter.
        """
        if filter_ is None:
            return None
        version = state(connection, "version")
        with self._lock:  # held while reading: the other leg wants the same rows
            if version < self._version:
                return _read(connection, filter_)
            if version > self._version or len(self._passing) >= CACHED_FILTERS:
                self._passing.clear()
                self._version = version
            key = repr(filter_)  # not the filter: to Python, 1 equals True
            if key not in self._passing:
                self._passing[key] = _read(connection, filter_)
            return self._passing[key]


def _read(connection: apsw.Connection, filter_: Filter) -> RowSet:
    if isinstance(filter_, Comparison):
        return _compare(connection, filter_)
    parts = (_read(connection, part) for part in filter_.filters)
    return reduce(operator.and_ if filter_.type == "and" else operator.or_, parts)


def attributes(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str | float | int | bytes]]:
    """Yield the (key, value) pairs under which filters find a chunk; a pair may come twice."""
    for key, value in metadata.items():
        for element in elements(value):
            yield key, _stored(element)


def _compare(connection: apsw.Connection, comparison: Comparison) -> RowSet:
    if comparison.type in ("eq", "ne", "in", "nin"):
        marks = ", ".join("?" for _ in comparison.values)
        condition, operands = f"value IN ({marks})", [_stored(v) for v in comparison.values]
        query = f"SELECT row FROM attributes WHERE key = ? AND {condition}"  # noqa: S608 - marks
        bound = [comparison.key, *operands]
    else:
        value = comparison.values[0]
        condition = _RANGES[comparison.type, not isinstance(value, str)]
        query = f"SELECT row FROM attributes WHERE key = ?2 AND {condition}"  # noqa: S608 - table
        bound = [_stored(value), comparison.key]
    found = np.fromiter((row for (row,) in connection.execute(query, tuple(bound))), dtype=np.int64)
    return RowSet(np.unique(found), negated=comparison.type in ("ne", "nin"))


def _stored(value: Scalar) -> str | float | int | bytes:
    return bytes([value]) if isinstance(value, bool) else value
