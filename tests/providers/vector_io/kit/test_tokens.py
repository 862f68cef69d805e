"""Tokens of metadata values: their equality and order by nothing but equality."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.filters import Scalar, kind_of
from corral.providers.vector_io.kit.tokens import (
    TEXT_BYTES,
    TOKENS,
    chunk_tokens,
    order_tokens,
)

ORDER: dict[str, Any] = {
    "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le,
}  # fmt: skip

NUMBERS: list[Scalar] = [
    0, -0.0, 1, -1, 5, 0.1, -0.1, 2.5, 1e15, -1e15, 5e-324, -5e-324, 2**53 - 1, 1 - 2**53,
    math.nextafter(1, 2), math.nextafter(1, 0),
]  # fmt: skip
TEXTS: list[Scalar] = [
    "", "a", "A", "ab", "abc", "b", "é", "e\u0301", "天气", "🙂", "\x01", "\uffff", "2024-05-0",
    "~" * (TEXT_BYTES - 1),
]  # fmt: skip
WILD: list[Scalar] = [
    2**53, 2**53 + 1, 2**63 - 1, 1 - 2**63, 1e16, 1e300, -1e300,
    "2024-05-01", "2024-05-01T12", "x" * 300,
    "x" * 299, "x" * 299 + "y", "🙂" * 9, "true", True, False,
]  # fmt: skip


def passes(element: Scalar, kind: str, value: Scalar) -> bool:
    """Return True if a chunk with this metadata value has one of an ordering's tokens."""
    chunk = Chunk(content="x", metadata={"key": element})
    return not set(chunk_tokens(chunk, 1)).isdisjoint(order_tokens(kind, "key", value))


def holds(element: Scalar, kind: str, value: Scalar) -> bool:
    """Return True if the ordering holds: the definition."""
    return kind_of(element) == kind_of(value) and bool(ORDER[kind](element, value))


def test_orderings_of_usual_values_are_exact() -> None:
    """Every pair of numbers below 2^53 and of short strings compares as in Python, kinds apart."""
    usual = NUMBERS + TEXTS
    for element, value in itertools.product(usual, usual):
        for kind in ORDER:
            assert passes(element, kind, value) == holds(element, kind, value), (
                element, kind, value,
            )  # fmt: skip


def test_random_numbers_are_ordered() -> None:
    """Doubles of any size and sign."""
    rng = np.random.default_rng(7)
    some = (rng.normal(size=40) * 10.0 ** rng.integers(-20, 15, 40)).tolist()
    for element, value in itertools.pairwise([*some, *some[:1], *sorted(some)]):
        for kind in ORDER:
            assert passes(element, kind, value) == holds(element, kind, value)


def test_orderings_never_miss_a_chunk() -> None:
    """Long strings and large integers pass where they must; some too many may."""
    values = [value for value in NUMBERS + TEXTS + WILD if not isinstance(value, bool)]
    for element, value in itertools.product(NUMBERS + TEXTS + WILD, values):
        for kind in ORDER:
            assert passes(element, kind, value) or not holds(element, kind, value)


def test_equal_values_share_a_token_and_others_do_not() -> None:
    """1 and 1.0 are equal; 1, "1" and true, other keys and glued keys and values are not."""
    assert TOKENS.value("k", 1) == TOKENS.value("k", 1.0)
    assert TOKENS.value("k", 0.0) == TOKENS.value("k", -0.0)
    apart: list[tuple[str, Scalar]] = [
        ("k", 1), ("k", "1"), ("k", True), ("k", False), ("k", 0), ("k", "True"), ("k", 2**53),
        ("k", 2**53 + 1), ("", "k1"), ("k1", ""), ("k", 0.1), ("k", "0.1"), ("1:k", 1),
    ]  # fmt: skip
    assert len({TOKENS.value(key, value) for key, value in apart}) == len(apart)


def test_every_chunk_has_a_token() -> None:
    """An index of tokens knows every chunk, so Not finds those without metadata.

    If this fails: objects without the property may be unknown to the server's filters.
    """
    assert chunk_tokens(Chunk(content="x"), 1)


@pytest.mark.parametrize("kind", ORDER)
def test_orderings_are_bounded(kind: str) -> None:
    """A range is a few hundred tokens at most, and one at least: the server takes no empty list."""
    for value in NUMBERS + TEXTS + WILD:
        if not isinstance(value, bool):
            assert 1 <= len(order_tokens(kind, "k", value)) <= 16 * 2 * (TEXT_BYTES + 1)
