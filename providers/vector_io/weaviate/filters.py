"""Filters in Weaviate's form: And, Or, Not and ContainsAny over the tokens of a chunk.

eq, ne, in and nin are exact. Orderings are supersets in rare cases (kit/tokens.py); nothing negates
them, so and / or of them are supersets as well, and `matches` drops the few wrong chunks from the
response (engine.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from weaviate.classes.query import Filter as Native
from weaviate.collections.classes.filters import FilterReturn

from corral.api.filters import Comparison, Filter
from corral.providers.vector_io.kit.tokens import ORDERINGS, TOKENS, order_tokens

ATTRIBUTES = "attributes"
"""The property with a chunk's tokens."""

TERMS = "terms"
"""The property with a chunk's analyzed words."""

_NOBODYS = "none"  # A token that no chunk has; Weaviate rejects an empty list.


def translate(filter_: Filter) -> FilterReturn:
    """Return a filter whose matches include all chunks that pass."""
    if isinstance(filter_, Comparison):
        return _compare(filter_)
    parts = [translate(part) for part in filter_.filters]
    if len(parts) == 1:
        return parts[0]
    return Native.all_of(parts) if filter_.type == "and" else Native.any_of(parts)


def everything() -> FilterReturn:
    """Return a filter that all chunks pass.

    Weaviate compares every passing embedding if fewer than its `flatSearchCutoff` pass (40,000 per
    shard), so a search also finds objects that lost their links in the graph by a crash.
    """
    return Native.not_(_any([]))


def of_ids(ids: Iterable[str]) -> FilterReturn:
    """Return a filter for the objects with these ids, at least one."""
    return Native.by_id().contains_any(list(ids))


def of_documents_but(document_ids: Iterable[str], ids: Iterable[str]) -> FilterReturn:
    """Return a filter for the chunks of these documents, except the objects with these ids."""
    inside = _any(TOKENS.document(i) for i in sorted(document_ids))
    spared = list(ids)
    return Native.all_of([inside, Native.not_(of_ids(spared))]) if spared else inside


def not_of_version(version: int) -> FilterReturn:
    """Return a filter for the chunks with terms of another analyzer version."""
    return Native.not_(_any([TOKENS.version(version)]))


def holding(*terms: str) -> FilterReturn:
    """Return a filter for the chunks that contain one of these terms, at least one."""
    return Native.by_property(TERMS).contains_any(list(terms))


def _compare(comparison: Comparison) -> FilterReturn:
    key = comparison.key
    if comparison.type in ORDERINGS:
        return _any(order_tokens(comparison.type, key, comparison.values[0]))
    found = _any(dict.fromkeys(TOKENS.value(key, value) for value in comparison.values))
    return Native.not_(found) if comparison.type in ("ne", "nin") else found


def _any(tokens: Iterable[str]) -> FilterReturn:
    return Native.by_property(ATTRIBUTES).contains_any(list(tokens) or [_NOBODYS])
