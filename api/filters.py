"""Filters on chunk metadata: one validator and one reference evaluator for all providers.

The shape is OpenAI's: `{"type": "eq", "key": "year", "value": 2024}` compares, and
`{"type": "and", "filters": [...]}` combines. A provider translates the parsed filter into its
engine's own language and applies it *before* taking the top k; the result must equal `matches`.

The meaning is the same for all providers:

* A metadata value is treated as a set: the elements of a list, one scalar, or the empty set for a
  missing key or null. Nested objects cannot be compared and count as missing.
* `eq` holds if the set contains the value, `in` if it contains one of the values (never for an
  empty list); `gt`, `gte`, `lt`, `lte` hold if one element compares so. `ne` and `nin` are exactly
  `not eq` and `not in`, so a missing key matches them.
* Types do not mix: 1 equals 1.0 but neither "1" nor true. Ordering compares numbers with numbers,
  and strings with strings by code point.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    field_validator,
)

from corral.api.errors import InvalidFilter
from corral.api.principal import ACL_KEY
from corral.api.wire import Storable, Strict, strip_nul

Scalar: TypeAlias = str | float | int | bool
ComparisonType = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
CompoundType = Literal["and", "or"]

COMPARISONS: tuple[ComparisonType, ...] = get_args(ComparisonType)
COMPOUNDS: tuple[CompoundType, ...] = get_args(CompoundType)

MAX_DEPTH = 8
"""Maximum nesting of and / or; deeper filters only serve to exhaust a parser."""
MAX_NODES = 256
"""Maximum comparisons and combinations in one filter."""
MAX_VALUES = 1000
"""Maximum values of one `in` or `nin`."""
LARGEST_INTEGER = 2**63 - 1
"""Largest integer that every engine compares exactly (a signed 64-bit number)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`type` applied to the metadata under `key`. `value` is a tuple for in and nin."""

    type: ComparisonType
    key: str
    value: Scalar | tuple[Scalar, ...]

    @property
    def values(self) -> tuple[Scalar, ...]:
        """The value or values, always as a tuple."""
        return self.value if isinstance(self.value, tuple) else (self.value,)


@dataclass(frozen=True, slots=True)
class Compound:
    """All (`and`) or at least one (`or`) of `filters`, which are never empty."""

    type: CompoundType
    filters: tuple[Filter, ...]


Filter: TypeAlias = Comparison | Compound


class _Malformed(ValueError):
    """A defect in a filter and the path to it."""

    def __init__(self, path: str, wrong: str, hint: str) -> None:
        super().__init__(f"malformed filter, {wrong}")
        self.path, self.wrong, self.hint = path, wrong, hint

    def refusal(self, field: str) -> InvalidFilter:
        """Return the error for a filter in the request field `field`."""
        path = field + self.path
        return InvalidFilter(
            f"Malformed filter at {path}: {self.wrong}.", hint=self.hint, field=path
        )


def parse_filter(data: Any) -> Filter | None:
    """Parse and check a filter from the wire; return None for no filter.

    Examples:
        >>> parse_filter({"type": "gte", "key": "year", "value": 2020})
        Comparison(type='gte', key='year', value=2020)

    Args:
        data: None, a parsed filter (returned unchanged), or a JSON object.

    Raises:
        InvalidFilter: The filter is malformed, too deep (8) or too large (256 nodes, 1000 values),
            or holds an integer beyond 64 bits or a number that is not finite. The error's field is
            the path to the bad node, starting with `filters`.
    """
    if data is None or isinstance(data, Comparison | Compound):
        return data
    try:
        return _Parser().node(data, "", depth=1)
    except _Malformed as error:
        raise error.refusal("filters") from None


def refused_filter(finding: Mapping[str, Any], field: str) -> InvalidFilter | None:
    """Return the error for a pydantic finding if it concerns a `WireFilter`, else None.

    Args:
        finding: An item of `ValidationError.errors()`, with its context.
        field: The filter's field in the request.
    """
    error = finding.get("ctx", {}).get("error")
    return error.refusal(field) if isinstance(error, _Malformed) else None


def _validated(data: Any) -> Filter:
    return data if isinstance(data, Comparison | Compound) else _Parser().node(data, "", depth=1)


def as_json(filter_: Filter) -> dict[str, Any]:
    """Return a filter in its wire format, which `parse_filter` reads."""
    if isinstance(filter_, Compound):
        return {"type": filter_.type, "filters": [as_json(part) for part in filter_.filters]}
    value = list(filter_.value) if isinstance(filter_.value, tuple) else filter_.value
    return {"type": filter_.type, "key": filter_.key, "value": value}


WireFilter: TypeAlias = Annotated[
    Comparison | Compound,
    PlainValidator(_validated),
    PlainSerializer(as_json),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
"""A filter as a model field: validation parses it, dumping returns the wire format."""


class _Parser:
    def __init__(self) -> None:
        self.nodes = 0

    def node(self, data: Any, path: str, depth: int) -> Filter:
        """Parse the node at a path."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _bad(path, f"the filter has more than {MAX_NODES} nodes", "Use in or nin.")
        if depth > MAX_DEPTH:
            raise _bad(path, f"the filter is nested more than {MAX_DEPTH} deep", "Flatten it.")
        if not isinstance(data, Mapping):
            raise _bad(path, f"got {_name(data)}", "A filter is an object with a type.")
        kind = data.get("type")
        if isinstance(kind, str) and kind in COMPOUNDS:
            return self.compound(data, kind, path, depth)
        if isinstance(kind, str) and kind in COMPARISONS:
            return self.comparison(data, kind, path)
        valid = ", ".join((*COMPARISONS, *COMPOUNDS))
        raise _bad(f"{path}.type", f"got {kind!r}", f"Valid types: {valid}.")

    def compound(
        self, data: Mapping[str, Any], kind: CompoundType, path: str, depth: int
    ) -> Compound:
        """Parse an `and` or `or` filter."""
        _only_keys(data, ("type", "filters"), path)
        parts = data.get("filters")
        if not isinstance(parts, list | tuple) or not parts:
            got = "an empty array" if parts in ([], ()) else _name(parts)
            raise _bad(f"{path}.filters", f"got {got}", "Send a list of filters.")
        return Compound(
            kind,
            tuple(
                self.node(part, f"{path}.filters[{number}]", depth + 1)
                for number, part in enumerate(parts)
            ),
        )

    def comparison(self, data: Mapping[str, Any], kind: ComparisonType, path: str) -> Comparison:
        """Parse a comparison."""
        _only_keys(data, ("type", "key", "value"), path)
        key = data.get("key")
        if not isinstance(key, str) or not strip_nul(key):
            got = "an empty string" if isinstance(key, str) else _name(key)
            raise _bad(f"{path}.key", f"got {got}", "Name a metadata key.")
        value = data.get("value")
        if kind not in ("in", "nin"):
            checked = _scalar(value, f"{path}.value")
            if kind not in ("eq", "ne") and isinstance(checked, bool):
                raise _bad(f"{path}.value", "got a boolean", f"{kind} orders numbers or strings.")
            return Comparison(kind, strip_nul(key), checked)
        if not isinstance(value, list | tuple):
            raise _bad(f"{path}.value", f"got {_name(value)}", f"{kind} takes a list of values.")
        if len(value) > MAX_VALUES:
            raise _bad(f"{path}.value", f"got {len(value)} values", f"Send {MAX_VALUES} at most.")
        return Comparison(
            kind,
            strip_nul(key),
            tuple(_scalar(v, f"{path}.value[{number}]") for number, v in enumerate(value)),
        )


def matches(filter_: Filter | None, metadata: Mapping[str, Any]) -> bool:
    """Return True if a chunk's metadata passes the filter: the reference for every provider.

    Examples:
        >>> recent = Comparison("gte", "year", 2020)
        >>> matches(recent, {"year": 2024}), matches(recent, {"year": "2024"}), matches(recent, {})
        (True, False, False)
    """
    if filter_ is None:
        return True
    if isinstance(filter_, Compound):
        combine = all if filter_.type == "and" else any
        return combine(matches(part, metadata) for part in filter_.filters)
    return _compare(filter_, tuple(elements(metadata.get(filter_.key))))


def elements(value: Any) -> Iterator[Scalar]:
    """Yield the values that a filter compares: the elements of a list, or the scalar.

    Integers beyond 64 bits become floats, as engines store them. Null, objects and nested lists
    yield nothing.
    """
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, int) and not isinstance(item, bool) and abs(item) > LARGEST_INTEGER:
            yield float(item)
        elif isinstance(item, str | int | float):
            yield item


def kind_of(value: Scalar) -> Literal["boolean", "number", "string"]:
    """Return the kind of a scalar; values of different kinds are never equal or ordered."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _compare(comparison: Comparison, values: tuple[Scalar, ...]) -> bool:
    kind = comparison.type
    negated = kind in ("ne", "nin")
    holds = _ORDER["eq" if kind in ("ne", "in", "nin") else kind]
    return negated is not any(
        kind_of(element) == kind_of(value) and holds(element, value)
        for element in values
        for value in comparison.values
    )


def _scalar(value: Any, path: str) -> Scalar:
    if isinstance(value, str):
        return cast(str, strip_nul(value))
    if not isinstance(value, bool | int | float):
        raise _bad(path, f"got {_name(value)}", "Send a string, number or boolean.")
    if isinstance(value, float) and not math.isfinite(value):
        raise _bad(path, f"got {value}", "Numbers must be finite.")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise _bad(path, "got an integer beyond 64 bits", "Send it as a string.")
    return value


def _only_keys(data: Mapping[str, Any], valid: tuple[str, ...], path: str) -> None:
    for key in data:
        if key not in valid:
            raise _bad(f"{path}.{key}", "unknown key", f"Known here: {', '.join(valid)}.")


def _name(value: Any) -> str:
    """Return the JSON name of a value's type."""
    name = type(value).__name__
    return {"NoneType": "nothing", "list": "an array", "dict": "an object"}.get(name, name)


def _bad(path: str, wrong: str, hint: str) -> _Malformed:
    return _Malformed(path, wrong, hint)


class AutoFilters(Strict):
    """Lets a language model propose filters from a question."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, max_length=255, description="A configured language model.")
    keys: tuple[Annotated[Storable, Field(min_length=1, max_length=255)], ...] = Field(
        min_length=1,
        max_length=16,
        description="Metadata keys (1-16) that a filter may compare. The model sees their values.",
    )

    @field_validator("keys")
    @classmethod
    def _no_acl(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if ACL_KEY in keys:
            raise ValueError(f"the key {ACL_KEY!r} is reserved; no filter can compare it")
        return tuple(dict.fromkeys(keys))
