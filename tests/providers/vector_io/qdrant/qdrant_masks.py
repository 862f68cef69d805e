"""Filters of Qdrant over many points, each read once a request and not once a point.

The client's local mode asks each point anew which kind of condition it meets, which is most of the
time of a search in 1,000 points. Here a filter becomes a function of a payload, equal to the local
mode's `check_filter` for the conditions that Corral sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

Payload = dict[str, Any]
Passes = Callable[[Payload], bool]


def mask(
    payloads: Sequence[Payload],
    payload_filter: models.Filter | None,
    ids_inv: Sequence[models.ExtendedPointId],
    deleted_per_vector: Mapping[str, NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """Return which points pass: `calculate_payload_mask` of the local mode."""
    if payload_filter is None:
        return np.ones(len(payloads), dtype=bool)
    passes = _filter(payload_filter)
    return np.fromiter(map(passes, payloads), dtype=bool, count=len(payloads))


def _filter(one: models.Filter) -> Passes:
    assert one.min_should is None
    must, should, must_not = (
        [_condition(part) for part in parts or []] for parts in (one.must, one.should, one.must_not)
    )

    def passes(payload: Payload) -> bool:
        return (
            all(part(payload) for part in must)
            and (not should or any(part(payload) for part in should))
            and not any(part(payload) for part in must_not)
        )

    return passes


def _condition(one: Any) -> Passes:
    if isinstance(one, models.Filter):
        return _filter(one)
    assert isinstance(one, models.FieldCondition)
    if isinstance(one.range, models.Range):
        return _within(one.key, one.range)
    if isinstance(one.match, models.MatchValue):
        return _holding(one.key, [one.match.value])
    assert isinstance(one.match, models.MatchAny)
    return _holding(one.key, one.match.any)


def _holding(key: str, values: Sequence[Any]) -> Passes:
    wanted, kinds = set(values), {type(value) for value in values}

    def passes(payload: Payload) -> bool:
        found = _values(payload, key)
        # 1, 1.0 and true are equal to Python alone.
        return not wanted.isdisjoint(found) and any(
            type(value) in kinds and value in wanted for value in found
        )

    return passes


def _within(key: str, bounds: models.Range) -> Passes:
    above, least = (-math.inf if low is None else low for low in (bounds.gt, bounds.gte))
    below, most = (math.inf if high is None else high for high in (bounds.lt, bounds.lte))

    def passes(payload: Payload) -> bool:
        return any(
            above < value < below and least <= value <= most
            for value in _values(payload, key)
            if type(value) in (int, float)
        )

    return passes


def _values(payload: Payload, key: str) -> list[Any]:
    found = payload.get(key, [])
    return found if isinstance(found, list) else [found]
