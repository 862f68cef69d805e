"""Pydantic's validation errors, reworded for the sender of a request.

Every finding names the field as the sender wrote it (no union tags, no class names), what was found
there and, for an unknown key, which keys there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pydantic_core
from pydantic import BaseModel, ValidationError

from corral.api.errors import InvalidRequest
from corral.api.filters import refused_filter
from corral.api.findings import (
    MAX_QUOTED,
    OURS,
    Json,
    Location,
    holds,
    known_keys,
    known_values,
    path_of,
    said,
    sent_location,
    sentence,
    unknown_key,
)

MAX_DETAILS = 20
"""Maximum findings in a reply, because a thousand equal ones do not help."""
MAX_FINDINGS = 10_000
"""Above this number, findings are only counted, because each takes half a kilobyte or more."""


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
        error: The error from pydantic.
        raw: The body.
        model: The expected model, whose schema has the known keys.
        first: If `raw` is a piece of a body, the number of its first list item in the body.
    """
    if error.error_count() > MAX_FINDINGS:
        message = f"The body breaks its schema in {error.error_count()} places. See /docs."
        return InvalidBody(message, field=None, details=[])
    findings = error.errors(include_url=False)
    if findings[0]["type"] == "json_invalid":
        reason = findings[0]["msg"].removeprefix("Invalid JSON: ")
        if first:  # the index is relative to the piece
            reason = f"{reason.partition(' at line')[0]}, behind item {first} of its list"
        return _invalid([_Finding((), f"The body is not valid JSON: {reason}.", "json_invalid")])
    data = pydantic_core.from_json(raw)
    if refused := refused_filter(findings[0], path_of(tuple(_sent_location(findings[0], data)))):
        return refused
    meant = _meant(findings, data)
    shown = [_finding(found, data, model, first) for found in meant[:MAX_DETAILS]]
    return _invalid(shown, more=len(meant) - 1)


def from_framework(findings: Sequence[Any]) -> InvalidBody:
    """Return the error for a query or path parameter, from FastAPI's error."""
    shown = []
    for finding in findings:
        location = tuple(finding["loc"][1:])  # without "query"
        sent = _as_number(finding.get("input"))
        if _is_no_file(finding):
            message = f"{path_of(location)}: send it as a file that has a filename."
        else:
            message = sentence(path_of(location) or "The body", finding, sent)
        shown.append(_Finding(location, message, finding["type"]))
    return _invalid(shown, more=len(shown) - 1)


def _as_number(sent: Any) -> Any:
    """Return a text of a query or a form as a number, if it is one."""
    if isinstance(sent, str) and len(sent) <= MAX_QUOTED:
        with suppress(ValueError):
            return int(sent)
    return sent


def _is_no_file(finding: Any) -> bool:
    """Return True if a form has text for a file; the framework then names its class."""
    return finding["type"] == "value_error" and "UploadFile" in finding["msg"]


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
    return InvalidBody(
        first.message + others, field=path_of(first.location) or None, details=details
    )


def _finding(finding: Any, data: Any, model: type[BaseModel], first: int) -> _Finding:
    in_piece = tuple(_sent_location(finding, data))
    location = (*in_piece[:1], *(p + first if isinstance(p, int) else p for p in in_piece[1:2]))
    location += in_piece[2:]
    if finding["type"] == "extra_forbidden":
        message = unknown_key(location, known_keys(model, in_piece[:-1], data))
        return _Finding(location, message, "extra_forbidden")
    message = sentence(path_of(location) or "The body", finding, finding["input"])
    if finding["type"] == "missing" and (values := known_values(model, in_piece, data)):
        message = f"{message} Send {' or '.join(values)}."
    return _Finding(location, message, finding["type"])


def _sent_location(finding: Any, data: Any) -> Iterator[str | int]:
    """Yield the parts of a finding's location that are in the body.

    A setting of a vector store may have been sent in its metadata.
    """
    name = next(iter(finding["loc"]), "")
    in_metadata = finding["type"] != "missing" and not holds(data, name)
    if in_metadata and holds(_metadata(data), name):
        data = data["metadata"]
        yield "metadata"
    yield from sent_location(finding, data)


def _metadata(data: Any) -> Any:
    return data.get("metadata") if isinstance(data, dict) else None


def _meant(findings: Sequence[Any], data: Any) -> list[Any]:
    """Drop the findings of union members that the sender did not mean.

    A value of a union (such as text or address) fails as each member. The intended member is the
    one that a validator of Corral rejects, else the one with the fewest findings, else the one with
    the deepest finding. If no member resembles the value, all findings are kept.
    """
    tried: dict[Location, dict[Location, list[Any]]] = {}
    for finding in findings:
        kind = _kind(finding, data)
        tried.setdefault(kind[:-1], {}).setdefault(kind, []).append(finding)
    dropped, words = set(), dict[int, Json]()
    for place, kinds in tried.items():
        if not place:
            continue
        meant = min(kinds, key=lambda kind: _distance(kind, kinds[kind], data))
        dropped |= {id(f) for kind in kinds if kind != meant for f in kinds[kind]}
        if all(_is_other_type(kind, kinds[kind]) for kind in kinds):
            types = dict.fromkeys(said(kinds[kind][0]).removeprefix("must be ") for kind in kinds)
            words[id(kinds[meant][0])] = {"words": f"must be {' or '.join(types)}"}
    return [f | words.get(id(f), {}) for f in findings if id(f) not in dropped]


def _is_other_type(kind: Location, findings: Sequence[Any]) -> bool:
    """Return True if a value has an entirely different type than the tried union member."""
    first: str = findings[0]["type"]
    is_of_type = first.endswith(("_type", "_parsing", "literal_error"))
    return is_of_type and bool(findings[0]["loc"] == kind)


def _kind(finding: Any, data: Any) -> Location:
    """Return the location of a finding up to its union member; empty without a union."""
    location: Location = finding["loc"]
    for number, part in enumerate(location, start=1):
        if not holds(data, part):
            is_field = finding["type"] == "missing" and number == len(location)
            return () if is_field else location[:number]
        data = data[part]
    return ()


def _distance(kind: Location, findings: Sequence[Any], data: Any) -> tuple[bool, bool, int, int]:
    ours = any(found["type"] in OURS for found in findings)
    depth = max(len(tuple(_sent_location(found, data))) for found in findings)
    return not ours, _is_other_type(kind, findings), len(findings), -depth
