"""Dify's metadata conditions as filters.

Filters compare whole values. Conditions about a part of a text (`contains`, `end with`) or a
missing value (`empty`) become comparisons with the values that the vector DB holds under the key;
for this, all its chunks are read, at most `MAX_READ`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidFilter
from corral.api.filters import MAX_VALUES, Comparison, Compound, Filter, Scalar, elements
from corral.api.wire import NullsAreDefaults
from corral.providers.base.documents import chunks_by_id

MAX_READ = 100_000
"""Maximum chunks of a vector DB to read for one condition."""
LAST_CHARACTER = chr(sys.maxunicode)

Operator = Literal[
    "contains", "not contains", "start with", "end with", "is", "is not", "in", "not in",
    "empty", "not empty", "=", "≠", ">", "<", "≥", "≤", "before", "after",
]  # fmt: skip


class Condition(BaseModel):
    """A condition on a metadata value."""

    # Unknown fields are allowed: newer versions send more than they document.
    model_config = ConfigDict(extra="ignore")

    name: str | list[str] = Field(
        description="A metadata key, or a list of keys, any of which may match."
    )
    comparison_operator: Operator
    value: str | int | float | bool | list[str | int | float | bool] | None = None


class Conditions(NullsAreDefaults):
    """Conditions; all or any must hold."""

    model_config = ConfigDict(extra="ignore")

    logical_operator: Literal["and", "or"] = "and"
    conditions: list[Condition] | None = Field(default=None, max_length=100)


_SIGNS = {">": "gt", "<": "lt", "≥": "gte", "≤": "lte", "before": "lt", "after": "gt"}


async def as_filter(given: Conditions | None, index: EmbeddingIndex) -> Filter | None:
    """Return conditions as a filter, None if there are none.

    Raises:
        InvalidFilter: A value does not fit its operator, or the vector DB holds too much.
    """
    if given is None or not given.conditions:
        return None
    parts = [await _condition(each, index, at) for at, each in enumerate(given.conditions)]
    return parts[0] if len(parts) == 1 else Compound(given.logical_operator, tuple(parts))


async def _condition(condition: Condition, index: EmbeddingIndex, at: int) -> Filter:
    names = condition.name if isinstance(condition.name, list) else [condition.name]
    if not names or not all(names):
        raise _bad(at, "name", "must name a metadata key", condition.name)
    parts = [await _of_key(name, condition, index, at) for name in names]
    return parts[0] if len(parts) == 1 else Compound("or", tuple(parts))


async def _of_key(key: str, condition: Condition, index: EmbeddingIndex, at: int) -> Filter:
    operator = condition.comparison_operator
    if operator in ("empty", "not empty"):
        return _among(key, await _values(index, key, lambda _: True), operator == "empty", at)
    if operator in ("is", "=", "in"):
        return Comparison("in", key, _meant(condition, at))
    if operator in ("is not", "≠", "not in"):
        return Comparison("nin", key, _meant(condition, at))
    if operator in _SIGNS:
        return _ordered(key, operator, condition.value, at)
    text = condition.value
    if not isinstance(text, str) or not text:
        raise _bad(at, "value", "must be a text", text)
    if operator == "start with":
        end = Comparison("lte", key, text + LAST_CHARACTER)
        return Compound("and", (Comparison("gte", key, text), end))
    holds = _TESTS[operator](text)
    matching = await _values(index, key, lambda value: isinstance(value, str) and holds(value))
    return _among(key, matching, operator == "not contains", at)


_TESTS: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "contains": lambda text: lambda value: text in value,
    "not contains": lambda text: lambda value: text in value,
    "end with": lambda text: lambda value: value.endswith(text),
}


def _ordered(key: str, operator: str, value: Any, at: int) -> Filter:
    """Return an ordering: of numbers if the value can be read as one, otherwise of texts."""
    sign: Any = _SIGNS[operator]
    readings = _readings(value)
    if not readings or isinstance(value, bool | list):
        raise _bad(at, "value", "must be a number or a date", value)
    return Comparison(sign, key, readings[-1])


def _meant(condition: Condition, at: int) -> tuple[Scalar, ...]:
    """Return the values of a condition; Dify also sends numbers as texts."""
    given = condition.value
    several = condition.comparison_operator in ("in", "not in")
    if several and isinstance(given, str):
        given = [part.strip() for part in given.split(",")]
    values = given if isinstance(given, list) else [given]
    meant = tuple(dict.fromkeys(each for value in values for each in _readings(value)))
    if not meant or len(meant) > MAX_VALUES:
        raise _bad(at, "value", f"must be 1 to {MAX_VALUES} values", condition.value)
    return meant


def _readings(value: Any) -> list[Scalar]:
    """Return the readings of a value: itself, and the number that a text spells."""
    if value is None:
        return []
    if not isinstance(value, str):
        return [value]
    try:
        number = float(value)
    except ValueError:
        return [value]
    if not abs(number) <= sys.float_info.max:  # NaN is not a number here
        return [value]
    return [value, int(number) if number.is_integer() and abs(number) < 2**53 else number]


def _among(key: str, values: Sequence[Scalar], negated: bool, at: int) -> Filter:
    """Return a filter for chunks with any of these values, or with none of them."""
    if len(values) > MAX_VALUES:
        raise _bad(at, "name", f"must have <= {MAX_VALUES} such values", len(values))
    return Comparison("nin" if negated else "in", key, tuple(values))


async def _values(
    index: EmbeddingIndex, key: str, wanted: Callable[[Scalar], bool]
) -> list[Scalar]:
    """Return the matching distinct values under a key; reads every chunk."""
    if await index.count() > MAX_READ:
        raise InvalidFilter(
            f"This condition reads every chunk, {MAX_READ} at most.",
            hint="Use is, in, start with or a range comparison.",
            field="metadata_condition",
        )
    distinct: dict[tuple[type, Scalar], Scalar] = {}
    after = ""
    while ids := await index.chunk_ids(after, MAX_READ):
        async for chunk in chunks_by_id(index, ids):
            for value in filter(wanted, elements(chunk.metadata.get(key))):
                distinct[type(value), value] = value
        after = ids[-1]
    return list(distinct.values())


def _bad(at: int, field: str, rule: str, value: object) -> InvalidFilter:
    path = f"metadata_condition.conditions[{at}].{field}"
    return InvalidFilter(f"{path} {rule} (got {str(value)[:100]!r}).", field=path)
