"""A boolean is no number, in the body of any route."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, RootModel, ValidationError

from corral.api.wire import Strict
from corral.api.wire_numbers import ExactNumbers
from corral.server.applications.functions import ToolCall
from corral.server.routing import ContractRoute

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


def test_numbers_and_booleans_pass_where_they_belong() -> None:
    """Numbers stay numbers, `2.0` and `"2"` still count, and booleans stay where one is allowed.

    If this fails: clients whose language writes 2.0 for 2 are refused.
    """
    sent = '{"count": 2.0, "share": "0.25", "either": 7, "flag": true, "any_value": true}'
    found = Numbers.model_validate_json(sent)
    assert (found.count, found.share, found.either) == (2, 0.25, 7)
    assert found.flag is True
    assert found.any_value is True
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
