"""Filters as Milvus expressions.

No key or value enters an expression unchanged: equality compares hashes, and ordering compares
hexadecimal strings that sort like the values. A chunk's attributes are the hashes of its (key,
value) pairs, and the minimum and maximum for each key and kind of value.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from corral.api.filters import Comparison, Filter, Scalar, elements, kind_of
from corral.providers.vector_io.kit.tokens import canonical, sortable_bits

PREFIX_BYTES = 60
"""Characters of a string in the bounds; comparisons with longer strings read the chunks."""


class Kind(IntEnum):
    """Kinds of rows; filters only pass chunks."""

    CHUNK = 0
    PART = 1  # the rest of a chunk that is too long for one row
    DEAD = 2  # rows of chunks about to be deleted
    WRITER = 3  # the number of writes of a process
    ABOUT = 4  # the layout of the collection


CHUNKS = f"kind == {Kind.CHUNK:d}"
"""The expression that only chunks pass."""

Resolve = Callable[[str, Comparison], list[str]]
"""Called with an expression and a comparison; returns the keys of the rows that pass both."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The fields of a chunk for filters.

    Attributes:
        tokens: A hash for every pair of key and value, distinct.
        bounds: Names and values of dynamic fields.
    """

    tokens: list[str]
    bounds: dict[str, str]


def attributes(metadata: Mapping[str, Any]) -> Attributes:
    """Return the attributes of a chunk's metadata."""
    tokens: dict[str, None] = {}
    bounds: dict[str, str] = {}
    for key, value in metadata.items():
        for element in elements(value):
            tokens[_token(key, element)] = None
            if kind_of(element) != "boolean":
                low, high = _bound_names(key, element)
                sortable = _sortable(element)
                bounds[low] = min(sortable, bounds.get(low, sortable))
                bounds[high] = max(sortable, bounds.get(high, sortable))
    return Attributes(list(tokens), bounds)


def digest(text: str) -> str:
    """Return 120 bits of a text's hash as 24 lower-case letters and digits."""
    hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=15).digest()
    return base64.b32encode(hashed).decode().lower()


def quoted(words: Iterable[str]) -> str:
    """Return generated words of letters, digits and hyphens as a list in an expression.

    Raises:
        ValueError: A word contains other characters; text from outside must not get here.
    """
    words = list(words)
    if not all(word.replace("-", "").isalnum() and word.isascii() for word in words):
        raise ValueError("an expression takes hashes and words of our own only")
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def expression(filter_: Filter | None, *, arrays: bool, resolve: Resolve) -> str:
    """Return the expression that passes the chunks that a filter passes.

    Args:
        filter_: A parsed filter; None passes every chunk.
        arrays: True if attributes are stored as arrays; see `Layout`.
        resolve: Finds the chunks that pass a comparison among those that pass an expression, for
            strings too long for their bounds.
    """
    if filter_ is None:
        return CHUNKS
    return f"{CHUNKS} and {_translate(filter_, arrays, resolve)}"


def _translate(filter_: Filter, arrays: bool, resolve: Resolve) -> str:
    if isinstance(filter_, Comparison):
        if filter_.type in ("eq", "in", "ne", "nin"):
            tokens = dict.fromkeys(_token(filter_.key, value) for value in filter_.values)
            found = _has_any(list(tokens), arrays)
            return f"(not {found})" if filter_.type in ("ne", "nin") else found
        return _ordered(filter_, resolve)
    parts = (_translate(part, arrays, resolve) for part in filter_.filters)
    return f"({f' {filter_.type} '.join(parts)})"


def _has_any(tokens: list[str], arrays: bool) -> str:
    if not tokens:
        return f"(kind != {Kind.CHUNK:d})"  # Matches no chunk; the language has no false.
    words = quoted(tokens)
    if arrays:
        return f"(array_contains_any(attributes, {words}))"
    return "(" + " or ".join(f'attributes like "% {token} %"' for token in tokens) + ")"


def _ordered(comparison: Comparison, resolve: Resolve) -> str:
    value = comparison.values[0]
    low, high = _bound_names(comparison.key, value)
    name, sign = {
        "gt": (high, ">"), "gte": (high, ">="), "lt": (low, "<"), "lte": (low, "<="),
    }[comparison.type]  # fmt: skip
    bound, sortable = f'$meta["{name}"]', _sortable(value)
    if len(sortable) < 2 * PREFIX_BYTES or not isinstance(value, str):
        return f'({bound} {sign} "{sortable}")'
    strictly = f'{bound} {sign[0]} "{sortable}"'
    equal = resolve(f'{CHUNKS} and {bound} == "{sortable}"', comparison)
    return f"({strictly} or pk in {quoted(equal)})" if equal else f"({strictly})"


def _token(key: str, value: Scalar) -> str:
    return digest(f"{len(key)} {key} {kind_of(value)} {canonical(value)[1]}")


def _bound_names(key: str, value: Scalar) -> tuple[str, str]:
    name = f"{kind_of(value)[0]}_{digest(key)}"
    return f"low_{name}", f"high_{name}"


def _sortable(value: Scalar) -> str:
    """Return hexadecimal digits that sort like the values of this kind.

    Strings: their UTF-8, which sorts by code point, at most `PREFIX_BYTES` of it. Numbers: the
    sortable bits of the nearest double, then the difference from it, which is not 0 only for
    integers beyond 2^53.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")[:PREFIX_BYTES].hex()
    nearest = float(value)
    rest = value - int(nearest) if isinstance(value, int) else 0
    return f"{sortable_bits(nearest):016x}{rest + 2**15:04x}"
