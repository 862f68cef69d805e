"""Filters in Qdrant's form: the JSON objects of its REST interface.

eq, ne, in and nin are exact, by tokens (records.py). Orderings, by levels, pass a superset of the
chunks that `corral.api.filters.matches` passes. They differ only for numbers that a double cannot
represent, strings that share their first 24 bytes, and values with equal 21-bit hashes. No filter
type negates an ordering, so and / or of supersets are supersets. `matches` drops the few wrong
chunks (engine.py), and more are requested in their place.
"""

from __future__ import annotations

from typing import cast

from corral.api.filters import Comparison, Filter
from corral.api.scope import HAS_DEFAULT
from corral.providers.vector_io.kit.tokens import ORDERINGS, is_exact
from corral.providers.vector_io.qdrant.records import (
    DEFAULT_TOKEN,
    ORDER_INDEX,
    TEXT_BYTES,
    TOKENS,
    Json,
    first_of_level,
    last_of_level,
    levels,
)


def translate(filter_: Filter) -> Json:
    """Return a filter whose matches include all chunks that pass."""
    if isinstance(filter_, Comparison):
        return _compare(filter_)
    kind = "must" if filter_.type == "and" else "should"
    return {kind: [translate(part) for part in filter_.filters]}


def all_of(*filters: Json | None) -> Json | None:
    """Return the conjunction of the filters that are not None; None if there are none."""
    parts = [part for part in filters if part]
    return {"must": parts} if parts else None


def of_documents(document_ids: frozenset[str]) -> Json:
    """Return a filter for the chunks of these documents."""
    return _any("attributes", [TOKENS.document(i) for i in sorted(document_ids)])


def not_of_version(version: int) -> Json:
    """Return a filter for the chunks that another version has stored."""
    return {"must_not": [_any("attributes", [TOKENS.version(version)])]}


def holding(*keys: int) -> Json:
    """Return a filter for the chunks that contain a term with one of these keys."""
    match = {"value": keys[0]} if len(keys) == 1 else {"any": list(keys)}
    return {"must": [{"key": "terms", "match": match}]}


def of_references(references: list[int]) -> Json:
    """Return a filter for the chunks with one of these references."""
    return {"must": [{"key": "reference", "match": {"any": references}}]}


def _any(field: str, values: list[str]) -> Json:
    return {"must": [{"key": field, "match": {"any": values}}]}


def all_but(field: str, values: list[int]) -> Json | None:
    """Return a filter for the chunks with none of these numbers; None for no numbers."""
    return {"must_not": [{"key": field, "match": {"any": values}}]} if values else None


def _compare(comparison: Comparison) -> Json:
    kind = comparison.type
    if comparison == HAS_DEFAULT:
        return _any("attributes", [DEFAULT_TOKEN])
    if kind in ORDERINGS:
        # The parser guarantees a string or a number here, but the type does not say so.
        return _order(kind, comparison.key, cast("str | float", comparison.value))
    found = _any("attributes", [TOKENS.value(comparison.key, v) for v in comparison.values])
    return {"must_not": [found]} if kind in ("ne", "nin") else found


def _order(kind: str, key: str, value: str | float) -> Json:
    """Compare level by level: beyond the value in one level, with all previous levels equal.

    For gt and lt, equality in all levels passes too if other values can have the same levels.
    """
    own = levels(key, value)
    if kind.startswith("g"):
        cases = [{"gt": level, "lte": last_of_level(level)} for level in own]
    else:
        cases = [{"gte": first_of_level(level), "lt": level} for level in own]
    if kind.endswith("e") or not is_exact(value, TEXT_BYTES):
        cases.append({"gte": own[-1], "lte": own[-1]})
    return {"should": [{"key": ORDER_INDEX, "range": case} for case in cases]}
