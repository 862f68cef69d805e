"""Error messages for pydantic's validation errors, over HTTP and in Python."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence, Sized
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

Location = tuple[str | int, ...]
Json = dict[str, Any]

OURS = ("value_error", "assertion_error")
"""Error types raised by our own validators; their messages already include the bad value."""

MAX_QUOTED = 64
"""Maximum characters of a name that a message quotes."""

_CHOICES = ("enum", "literal_error", "union_tag_invalid")
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
"""Messages for pydantic's common error types; all other types keep pydantic's message."""


def said(finding: Mapping[str, Any]) -> str:
    """Return the message for an item of `ValidationError.errors()`.

    If several findings were merged into one, its key `words` holds the message.
    """
    if text := finding.get("words"):
        return str(text)
    limits = finding.get("ctx") or {}
    if limits.get("min_length") == 1:
        return "must not be empty"
    if words := _WORDS.get(finding["type"]):
        given = finding.get("input")
        units = "characters" if isinstance(given, str) else "items"
        length = limits.get("actual_length")  # None if pydantic stopped counting early
        if length is None:
            length = len(given) if isinstance(given, Sized) else "more"
        return words.format_map({**limits, "units": units, "length": length})
    return str(finding["msg"]).removeprefix("Value error, ")


def first_finding(error: ValidationError, *above: str) -> tuple[str, str]:
    """Return the dotted path, below `above`, and the message of the first finding.

    The message leaves out the input, which may be a secret or a user's text.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, (*above, *first["loc"]))), said(first)


def sent_location(finding: Mapping[str, Any], data: Any) -> Iterator[str | int]:
    """Yield the parts of a finding's location that exist in the request body.

    Skip pydantic's union tags and class names, even if a field has the tag's name. A missing field
    does not exist in the body, but is yielded: it is what the finding is about.
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
    """Return True if a list has an item with this index, or a mapping has this key."""
    if isinstance(part, int):
        return isinstance(data, list | tuple) and part < len(data)
    return isinstance(data, Mapping) and part in data


def sentence(path: str, finding: Mapping[str, Any], value: Any) -> str:
    """Return an item of `ValidationError.errors()` as a sentence that includes the bad value.

    Args:
        path: The field's path; empty if the finding concerns several fields.
        finding: The item, with `type` and `msg`.
        value: The value at `path`.
    """
    kind, words = finding["type"], said(finding)
    if not path:
        return f"{words}."
    if kind == "missing":
        return f"{path} is missing."
    if kind == "union_tag_not_found":
        return f"{path} needs a key 'type' that says which kind it is."
    if kind == "union_tag_invalid" and isinstance(value, dict):
        path, words, value = f"{path}.type", words.removeprefix("'type' "), value.get("type")
    counted = kind in OURS or "_too_" in f"_{kind}"
    got = "" if counted else f" (got {_described(value, kind)})"
    colon = "" if words.startswith("must ") else ":"
    return f"{path}{colon} {words.replace('a mapping', 'an object')}{got}."


def _described(value: Any, kind: str) -> str:
    """Describe a bad value; quote text only if a name from a list was expected."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number beyond 1e15" if abs(value) >= 1e15 else str(value)
    if isinstance(value, str):
        quoted = kind in _CHOICES and len(value) <= MAX_QUOTED
        return repr(value) if quoted else "a string"
    return {"list": "a list", "dict": "an object"}.get(type(value).__name__, "something else")


def unknown_key(location: Location, valid: Sequence[str]) -> str:
    """Return a message for an unknown key that suggests the nearest valid key."""
    near = difflib.get_close_matches(str(location[-1]), valid, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = f" Known here: {', '.join(valid)}." if valid else ""
    return f"{path_of(location)} is not a known key.{hint}{listed}"


def path_of(location: Location) -> str:
    """Return a location as a path such as `documents[0].content`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part[:255]}"
    return text.removeprefix(".")


def known_keys(model: type[BaseModel], location: Location, data: Any) -> list[str]:
    """Return the keys that the model's schema allows in the object at a location."""
    nodes = _nodes(model, location, data)
    return list(dict.fromkeys(key for node in nodes for key in node.get("properties", ())))


def known_values(model: type[BaseModel], location: Location, data: Any) -> list[str]:
    """Return the values that the model's schema allows at a location; empty if it lists none."""
    nodes = _nodes(model, location, data)
    values = [value for node in nodes for value in node.get("enum", [node.get("const")])]
    return [value for value in values if isinstance(value, str)]


def _nodes(model: type[BaseModel], location: Location, data: Any) -> list[Json]:
    """Return the schemas at a location of a body, even if the body has no value there."""
    schema = _schema(model)
    nodes = list(_alternatives(schema, data, schema))
    for part in location:
        data = data[part] if holds(data, part) else None
        children = [_child(node, part) for node in nodes]
        nodes = [a for child in children if child for a in _alternatives(child, data, schema)]
    return nodes


@cache
def _schema(model: type[BaseModel]) -> Json:
    return model.model_json_schema()


def _child(node: Json, part: str | int) -> Json | None:
    child: Any = (
        node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
    )
    return child if isinstance(child, dict) else None


def _alternatives(node: Json, data: Any, schema: Json) -> Iterator[Json]:
    """Resolve a schema node; yield its alternatives that fit the body's `type`."""
    if "$ref" in node:
        yield from _alternatives(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], data, schema)
        return
    parts = node.get("anyOf") or node.get("oneOf")
    if parts:
        for part in parts:
            yield from _alternatives(part, data, schema)
        return
    tag = node.get("properties", {}).get("type", {}).get("const")
    if tag is None or not isinstance(data, dict) or data.get("type", tag) == tag:
        yield node
