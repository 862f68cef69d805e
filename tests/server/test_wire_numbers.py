"""A boolean is no number and a text is neither, in the body of any route."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, RootModel, ValidationError

from corral.api.findings import said
from corral.api.wire import Strict
from corral.api.wire_numbers import ExactNumbers
from corral.server.routing import ContractRoute
from corral.server.tools.functions import ToolCall

from .harness import InProcess


class Numbers(Strict):
    """One field of each shape."""

    count: int | None = None
    share: float = 0.5
    either: int | str = 1
    flag: bool | None = None
    any_value: str | float | bool = 0.0
    weights: dict[str, float] | None = None
    several: list[int] | None = None
    number_or_word: int | Literal["auto"] = 1
    flag_or_names: bool | list[str] | None = None


class Outer(Strict):
    """A model that holds another, which pydantic had finished before."""

    inner: Numbers


@pytest.mark.parametrize(
    "given",
    [
        {"count": True},
        {"share": False},
        {"either": True},
        {"weights": {"a": True}},
        {"several": [1, True]},
    ],
)
def test_a_boolean_is_refused_where_a_number_belongs(given: dict[str, Any]) -> None:
    """`true` is not 1: alone, in a union with text, in a map, in a list, in a model inside.

    If this fails: `ttl_seconds: true` deletes chunks after a second, and `score_threshold: true`
    hides all but perfect hits.
    """
    for model, sent in ((Numbers, given), (Outer, {"inner": given})):
        with pytest.raises(ValidationError, match=r"number|integer"):
            model.model_validate(sent)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": "2"}, "must be an integer (got a string)"),
        ({"share": "0.25"}, "must be a number (got a string)"),
        ({"weights": {"a": "1"}}, "must be a number (got a string)"),
        ({"several": ["1"]}, "must be an integer"),
        ({"number_or_word": "3"}, "must be an integer (got a string)"),
        ({"flag": "yes"}, "must be true or false"),
        ({"flag": "true"}, "must be true or false"),
        ({"flag": 1}, "must be true or false"),
        ({"flag": 0.0}, "must be true or false"),
        ({"flag_or_names": "yes"}, "must be true or false"),
        ({"flag_or_names": 0}, "must be true or false"),
    ],
)
def test_a_text_is_no_number_and_no_boolean(given: dict[str, Any], words: str) -> None:
    """`"1"` is not 1, `"yes"` and 1 are not true: alone, in a union, a map, a list, a model inside.

    If this fails: `explain: "yes"` explains while `explain: "ja"` is refused, on one server.
    """
    for model, sent in ((Numbers, given), (Outer, {"inner": given})):
        with pytest.raises(ValidationError) as raised:
            model.model_validate(sent)
        assert words in [said(finding) for finding in raised.value.errors()]
        with pytest.raises(ValidationError) as raised:
            model.model_validate_json(json.dumps(sent))
        assert words in [said(finding) for finding in raised.value.errors()]


def test_numbers_and_booleans_pass_where_they_belong() -> None:
    """Numbers stay numbers, `2.0` still counts as 2, and booleans stay where one is allowed.

    If this fails: clients whose language writes 2.0 for 2 are refused.
    """
    sent = '{"count": 2.0, "share": 1, "either": 7, "flag": true, "any_value": true}'
    found = Numbers.model_validate_json(sent)
    assert (found.count, found.share, found.either) == (2, 1.0, 7)
    assert found.flag is True
    assert found.any_value is True
    words = '{"number_or_word": "auto", "flag_or_names": false, "any_value": "1", "either": "1"}'
    found = Numbers.model_validate_json(words)
    assert (found.number_or_word, found.any_value, found.either) == ("auto", "1", "1")
    assert found.flag_or_names is False
    computed = Numbers.model_validate({"count": np.int64(3), "share": np.float32(0.5)})
    assert (computed.count, computed.share) == (3, 0.5)
    assert Numbers.model_json_schema()["properties"]["share"]["type"] == "number"


def test_every_json_body_refuses_booleans_as_numbers(app: InProcess) -> None:
    """The model of every JSON body derives from `ExactNumbers`, or holds no number.

    If this fails: one route reads `true` as 1 while its neighbors refuse it.
    """
    app.register()
    bodies = {
        route.body_field.field_info.annotation
        for route in app.app.routes
        if isinstance(route, ContractRoute) and route.body_field
    }
    models = {body for body in bodies if isinstance(body, type) and issubclass(body, BaseModel)}
    assert len(models) > 20
    for model in models - {ToolCall}:
        is_form = model.__name__.startswith("Body_")  # its fields are texts
        assert is_form or issubclass(model, ExactNumbers | RootModel), model
