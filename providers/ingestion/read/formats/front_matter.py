"""Front matter of Markdown files: YAML between two lines of `---`, read as metadata."""

from __future__ import annotations

import datetime
import re
import sys
from typing import Any

from corral.api.invisible import clean_text

MAX_LENGTH = 8_192
"""Maximum number of characters of front matter; parsing that many takes 0.1 s."""
MAX_BRACKETS = 200
"""Maximum number of opening brackets; the parser's time is quadratic in their depth."""
MAX_KEYS = 32
MAX_VALUE_LENGTH = 300

_BLOCK = re.compile(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_OURS = {
    "", "document_id", "source", "filename", "url", "token_count", "metadata_token_count", "acl",
    "origin", "part_of", "parts",
}  # fmt: skip
"""Reserved names of metadata. The sender of a document sets them, so its text cannot."""


def read(text: str) -> dict[str, Any]:
    """Return the values in a text's front matter: strings, numbers, booleans and lists of these.

    Dates become ISO 8601 strings. YAML that is broken, too long or has aliases is ignored.
    """
    match = _BLOCK.match(text[: MAX_LENGTH + 1])
    if not match or sum(map(match[1].count, "[{")) > MAX_BRACKETS:
        return {}
    import yaml  # noqa: PLC0415 - most documents have no front matter

    try:
        # With aliases, one page of YAML can expand to a gigabyte of values.
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
    """Return a value if filters can compare it, else None."""
    if isinstance(given, list):
        values = [value for value in map(_scalar, given[:MAX_KEYS]) if value is not None]
        return values or None
    return _scalar(given)


def _scalar(given: Any) -> str | int | float | None:
    if isinstance(given, datetime.date):  # Includes datetime, a subclass.
        return given.isoformat()
    if isinstance(given, int | float):
        return given if abs(given) <= sys.float_info.max else None
    return _line(given)[:MAX_VALUE_LENGTH] or None if isinstance(given, str) else None


def _line(text: str) -> str:
    """Return a text on one line, without characters that YAML can escape but stores cannot hold."""
    return " ".join(clean_text(text).encode("utf-8", "replace").decode().split())
