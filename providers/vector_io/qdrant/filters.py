"""Filters in Qdrant's own form: JSON objects as its REST interface documents them.

eq, ne, in and nin are exact, by tokens (points.py). Orderings narrow down: what passes them is a
superset of what `corral.api.filters.matches` lets pass, equal to it but for numbers that a double
cannot hold, strings that share their first 24 bytes, and lists of strings. No filter type negates
an ordering, so that and / or of supersets are supersets, and the few wrong ones are dropped by
`matches` (index.py), which asks the engine for more in their place.
"""

from __future__ import annotations

from collections.abc import Iterator

from corral.api.filters import Comparison, Filter
from corral.providers.vector_io.qdrant.points import (
    LEVELS,
    Json,
    document_token,
    number_field,
    text_field,
    text_levels,
    value_token,
    version_token,
)

ORDERINGS = ("gt", "gte", "lt", "lte")
_EXACT = 2**53  # up to here no two integers share a double; above it, this one does
_ROUNDING = 2.0**-50  # a few units in the last place, for JSON readers that are off by one


def translate(filter_: Filter) -> Json:
    """Return a filter whose matches include all chunks that pass."""
    if isinstance(filter_, Comparison):
        return _compare(filter_)
    kind = "must" if filter_.type == "and" else "should"
    return {kind: [translate(part) for part in filter_.filters]}


def orderings(filter_: Filter | None) -> Iterator[Comparison]:
    """Yield the comparisons of a filter that order, which are not translated exactly."""
    if isinstance(filter_, Comparison):
        if filter_.type in ORDERINGS:
            yield filter_
    elif filter_ is not None:
        for part in filter_.filters:
            yield from orderings(part)


def ordered_fields(filter_: Filter | None) -> list[str]:
    """Return the payload fields whose order a filter needs, each once."""
    fields: dict[str, None] = {}
    for comparison in orderings(filter_):
        if isinstance(comparison.value, str):
            used = range(len(text_levels(comparison.value)))
            fields.update(dict.fromkeys(text_field(comparison.key, level) for level in used))
        else:
            fields[number_field(comparison.key)] = None
    return list(fields)


def all_of(*filters: Json | None) -> Json | None:
    """Return the conjunction of those filters that are there, None for none."""
    parts = [part for part in filters if part]
    return {"must": parts} if parts else None


def of_documents(document_ids: frozenset[str]) -> Json:
    """Return the filter that the chunks of these documents pass."""
    return _any("attributes", [document_token(i) for i in sorted(document_ids)])


def not_of_version(version: int) -> Json:
    """Return the filter that chunks pass whose terms another analyzer found."""
    return {"must_not": [_any("attributes", [version_token(version)])]}


def holding(key: int) -> Json:
    """Return the filter that chunks pass which hold the term of this key."""
    return {"must": [{"key": "terms", "match": {"value": key}}]}


def of_references(references: list[int]) -> Json:
    """Return the filter that chunks with one of these references pass."""
    return {"must": [{"key": "reference", "match": {"any": references}}]}


def _any(field: str, values: list[str]) -> Json:
    return {"must": [{"key": field, "match": {"any": values}}]}


def _compare(comparison: Comparison) -> Json:
    kind = comparison.type
    if kind in ORDERINGS:
        value = comparison.value
        if isinstance(value, str):
            return _order_texts(kind, comparison.key, text_levels(value))
        # The parser leaves strings and numbers to an ordering, which its type does not say.
        return _order_numbers(kind, comparison.key, value)  # type: ignore[arg-type]
    found = _any("attributes", [value_token(comparison.key, v) for v in comparison.values])
    return {"must_not": [found]} if kind in ("ne", "nin") else found


def _order_numbers(kind: str, key: str, value: float) -> Json:
    near = float(value)
    if not near.is_integer() or abs(near) >= _EXACT:
        slack = abs(near) * _ROUNDING
        near += -slack if kind.startswith("g") else slack
        kind = kind[:2] + "e"
    return _range(number_field(key), kind, near)


def _order_texts(kind: str, key: str, levels: list[int]) -> Json:
    """Compare level by level: less in one, equal in all before it; or equal in all.

    Equal in all stands for gt and lt as well where the string may go on behind the last level.
    """
    fields = [text_field(key, level) for level in range(len(levels))]
    strict = kind[:2]
    cases: list[Json] = []
    for level, (field, number) in enumerate(zip(fields, levels, strict=True)):
        before = [_equal(f, n) for f, n in zip(fields[:level], levels[:level], strict=True)]
        cases.append({"must": [*before, _range(field, strict, number)]})
    if kind.endswith("e") or len(levels) == LEVELS:
        cases.append({"must": [_equal(f, n) for f, n in zip(fields, levels, strict=True)]})
    return {"should": cases}


def _equal(field: str, number: float) -> Json:
    return {"must": [{"key": field, "range": {"gte": number, "lte": number}}]}


def _range(field: str, kind: str, number: float) -> Json:
    return {"must": [{"key": field, "range": {kind: number}}]}
