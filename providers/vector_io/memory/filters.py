"""Filters as sets of chunk ids, from an index of the metadata's values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from corral.api.filters import Comparison, Filter, Scalar, elements, kind_of

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


@dataclass(frozen=True, slots=True)
class ChunkIds:
    """Some chunks, or, where `negated`, all but these. Combines without knowing all."""

    ids: frozenset[str]
    negated: bool = False

    def __invert__(self) -> ChunkIds:
        return ChunkIds(self.ids, not self.negated)

    def __and__(self, other: ChunkIds) -> ChunkIds:
        if self.negated and other.negated:
            return ChunkIds(self.ids | other.ids, negated=True)
        if self.negated or other.negated:
            included, excluded = (other, self) if self.negated else (self, other)
            return ChunkIds(included.ids - excluded.ids)
        return ChunkIds(self.ids & other.ids)

    def __or__(self, other: ChunkIds) -> ChunkIds:
        return ~(~self & ~other)  # De Morgan


class MetadataIndex:
    """Which chunks hold which value under which key. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._holding: dict[str, dict[tuple[str, Scalar], set[str]]] = {}

    def add(self, chunk_id: str, metadata: Mapping[str, Any]) -> None:
        """Index a new chunk."""
        for key, value in metadata.items():
            for element in elements(value):
                values = self._holding.setdefault(key, {})
                values.setdefault((kind_of(element), element), set()).add(chunk_id)

    def remove(self, chunk_id: str, metadata: Mapping[str, Any]) -> None:
        """Forget a chunk, given with the metadata that it was added with."""
        for key, value in metadata.items():
            for element in elements(value):
                values = self._holding[key]
                holding = values.get((kind_of(element), element), set())
                holding.discard(chunk_id)
                if not holding:  # a value that the list repeats is gone already
                    values.pop((kind_of(element), element), None)

    def passing(self, filter_: Filter) -> ChunkIds:
        """Return the chunks that pass a filter."""
        if isinstance(filter_, Comparison):
            return self._compare(filter_)
        combine = operator.and_ if filter_.type == "and" else operator.or_
        return reduce(combine, map(self.passing, filter_.filters))

    def _compare(self, comparison: Comparison) -> ChunkIds:
        values = self._holding.get(comparison.key, {})
        if comparison.type in ("eq", "ne", "in", "nin"):
            asked = [(kind_of(value), value) for value in comparison.values]
            found = [values[one] for one in asked if one in values]
        else:
            passes, bound = _ORDER[comparison.type], comparison.values[0]
            kind = kind_of(bound)
            found = [ids for (of, one), ids in values.items() if of == kind and passes(one, bound)]
        return ChunkIds(frozenset().union(*found), comparison.type in ("ne", "nin"))
