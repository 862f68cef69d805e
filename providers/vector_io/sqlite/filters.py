"""Filters as sets of rows, read from the index of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import apsw
import numpy as np

from corral.api.filters import Comparison, Filter, Scalar, elements
from corral.providers.vector_io.rows import RowSet

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


def passing(connection: apsw.Connection, filter_: Filter | None) -> RowSet | None:
    """Return the rows that pass the filter, None where all do."""
    if filter_ is None:
        return None
    if isinstance(filter_, Comparison):
        return _compare(connection, filter_)
    parts = [passing(connection, part) for part in filter_.filters]
    result = parts[0]
    for part in parts[1:]:
        if result is not None and part is not None:
            result = result & part if filter_.type == "and" else result | part
    return result


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
