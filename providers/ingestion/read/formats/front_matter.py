"""Front matter of Markdown: YAML between two lines of `---` as metadata."""

from __future__ import annotations

import datetime
import re
import sys
from typing import Any

from corral.api.invisible import clean_text

MAX_LENGTH = 8_192
"""Maximum characters of front matter; YAML takes 0.1 s for as many."""
MAX_BRACKETS = 200
"""Maximum lists and objects in brackets: the parser's time grows with the square of their depth."""
MAX_KEYS = 32
MAX_VALUE_LENGTH = 300

_BLOCK = re.compile(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_OURS = {
    "", "document_id", "source", "filename", "url", "token_count", "metadata_token_count", "acl",
    "origin", "part_of", "parts",
}  # fmt: skip
"""Names that say where a document comes from: its sender sets them, its text does not."""


def read(text: str) -> dict[str, Any]:
    """Return the values of a text's front matter: strings, numbers, booleans and lists of these.

    Dates are ISO 8601 text. YAML with aliases, too long or broken, is no front matter.
    """
    match = _BLOCK.match(text[: MAX_LENGTH + 1])
    if not match or sum(map(match[1].count, "[{")) > MAX_BRACKETS:
        return {}
    import yaml  # noqa: PLC0415 - most documents need none of it

    try:
        # Aliases make a page of YAML a gigabyte of values.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1])):
            return {}
        values = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return {}
    if not isinstance(values, dict):
        return {}
    taken = {
        name: value
        for key, given in values.items()
        if isinstance(key, str) and (name := _line(key)) not in _OURS and len(name) <= 100
        if (value := _value(given)) is not None
    }
    return dict(list(taken.items())[:MAX_KEYS])


def _value(given: Any) -> Any:
    """Return a value that can be filtered on, or None."""
    if isinstance(given, list):
        values = [value for value in map(_scalar, given[:MAX_KEYS]) if value is not None]
        return values or None
    return _scalar(given)


def _scalar(given: Any) -> str | int | float | None:
    if isinstance(given, datetime.date):  # and a datetime
        return given.isoformat()
    if isinstance(given, int | float):
        return given if abs(given) <= sys.float_info.max else None
    return _line(given)[:MAX_VALUE_LENGTH] or None if isinstance(given, str) else None


def _line(text: str) -> str:
    """Return a text on one line, without what escapes of YAML can make and no store can hold."""
    return " ".join(clean_text(text).encode("utf-8", "replace").decode().split())
