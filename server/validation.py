"""What pydantic says about a wrong request, in words that help whoever sent it.

Every finding names the field as the sender wrote it (no union tags, no class names), what was found
there and, for an unknown key, which keys there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pydantic_core
from pydantic import BaseModel, ValidationError

from corral.api.errors import InvalidRequest
from corral.api.filters import refused_filter
from corral.api.findings import holds, said, sent_location

Location = tuple[str | int, ...]
Json = dict[str, Any]

MAX_DETAILS = 20
"""Most single findings in a reply: a thousand equal ones help nobody."""
MAX_FINDINGS = 10_000
"""Above it the findings are counted and not read: each costs half a kilobyte and more."""

_OURS = ("value_error", "assertion_error")
_CHOICES = ("enum", "literal_error", "union_tag_invalid")
_MAX_QUOTED = 64


class InvalidBody(InvalidRequest):
    """A request breaks its schema; `details` lists the findings as {loc, msg, type}."""

    def __init__(self, message: str, *, field: str | None, details: list[Json]) -> None:
        super().__init__(message, field=field)
        self.details = details


def from_pydantic(
    error: ValidationError, raw: bytes, model: type[BaseModel], *, first: int = 0
) -> InvalidRequest:
    """Return the refusal of a body that `model` does not accept.

    Args:
        error: What pydantic raised.
        raw: The body.
        model: What was expected; its schema tells the known keys.
        first: Where `raw` is a piece of a body, the number that its list's first item has there.
    """
    if error.error_count() > MAX_FINDINGS:
        message = f"The body breaks its schema in {error.error_count()} places. See /docs."
        return InvalidBody(message, field=None, details=[])
    findings = error.errors(include_url=False)
    if findings[0]["type"] == "json_invalid":
        reason = findings[0]["msg"].removeprefix("Invalid JSON: ")
        if first:  # the place is one in the piece
            reason = f"{reason.partition(' at line')[0]}, behind item {first} of its list"
        return _invalid([_Finding((), f"The body is not valid JSON: {reason}.", "json_invalid")])
    data = pydantic_core.from_json(raw)
    if refused := refused_filter(findings[0], _path(tuple(_sent_location(findings[0], data)))):
        return refused
    meant = _meant(findings, data)
    told = [_finding(found, data, model, first) for found in meant[:MAX_DETAILS]]
    return _invalid(told, more=len(meant) - 1)


def from_framework(findings: Sequence[Any]) -> InvalidBody:
    """Return the refusal of a query or path parameter, as FastAPI saw it."""
    told = []
    for found in findings:
        location = tuple(found["loc"][1:])  # without "query"
        sent = _as_number(found.get("input"))
        if _is_no_file(found):
            message = f"{_path(location)}: send it as a file that has a filename."
        else:
            message = _sentence(location, found, sent)
        told.append(_Finding(location, message, found["type"]))
    return _invalid(told, more=len(told) - 1)


def _as_number(sent: Any) -> Any:
    """Return the number that a text of a query or a form is; anything else as it is."""
    if isinstance(sent, str) and len(sent) <= _MAX_QUOTED:
        with suppress(ValueError):
            return int(sent)
    return sent


def _is_no_file(found: Any) -> bool:
    """Return True where a form has a text for a file; the framework names its class then."""
    return found["type"] == "value_error" and "UploadFile" in found["msg"]


class _Finding:
    def __init__(self, location: Location, message: str, kind: str) -> None:
        self.location, self.message, self.kind = location, message, kind

    def as_json(self) -> Json:
        loc = [part if isinstance(part, int) else part[:255] for part in self.location]
        return {"loc": loc, "msg": self.message[:500], "type": self.kind}


def _invalid(findings: Sequence[_Finding], more: int = 0) -> InvalidBody:
    first = findings[0]
    others = f" ({more} more in error.detail.errors.)" if more else ""
    details = [finding.as_json() for finding in findings]
    return InvalidBody(first.message + others, field=_path(first.location) or None, details=details)


def _finding(found: Any, data: Any, model: type[BaseModel], first: int) -> _Finding:
    in_piece = tuple(_sent_location(found, data))
    location = (*in_piece[:1], *(p + first if isinstance(p, int) else p for p in in_piece[1:2]))
    location += in_piece[2:]
    if found["type"] == "extra_forbidden":
        known = list(_known_keys(model, in_piece[:-1], data))
        return _Finding(location, _unknown_key(location, known), "extra_forbidden")
    message = _sentence(location, found, found["input"])
    return _Finding(location, message, found["type"])


def _sentence(location: Location, found: Any, value: Any) -> str:
    path, kind, words = _path(location) or "The body", found["type"], said(found)
    if kind == "missing":
        return f"{path} is missing."
    if kind == "union_tag_not_found":
        return f"{path} needs a key 'type' that says which kind it is."
    if kind == "union_tag_invalid" and isinstance(value, dict):
        path, words, value = f"{path}.type", words.removeprefix("'type' "), value.get("type")
    got = "" if kind in _OURS or "_too_" in f"_{kind}" else f" (got {_describe(value, kind)})"
    colon = "" if words.startswith("must ") else ":"
    return f"{path}{colon} {words.replace('a mapping', 'an object')}{got}."


def _describe(value: Any, kind: str) -> str:
    """Describe what was found; quote text only if a name from a list was expected."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number beyond 1e15" if abs(value) >= 1e15 else str(value)
    if isinstance(value, str):
        quoted = kind in _CHOICES and len(value) <= _MAX_QUOTED
        return repr(value) if quoted else "a string"
    return {"list": "a list", "dict": "an object"}.get(type(value).__name__, "something else")


def _unknown_key(location: Location, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = f" Known here: {', '.join(known)}." if known else ""
    return f"{_path(location)} is not a known key.{hint}{listed}"


def _path(location: Location) -> str:
    """Return a location as people write it: `documents[0].content`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part[:255]}"
    return text.removeprefix(".")


def _sent_location(found: Any, data: Any) -> Iterator[str | int]:
    """Yield the parts of a finding's location that are in the body.

    A setting of a vector store may have been sent in its metadata.
    """
    name = next(iter(found["loc"]), "")
    in_metadata = found["type"] != "missing" and not holds(data, name)
    if in_metadata and holds(_metadata(data), name):
        data = data["metadata"]
        yield "metadata"
    yield from sent_location(found, data)


def _metadata(data: Any) -> Any:
    return data.get("metadata") if isinstance(data, dict) else None


def _meant(findings: Sequence[Any], data: Any) -> list[Any]:
    """Leave out what is not to the point: the findings of kinds that were not meant.

    A value that may be one of several kinds (a text or an address, say) fails as each of them.
    Meant is the one of which one of our own validators says what is wrong, else the one that it
    misses by the fewest findings, else the one that it resembles deepest.
    """
    tried: dict[Location, dict[Location, list[Any]]] = {}
    for found in findings:
        kind = _kind(found, data)
        tried.setdefault(kind[:-1], {}).setdefault(kind, []).append(found)
    dropped = set()
    for place, kinds in tried.items():
        meant = min(kinds, key=lambda kind: _distance(kinds[kind], data)) if place else ()
        dropped |= {id(f) for kind in kinds if place and kind != meant for f in kinds[kind]}
    return [found for found in findings if id(found) not in dropped]


def _kind(found: Any, data: Any) -> Location:
    """Return where a finding's kind of value was tried: the location with pydantic's name for it.

    Empty where there was only one kind.
    """
    location: Location = found["loc"]
    for number, part in enumerate(location, start=1):
        if not holds(data, part):
            is_field = found["type"] == "missing" and number == len(location)
            return () if is_field else location[:number]
        data = data[part]
    return ()


def _distance(findings: Sequence[Any], data: Any) -> tuple[bool, int, int]:
    ours = any(found["type"] in _OURS for found in findings)
    depth = max(len(tuple(_sent_location(found, data))) for found in findings)
    return not ours, len(findings), -depth


def _known_keys(model: type[BaseModel], location: Location, data: Any) -> Iterator[str]:
    """Yield the keys that the model's schema allows in the object at a location."""
    schema = _schema(model)
    nodes = list(_alternatives(schema, data, schema))
    for part in location:
        data = data[part]
        children = [_child(node, part) for node in nodes]
        nodes = [a for child in children if child for a in _alternatives(child, data, schema)]
    seen = [key for node in nodes for key in node.get("properties", ())]
    yield from dict.fromkeys(seen)


@cache
def _schema(model: type[BaseModel]) -> Json:
    return model.model_json_schema()


def _child(node: Json, part: str | int) -> Json | None:
    child: Any = (
        node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
    )
    return child if isinstance(child, dict) else None


def _alternatives(node: Json, data: Any, schema: Json) -> Iterator[Json]:
    """Yield the object and list schemas that a node stands for and that fit the body's `type`."""
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
