"""Filters as masks over places, from an index of the metadata's values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.filters import Comparison, Filter, Scalar, elements, kind_of

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class MetadataIndex:
    """Which places hold which value under which key. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._holding: dict[str, dict[tuple[str, Scalar], set[int]]] = {}

    def add(self, place: int, metadata: Mapping[str, Any]) -> None:
        """Index a new chunk."""
        for key, value in metadata.items():
            for element in elements(value):
                values = self._holding.setdefault(key, {})
                values.setdefault((kind_of(element), element), set()).add(place)

    def remove(self, place: int, metadata: Mapping[str, Any]) -> None:
        """Forget a chunk, given with the metadata that it was added with."""
        for key, value in metadata.items():
            for element in elements(value):
                values = self._holding[key]
                holding = values.get((kind_of(element), element), set())
                holding.discard(place)
                if not holding:  # a value that the list repeats is gone already
                    values.pop((kind_of(element), element), None)

    def passing(self, filter_: Filter, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the places that have a chunk pass a filter, shape of `alive`."""
        if isinstance(filter_, Comparison):
            return self._compare(filter_, alive)
        combine = np.logical_and if filter_.type == "and" else np.logical_or
        return reduce(combine, (self.passing(part, alive) for part in filter_.filters))

    def _compare(self, comparison: Comparison, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        values = self._holding.get(comparison.key, {})
        if comparison.type in ("eq", "ne", "in", "nin"):
            asked = [(kind_of(value), value) for value in comparison.values]
            found = [values[one] for one in asked if one in values]
        else:
            passes, bound = _ORDER[comparison.type], comparison.values[0]
            kind = kind_of(bound)
            found = [
                held for (of, one), held in values.items() if of == kind and passes(one, bound)
            ]
        mask = np.zeros(len(alive), dtype=np.bool_)
        mask[list(chain.from_iterable(found))] = True
        return alive & ~mask if comparison.type in ("ne", "nin") else mask
