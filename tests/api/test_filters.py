"""Filters: the reference evaluator that every backend must equal, and the validator's refusals."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from corral.api.errors import InvalidFilter
from corral.api.filters import (
    COMPARISONS,
    COMPOUNDS,
    LARGEST_INTEGER,
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    Comparison,
    Compound,
    WireFilter,
    elements,
    matches,
    parse_filter,
    refused_filter,
)


def passes(kind: str, value: Any, *stored: Any) -> bool:
    """Return True if {"x": stored} passes {x kind value}; nothing stored is a missing key."""
    metadata = {"x": stored[0]} if stored else {}
    return matches(parse_filter({"type": kind, "key": "x", "value": value}), metadata)


# --- what each operator means ---------------------------------------------------------------------

# (operator, value asked for, values that pass, values that do not); () is a missing key.
TABLE: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("eq", 5, [5, 5.0, [5], [1, 5], ["5", 5]], [4, "5", True, [], [4], None, {"x": 5}, [[5]]]),
    ("eq", 1, [1, 1.0, [1]], [True, "1", [True], None]),
    ("eq", 0, [0, 0.0, -0.0], [False, "", None, []]),
    ("eq", True, [True, [True, 1]], [1, 1.0, "true", False, None]),
    ("eq", False, [False], [0, "", None, []]),
    ("eq", 1.5, [1.5, [1.5]], [1, "1.5"]),
    ("eq", "a", ["a", ["a"], ["b", "a"]], ["A", "ab", "", [], None, {"a": "a"}]),
    ("eq", "", ["", [""]], [None, [], " "]),
    ("eq", "it's", ["it's"], ["its", "it''s"]),
    ("eq", 'say "x"', ['say "x"'], ["say x", 'say \\"x\\"']),
    ("eq", "a' OR '1'='1", ["a' OR '1'='1"], ["a", "1"]),
    ("eq", "%", ["%"], ["anything", "a%"]),
    ("eq", "天气", ["天气", ["天气"]], ["天", "今天天气"]),
    ("eq", "é", ["é"], ["e", "e\u0301"]),
    ("eq", "🙂", ["🙂"], ["🙁"]),
    ("gt", 5, [6, 5.5, [1, 6]], [5, 4, "6", True, [], None, [5]]),
    ("gte", 5, [5, 5.0, 6, [1, 5]], [4.9, "5", None]),
    ("lt", 5, [4, 4.9, -1, [9, 4]], [5, "4", False, [], None]),
    ("lte", 5, [5, 4, [9, 5]], [5.1, "5", None]),
    ("gt", "b", ["c", "ba", "é", ["a", "c"]], ["b", "a", "B", 5, None, []]),
    ("lt", "b", ["a", "B", "", ["z", "a"]], ["b", "c", 1]),
    ("gte", "2024-05-01", ["2024-05-01", "2025"], ["2024-04-30", 2025]),
    ("lt", "\U0001f600", ["\uffff", "a"], ["\U0001f601"]),  # by code point, not by UTF-16 unit
    ("in", [1, "a"], [1, 1.0, "a", ["z", "a"]], [True, "1", "b", [], None, {"a": 1}]),
    ("in", [True], [True, [1, True]], [1, "True"]),
    ("in", ["x"], ["x"], ["xx", None]),
]  # fmt: skip


def cases(expected: bool) -> list[Any]:
    """Return the table's (operator, value, stored) with that outcome."""
    return [
        (kind, value, stored)
        for kind, value, yes, no in TABLE
        for stored in (yes if expected else no)
    ]


@pytest.mark.parametrize(("kind", "value", "stored"), cases(True))
def test_what_passes(kind: str, value: Any, stored: Any) -> None:
    """A scalar compares as itself, a list by each of its elements; 1 equals 1.0."""
    assert passes(kind, value, stored)


@pytest.mark.parametrize(("kind", "value", "stored"), cases(False))
def test_what_does_not_pass(kind: str, value: Any, stored: Any) -> None:
    """Kinds never mix (1, "1", true), strings are never syntax, null and objects hold nothing."""
    assert not passes(kind, value, stored)


@pytest.mark.parametrize(("kind", "value", "stored"), cases(True) + cases(False))
def test_ne_and_nin_are_exactly_the_negation(kind: str, value: Any, stored: Any) -> None:
    """ne is not eq and nin is not in, for every value, lists and missing keys included."""
    negation = {"eq": "ne", "in": "nin"}.get(kind)
    if negation:
        assert passes(negation, value, stored) is not passes(kind, value, stored)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_missing_key_passes_the_negations_only(kind: str) -> None:
    """Missing or null is nothing: ne and nin hold, everything else does not."""
    value = ["a"] if kind in ("in", "nin") else "a"
    assert passes(kind, value) is (kind in ("ne", "nin"))
    assert passes(kind, value, None) is (kind in ("ne", "nin"))


YEAR = {"type": "eq", "key": "year", "value": 2024}
KIND = {"type": "in", "key": "kind", "value": ["a", "b"]}


@pytest.mark.parametrize(
    ("metadata", "both", "either"),
    [
        ({"year": 2024, "kind": "a"}, True, True),
        ({"year": 2024, "kind": "z"}, False, True),
        ({"kind": "b"}, False, True),
        ({}, False, False),
    ],
)
def test_and_or(metadata: dict[str, Any], both: bool, either: bool) -> None:
    """`and` needs all, `or` one; they nest."""
    assert matches(parse_filter({"type": "and", "filters": [YEAR, KIND]}), metadata) is both
    assert matches(parse_filter({"type": "or", "filters": [YEAR, KIND]}), metadata) is either
    nested = {"type": "or", "filters": [{"type": "and", "filters": [YEAR, KIND]}, YEAR]}
    assert matches(parse_filter(nested), metadata) is ("year" in metadata)


def test_no_filter_passes_everything() -> None:
    """None is no filter."""
    assert parse_filter(None) is None
    assert matches(None, {"anything": 1})


def test_integers_beyond_64_bits_are_seen_as_floats() -> None:
    """A stored integer that no engine holds compares as the nearest double."""
    assert list(elements(2**70)) == [float(2**70)]
    assert list(elements(2**63 - 1)) == [2**63 - 1]
    assert passes("gt", 5, 2**70)


def test_elements_of_a_value() -> None:
    """A filter sees scalars, and the scalars of a list; objects and nested lists are nothing."""
    assert list(elements(["a", 1, 2.5, True, None, {}, ["x"]])) == ["a", 1, 2.5, True]
    assert list(elements(None)) == list(elements({"a": 1})) == list(elements([])) == []


scalars = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.floats(-3, 3), st.booleans())
stored_values = st.one_of(scalars, st.none(), st.lists(scalars, max_size=3))


@given(stored=stored_values, value=scalars)
def test_negation_holds_for_any_value(stored: Any, value: Any) -> None:
    """ne == not eq and nin == not in, whatever is stored; eq is in with one value."""
    assert passes("ne", value, stored) is not passes("eq", value, stored)
    assert passes("nin", [value], stored) is not passes("in", [value], stored)
    assert passes("in", [value], stored) is passes("eq", value, stored)


ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le
}  # fmt: skip


@pytest.mark.parametrize("kind", ORDERED)
@given(stored=st.integers(-3, 3) | st.floats(-3, 3), value=st.integers(-3, 3) | st.floats(-3, 3))
def test_numbers_are_ordered_as_numbers(kind: str, stored: float, value: float) -> None:
    """Integers and floats compare by value."""
    assert passes(kind, value, stored) is ORDERED[kind](stored, value)


# --- the validator --------------------------------------------------------------------------------

EQ = {"type": "eq", "key": "x", "value": 1}


def nest(depth: int) -> dict[str, Any]:
    """Return a filter of `depth` levels."""
    node: dict[str, Any] = EQ
    for _ in range(depth - 1):
        node = {"type": "and", "filters": [node]}
    return node


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ([], "filters"),
        ("x = 1", "filters"),
        (5, "filters"),
        ({}, "filters.type"),
        ({"type": "EQ", "key": "x", "value": 1}, "filters.type"),
        ({"type": "like", "key": "x", "value": 1}, "filters.type"),
        ({"type": ["eq"], "key": "x", "value": 1}, "filters.type"),
        ({"type": "eq", "value": 1}, "filters.key"),
        ({"type": "eq", "key": "", "value": 1}, "filters.key"),
        ({"type": "eq", "key": "\0", "value": 1}, "filters.key"),
        ({"type": "eq", "key": 5, "value": 1}, "filters.key"),
        ({"type": "eq", "key": "x"}, "filters.value"),
        ({"type": "eq", "key": "x", "value": None}, "filters.value"),
        ({"type": "eq", "key": "x", "value": [1]}, "filters.value"),
        ({"type": "eq", "key": "x", "value": {"a": 1}}, "filters.value"),
        ({"type": "eq", "key": "x", "value": float("nan")}, "filters.value"),
        ({"type": "eq", "key": "x", "value": float("inf")}, "filters.value"),
        ({"type": "eq", "key": "x", "value": LARGEST_INTEGER + 1}, "filters.value"),
        ({"type": "gt", "key": "x", "value": True}, "filters.value"),
        ({"type": "lte", "key": "x", "value": False}, "filters.value"),
        ({"type": "in", "key": "x", "value": "abc"}, "filters.value"),
        ({"type": "in", "key": "x"}, "filters.value"),
        ({"type": "nin", "key": "x", "value": 5}, "filters.value"),
        ({"type": "in", "key": "x", "value": [1, None]}, "filters.value[1]"),
        ({"type": "in", "key": "x", "value": [1, 2, [3]]}, "filters.value[2]"),
        ({"type": "in", "key": "x", "value": [1] * (MAX_VALUES + 1)}, "filters.value"),
        ({**EQ, "extra": 1}, "filters.extra"),
        ({"type": "and", "filters": [EQ], "key": "x"}, "filters.key"),
        ({"type": "and"}, "filters.filters"),
        ({"type": "and", "filters": []}, "filters.filters"),
        ({"type": "or", "filters": EQ}, "filters.filters"),
        ({"type": "or", "filters": [EQ, None]}, "filters.filters[1]"),
        (
            {"type": "and", "filters": [EQ, {"type": "or", "filters": [{"type": "eq"}]}]},
            "filters.filters[1].filters[0].key",
        ),
        (nest(MAX_DEPTH + 1), "filters" + ".filters[0]" * MAX_DEPTH),
        ({"type": "or", "filters": [EQ] * MAX_NODES}, f"filters.filters[{MAX_NODES - 1}]"),
    ],
)
def test_a_malformed_filter_is_refused_with_the_path_to_the_bad_node(data: Any, path: str) -> None:
    """The error's field is the exact path, and the hint says what to send instead."""
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(data)
    assert caught.value.field == path
    assert path in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        nest(MAX_DEPTH),
        {"type": "or", "filters": [EQ] * (MAX_NODES - 1)},
        {"type": "in", "key": "x", "value": [1] * MAX_VALUES},
        {"type": "eq", "key": "x", "value": LARGEST_INTEGER},
        {"type": "eq", "key": "x", "value": -LARGEST_INTEGER},
        {"type": "eq", "key": "a.b' \"$ [0]", "value": ""},
        {"type": "and", "filters": (EQ,)},
    ],
)
def test_the_limits_themselves_are_allowed(data: Any) -> None:
    """Exactly 8 levels, 256 nodes, 1000 values and 64-bit integers pass."""
    assert parse_filter(data) is not None


def test_parsing_gives_the_tree() -> None:
    """The parsed form mirrors the JSON; parsing it again changes nothing."""
    parsed = parse_filter({"type": "and", "filters": [EQ, KIND]})
    assert parsed == Compound(
        "and", (Comparison("eq", "x", 1), Comparison("in", "kind", ("a", "b")))
    )
    assert parse_filter(parsed) is parsed
    assert Comparison("eq", "x", 1).values == (1,)
    assert Comparison("in", "x", (1, 2)).values == (1, 2)


@pytest.mark.parametrize("metadata", [{}, {"x": None}, {"x": []}, {"x": 1}, {"x": ["a", 2]}])
def test_in_an_empty_list_is_nothing(metadata: dict[str, Any]) -> None:
    """`in` with no value passes nothing, `nin` everything: what a program that joins ids sends.

    If this fails: a caller who may see nothing gets an error, or worse, everything.
    """
    assert not matches(parse_filter({"type": "in", "key": "x", "value": []}), metadata)
    assert matches(parse_filter({"type": "nin", "key": "x", "value": []}), metadata)


def test_nul_is_stripped_from_keys_and_values() -> None:
    """Stored text has no NUL, so a filter that has one must still find it."""
    parsed = parse_filter({"type": "in", "key": "a\0", "value": ["b\0"]})
    assert parsed == Comparison("in", "a", ("b",))


def test_a_lone_surrogate_never_reaches_an_engine() -> None:
    """Text that cannot be encoded is refused or replaced, in keys and in values."""
    for key, value in (("a\ud800", "b"), ("a", "b\ud800")):
        try:
            parsed = parse_filter({"type": "eq", "key": key, "value": value})
        except InvalidFilter:
            continue
        assert isinstance(parsed, Comparison)
        f"{parsed.key}{parsed.value}".encode()


words = st.sampled_from(["type", "key", "value", "filters", *COMPARISONS, *COMPOUNDS])
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), words)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=4) | words, inner, max_size=4),
        st.fixed_dictionaries({"type": words, "filters": st.lists(inner, max_size=4)}),
        st.fixed_dictionaries({"type": words, "key": st.text(max_size=3), "value": inner}),
    ),
    max_leaves=12,
)


@given(data=json_values, metadata=st.dictionaries(st.text(max_size=3), json_values, max_size=3))
@example(data={"type": {}, "key": [], "value": ()}, metadata={})
def test_any_json_is_parsed_or_refused(data: Any, metadata: dict[str, Any]) -> None:
    """Arbitrary JSON gives a filter that can be evaluated, or InvalidFilter, and nothing else."""
    try:
        parsed = parse_filter(data)
    except InvalidFilter:
        return
    assert matches(parsed, metadata) in (True, False)


class Asking(BaseModel):
    """A model with a filter among its fields."""

    filters: WireFilter | None = None


def test_a_model_parses_its_filter_once_and_dumps_it_as_json() -> None:
    """The field holds the typed value; what is dumped is read back as the same."""
    data = {"type": "or", "filters": [EQ, {"type": "in", "key": "y", "value": [1, "a"]}]}
    asked = Asking.model_validate({"filters": data})
    assert asked.filters == parse_filter(data)
    assert asked.model_dump() == {"filters": data}
    assert Asking(filters=asked.filters).filters is asked.filters


def test_a_models_filter_says_where_it_is_malformed() -> None:
    """The refusal is that of `parse_filter`, with the field's path in front.

    If this fails: a request over the wire hears less about its filter than a caller in Python.
    """
    with pytest.raises(ValidationError) as caught:
        Asking.model_validate({"filters": {"type": "and", "filters": [EQ, {"type": "like"}]}})
    [finding] = caught.value.errors()
    refused = refused_filter(finding, "params.filters")
    assert isinstance(refused, InvalidFilter)
    assert refused.field == "params.filters.filters[1].type"
    assert refused.hint.startswith("Valid types: eq")
    with pytest.raises(ValidationError) as other:
        Asking.model_validate({"filters": 5})
    assert refused_filter({"type": "missing", "loc": ()}, "filters") is None
    assert refused_filter(other.value.errors()[0], "filters") is not None
