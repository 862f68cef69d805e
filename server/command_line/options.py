"""Option values that click has no type for."""

from __future__ import annotations

import json
from typing import Any

import click

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, not a table.")
"""On every command that prints data."""


def field_weight(given: str) -> tuple[str, float]:
    """Return the field and weight of `FIELD=WEIGHT`; the server checks the range."""
    field, separator, weight = given.rpartition("=")
    try:
        if not separator or not field:
            raise ValueError
        return field, float(weight)
    except ValueError:
        raise click.BadParameter(
            f"{given!r} is not FIELD=WEIGHT", param_hint="--field-weight"
        ) from None


def number_or_auto(given: str) -> int | str:
    """Return the number, or `auto`; the server checks the range."""
    if given == "auto":
        return given
    try:
        return int(given)
    except ValueError:
        raise click.UsageError(f"--k is {given!r}; it takes a number or auto.") from None


def encoding_of(given: str | None) -> str | None:
    """Return the name of an encoding of text; None for None."""
    try:
        if given is not None:
            "".encode(given)
    except LookupError:
        raise click.UsageError(
            f"--encoding is {given!r}; it takes a name such as latin-1 or utf-16."
        ) from None
    return given


def typed(given: str) -> Any:
    """Return `{"type": NAME}` for a name, and what JSON says for JSON."""
    return json.loads(given) if _is_json(given) else {"type": given}


def named_option(given: str) -> tuple[str, Any]:
    """Return the field and value of `NAME=VALUE`; what is no JSON is text."""
    name, separator, value = given.partition("=")
    if not name or not separator:
        raise click.UsageError(f"{given!r} is not of the form NAME=VALUE.")
    return name, json.loads(value) if _is_json(value) else value


def _is_json(given: str) -> bool:
    try:
        json.loads(given)
    except ValueError:
        return False
    return True
