"""Filters in OpenSearch's JSON form: conditions on a chunk's tokens, and combinations of these.

eq, ne, in and nin are exact. Orderings are supersets in rare cases (kit/tokens.py); nothing
negates them, so combinations of them are supersets as well, and `passes` removes the few wrong
chunks from the results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from corral.api.filters import Comparison, Filter
from corral.providers.vector_io.kit.tokens import ORDERINGS, TOKENS, order_tokens

Json = dict[str, Any]

ATTRIBUTES = "attributes"
"""The field with a chunk's tokens."""

TERMS = "terms"
"""The field with a chunk's analyzed words."""

EVERYTHING: Json = {"match_all": {}}


def translate(filter_: Filter) -> Json:
    """Return a query that matches all chunks that pass a filter."""
    if isinstance(filter_, Comparison):
        return _compare(filter_)
    parts = [translate(part) for part in filter_.filters]
    if filter_.type == "and":
        return {"bool": {"filter": parts}}
    return {"bool": {"should": parts, "minimum_should_match": 1}}


def of_documents(document_ids: Iterable[str]) -> Json:
    """Return the query that matches all chunks of some documents."""
    return _any(TOKENS.document(one) for one in sorted(document_ids))


def not_of_version(version: int) -> Json:
    """Return the query that matches the chunks with terms of another version of the analyzer."""
    return _not(_any([TOKENS.version(version)]))


def holding(term: str) -> Json:
    """Return the query that matches the chunks that contain a term."""
    return {"term": {TERMS: term}}


def _compare(comparison: Comparison) -> Json:
    key = comparison.key
    if comparison.type in ORDERINGS:
        return _any(order_tokens(comparison.type, key, comparison.values[0]))
    equal = _any(dict.fromkeys(TOKENS.value(key, value) for value in comparison.values))
    return _not(equal) if comparison.type in ("ne", "nin") else equal


def _any(tokens: Iterable[str]) -> Json:
    return {"terms": {ATTRIBUTES: list(tokens)}}


def _not(query: Json) -> Json:
    return {"bool": {"must_not": [query]}}
