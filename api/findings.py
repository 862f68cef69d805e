"""What pydantic finds wrong, in the words of a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

from pydantic import ValidationError

_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dataclass_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "enum": "must be {expected}",
    "extra_forbidden": "not a known key",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "int_from_float": "must be an integer",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "missing",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_too_long": "must have <= {max_length} characters",
    "string_too_short": "must have >= {min_length} characters",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode",
    "too_long": "must have <= {max_length} {units} (got {length})",
    "too_short": "must have >= {min_length} {units} (got {length})",
    "unexpected_keyword_argument": "not a known key",
    "union_tag_invalid": "{discriminator} must be one of {expected_tags}",
    "union_tag_not_found": "{discriminator} is missing",
}
"""What to say of pydantic's kinds of findings that people meet; others keep its words."""


def said(finding: Mapping[str, Any]) -> str:
    """Return what one of `ValidationError.errors()` says, without pydantic's name for its kind."""
    limits = finding.get("ctx") or {}
    if limits.get("min_length") == 1:
        return "must not be empty"
    if words := _WORDS.get(finding["type"]):
        given = finding.get("input")
        units = "characters" if isinstance(given, str) else "items"
        length = limits.get("actual_length")  # None where pydantic did not count to the end
        if length is None:
            length = len(given) if isinstance(given, Sized) else "more"
        return words.format_map({**limits, "units": units, "length": length})
    return str(finding["msg"]).removeprefix("Value error, ")


def first_finding(error: ValidationError, *above: str) -> tuple[str, str]:
    """Return where the first finding is, a dotted path below `above`, and what it says.

    Without what was given: that may be a secret or a user's text.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, (*above, *first["loc"]))), said(first)


def sent_location(finding: Mapping[str, Any], data: Any) -> Iterator[str | int]:
    """Yield the parts of a finding's location that are in what was sent.

    Pydantic's tags and class names are not, even where a field has the tag's name; a missing field
    is not either, but it is the point.
    """
    tagged = None
    for number, part in enumerate(finding["loc"], start=1):
        if number < len(finding["loc"]) and data is not tagged and _is_tag(data, part):
            tagged = data
        elif holds(data, part):
            data = data[part]
            yield part
        elif finding["type"] == "missing" and number == len(finding["loc"]):
            yield part


def _is_tag(data: Any, part: str | int) -> bool:
    return isinstance(data, Mapping) and data.get("type") == part


def holds(data: Any, part: str | int) -> bool:
    """Return True if a list has an item of this number, or a mapping one of this name."""
    if isinstance(part, int):
        return isinstance(data, list | tuple) and part < len(data)
    return isinstance(data, Mapping) and part in data
