"""What enters an expression is hashes and digits, and they compare as the values do."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest

from corral.api.filters import Comparison, matches, parse_filter
from corral.providers.vector_io.milvus import filters
from corral.providers.vector_io.milvus.filters import attributes, expression, quoted

NUMBERS: list[Any] = [
    0, -0.0, 1, -1, 0.1, -0.1, 5e-324, -5e-324, 1.7e308, -1.7e308, 2**53, 2**53 + 1, 2**53 - 1,
    -(2**53) - 1, 2**63 - 1, 2**63 - 2, -(2**63) + 1, 2.0**63, 1e15 + 0.5, 3.0, 3,
]  # fmt: skip
STRINGS = ["", "a", "aa", "b", "B", "é", "e\u0301", "天气", "\uffff", "\U0001f600", "2024-05-01"]


def found_none(_: str, __: Comparison) -> list[str]:
    """Stand for a collection in which no chunk passes."""
    return []


def sortable(value: Any) -> str:
    """Return a value as its bounds hold it: under two names, the lowest and the highest."""
    low, high = attributes({"k": value}).bounds.values()
    assert low == high
    return low


def test_numbers_sort_as_their_digits() -> None:
    """Integers and floats of any size, equal ones included: digits compare as the values do."""
    rng = random.Random(1)
    drawn = [rng.uniform(-1e6, 1e6) for _ in range(50)] + [rng.randint(-(10**6), 10**6)]
    for one, other in itertools.product(NUMBERS + drawn, repeat=2):
        assert (one < other) == (sortable(one) < sortable(other)), (one, other)
        assert (one == other) == (sortable(one) == sortable(other)), (one, other)


def test_strings_sort_by_code_point() -> None:
    """UTF-8 sorts as code points do, and hexadecimal digits as the bytes do."""
    for one, other in itertools.product(STRINGS, repeat=2):
        assert (one < other) == (sortable(one) < sortable(other)), (one, other)


def test_equal_values_have_one_token_and_others_have_others() -> None:
    """1 is 1.0; but "1", true, another key and a key that runs into the value are not.

    If this fails: a filter finds chunks of another value, or misses its own.
    """
    assert attributes({"k": 1}).tokens == attributes({"k": 1.0}).tokens
    assert attributes({"k": [1, 1.0, 1]}).tokens == attributes({"k": 1}).tokens
    pairs: list[tuple[str, Any]] = [
        ("k", 1), ("k", "1"), ("k", True), ("k", "True"), ("K", 1), ("k 1", ""), ("k", " 1"),
        ("", "k"), ("k", 2**53), ("k", 2**53 + 1), ("k", 0.1), ("k", "0.1"), ("1 k", 1),
    ]  # fmt: skip
    tokens = [attributes({key: value}).tokens[0] for key, value in pairs]
    assert len(set(tokens)) == len(pairs)


@pytest.mark.parametrize("arrays", [True, False])
def test_nothing_from_outside_enters_an_expression(arrays: bool) -> None:
    """Keys and values full of syntax give expressions of known words, hashes and digits."""
    hostile = ['"', "'", "\\", '"]) or kind >= 0 or (pk in ["', "%", "_", "$meta", "\n", "天气"]
    known = re.compile(
        r"kind == 0|and|or|not|array_contains_any|attributes|like|\$meta|pk in|[<>=]+|[()\[\],]"
        r'|"[a-z0-9_]*"|"% [a-z0-9]{24} %"|\s+'
    )
    for key, value in itertools.product(hostile, repeat=2):
        for kind in ("eq", "ne", "in", "nin", "gt", "lte"):
            asked = {"type": kind, "key": key, "value": [value] if "in" in kind else value}
            nested = parse_filter(
                {"type": "or", "filters": [asked, {"type": "and", "filters": [asked]}]}
            )
            made = expression(nested, arrays=arrays, resolve=found_none)
            assert known.sub("", made) == "", made


@pytest.mark.parametrize("word", ['a"', "a b", "", "天", "a]", "a\\"])
def test_lists_in_expressions_take_own_words_only(word: str) -> None:
    """Anything but letters, digits and hyphens is refused: it would be syntax."""
    assert quoted(["ab-1", "c"]) == '["ab-1", "c"]'
    with pytest.raises(ValueError, match="hashes"):
        quoted(["ok", word])


@pytest.mark.parametrize("kind", ["gt", "gte", "lt", "lte"])
def test_a_long_string_is_compared_in_full(kind: str) -> None:
    """Where the bounds end before the strings do, the chunks themselves decide.

    If this fails: long strings that begin alike count as equal.
    """
    long = "x" * filters.PREFIX_BYTES
    asked: list[str] = []

    def resolve(passing: str, comparison: Comparison) -> list[str]:
        asked.append(passing)
        stored = {"p1": long + "a", "p2": long + "c", "p3": long + "b"}
        return [pk for pk, text in stored.items() if matches(comparison, {"k": text})]

    parsed = parse_filter({"type": kind, "key": "k", "value": long + "b"})
    made = expression(parsed, arrays=True, resolve=resolve)
    expected = {
        "gt": '["p2"]', "gte": '["p2", "p3"]', "lt": '["p1"]', "lte": '["p1", "p3"]'
    }[kind]  # fmt: skip
    assert made.endswith(f" or pk in {expected})")
    assert len(asked) == 1
    assert f'== "{sortable(long)}"' in asked[0]
