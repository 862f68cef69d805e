"""Filters in Qdrant's form: tokens, orders of strings, and hostile keys; no engine needed."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from qdrant_client import models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from corral.api.chunks import Chunk
from corral.api.filters import Comparison, matches, parse_filter
from corral.providers.vector_io.kit.sparse import SparseChunk, packed
from corral.providers.vector_io.qdrant.filters import (
    all_of,
    holding,
    not_of_version,
    of_documents,
    of_references,
    translate,
)
from corral.providers.vector_io.qdrant.records import (
    ORDER_INDEX,
    TEXT_BYTES,
    TOKENS,
    levels,
    make_point,
    point_id,
    unpacked,
)

from .helpers import DB


def passes(native: dict[str, Any], stored: list[int]) -> bool:
    """Evaluate a native filter of ranges: the field passes if one of its numbers does."""
    if "key" in native:
        assert native["key"] == ORDER_INDEX
        bounds = native["range"]
        tests = {"gt": float.__gt__, "gte": float.__ge__, "lt": float.__lt__, "lte": float.__le__}
        return any(
            all(tests[kind](float(number), float(bound)) for kind, bound in bounds.items())
            for number in stored
        )
    assert set(native) <= {"must", "should"}
    return all(passes(part, stored) for part in native.get("must", [])) and (
        "should" not in native or any(passes(part, stored) for part in native["should"])
    )


def said(data: Any) -> Any:
    """Return a filter without what it leaves out, which one transport sends as empty lists."""
    if isinstance(data, dict):
        return {key: said(value) for key, value in data.items() if value not in (None, [])}
    return [said(item) for item in data] if isinstance(data, list) else data


def random_text(rng: np.random.Generator) -> str:
    """Return a text of 0 to 32 bytes out of few letters, so that many share a beginning."""
    return "".join(rng.choice(["a", "b", "é", "天", "🙂", "\x01"], rng.integers(0, 12)))


@pytest.mark.parametrize("kind", ["gt", "gte", "lt", "lte"])
def test_strings_are_ordered_by_their_levels(kind: str) -> None:
    """For 3,000 pairs: everything that is right passes, and what else passes shares 24 bytes.

    If this fails: a string that ends where a level ends is taken for a shorter or longer one.
    """
    rng = np.random.default_rng(12)
    for _ in range(3000):
        value, stored = random_text(rng), random_text(rng)
        if rng.random() < 0.5:
            stored = value[: rng.integers(0, len(value) + 1)] + stored
        comparison = parse_filter({"type": kind, "key": "x", "value": value})
        assert comparison is not None
        exact = matches(comparison, {"x": stored})
        native = passes(translate(comparison), levels("x", stored))
        same_start = value.encode()[:TEXT_BYTES] == stored.encode()[:TEXT_BYTES]
        assert native == exact or (native and same_start), (value, stored)


@pytest.mark.parametrize("kind", ["gt", "gte", "lt", "lte"])
def test_numbers_that_no_double_holds_pass_when_in_doubt(kind: str) -> None:
    """Integers beyond 2^53 and fractions: nothing right is left out; small integers are exact."""
    edge = 2**53
    values = [
        0,
        1,
        -1,
        -0.0,
        0.1,
        0.5,
        -1e-300,
        edge - 1,
        edge,
        edge + 1,
        edge + 3,
        2**63 - 1,
        -edge - 1,
        1e300,
    ]
    for value in values:
        for stored in values:
            comparison = Comparison(kind, "x", value)  # type: ignore[arg-type]
            exact = matches(comparison, {"x": stored})
            native = passes(translate(comparison), levels("x", stored))
            assert native or not exact, (value, stored)
            if abs(value) < edge:
                assert native == exact, (value, stored)


def test_tokens_tell_kinds_keys_and_values_apart() -> None:
    """1 and 1.0 are one value; "1", true, other keys and a document of that name are others."""
    assert TOKENS.value("x", 1) == TOKENS.value("x", 1.0)
    assert TOKENS.value("x", 2**63) == TOKENS.value("x", float(2**63))
    assert TOKENS.value("x", 0) == TOKENS.value("x", -0.0)
    different = [
        TOKENS.value("x", 1),
        TOKENS.value("x", "1"),
        TOKENS.value("x", True),
        TOKENS.value("x", "True"),
        TOKENS.value("x1", ""),
        TOKENS.value("", "x1"),
        TOKENS.value("x", 2**53),
        TOKENS.value("x", 2**53 + 1),
        TOKENS.value("x", 0.1),
        TOKENS.document("1"),
    ]
    assert len(set(different)) == len(different)
    assert all(re.fullmatch("[A-Za-z0-9_-]{22}", token) for token in different)


def test_no_key_or_value_appears_in_a_native_filter() -> None:
    """Whatever stands in a filter, its translation holds hashes and numbers only."""
    hostile = ["a.b[0]", '"; DROP', "$x", "天气", "x" * 1000]
    for key in hostile:
        parts: list[dict[str, Any]] = []
        parts += [{"type": "eq", "key": key, "value": value} for value in hostile]
        parts += [{"type": "gt", "key": key, "value": value} for value in hostile]
        parts.append({"type": "nin", "key": key, "value": hostile})
        parsed = parse_filter({"type": "or", "filters": parts})
        assert parsed is not None
        text = json.dumps(translate(parsed), ensure_ascii=False)
        assert not any(one in text for one in hostile)


def test_every_native_filter_can_be_sent_over_grpc() -> None:
    """Both transports take the same objects: all comparisons, both combinations, terms and bands.

    If this fails: a filter works over REST only.
    """
    parts: list[Any] = [
        {"type": kind, "key": "x", "value": value}
        for kind in ("eq", "ne", "gt", "gte", "lt", "lte")
        for value in (1, 2.5, "2024-05-01")
    ]
    parts += [{"type": kind, "key": "x", "value": [1, "a", True]} for kind in ("in", "nin")]
    parsed = parse_filter({"type": "and", "filters": [{"type": "or", "filters": parts}]})
    assert parsed is not None
    for native in (
        translate(parsed),
        all_of(translate(parsed), of_references([-3, 150])),
        holding(2**53 - 1),
        of_documents(frozenset({"d", "e"})),
        not_of_version(7),
    ):
        sent = models.Filter.model_validate(native)
        back = GrpcToRest.convert_filter(RestToGrpc.convert_filter(sent))
        assert said(back.model_dump()) == said(sent.model_dump())


def test_an_ordering_is_a_few_ranges_of_one_field() -> None:
    """Every level is an integer that a double holds; other keys and kinds have other ones.

    If this fails: strict mode refuses the filter, or engines that compare doubles round it.
    """
    for value in (5, -2.5, 2**62, "", "2024", "2024-05-01", "x" * 100, "🙂" * 9):
        own = levels("x", value)
        assert len(own) <= 6
        assert all(0 <= level < 2**53 for level in own)
        assert not {level >> 32 for level in own} & {level >> 32 for level in levels("y", value)}
        comparison = parse_filter({"type": "gte", "key": "x", "value": value})
        assert comparison is not None
        assert len(translate(comparison)["should"]) == len(own) + 1
    assert not {level >> 32 for level in levels("x", 5)} & {n >> 32 for n in levels("x", "5")}


def test_words_are_stored_as_text_and_read_as_they_are_packed() -> None:
    """A point's payload is JSON, and scores are computed from the bytes of `packed`.

    If this fails: what a point holds has another form than what its reader expects.
    """
    chunk = Chunk(chunk_id="a", content="x", metadata={})
    for keys, frequencies in (([], []), ([0, 5, 2**53 - 1], [1.0, 0.1 + 0.2, 100.0])):
        sparse = SparseChunk(keys, frequencies, 3, 0)
        payload = make_point(DB, chunk, np.ones(2, np.float32), sparse, 1).payload
        assert isinstance(payload["words"], str)
        assert unpacked(payload)["words"] == packed(keys, frequencies)


def test_point_ids_are_uuids_that_never_change() -> None:
    """Qdrant takes nothing else; a stored point is found again under the same one."""
    assert point_id("a") == "f8316299-b91b-54f8-8ef7-1b23245cc221"
    assert len({point_id(one) for one in ("a", "A", "a ", "天气", "x" * 255)}) == 5
