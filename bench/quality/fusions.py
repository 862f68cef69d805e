"""Names of fusions on the command line and in reports."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from corral.api.checks import AnyRanker
from corral.api.errors import InvalidRequest
from corral.api.findings import said
from corral.api.rankers import Ranker

NAMES = ("rrf", "weighted", "max")
_PARSER: TypeAdapter[AnyRanker] = TypeAdapter(Ranker)


def label_of(ranker: AnyRanker) -> str:
    """Return a ranker's name in reports: `rrf`, or `weighted(alpha=0.3)` with its settings."""
    plain = type(ranker)().model_dump(mode="json")
    given = ranker.model_dump(mode="json")
    parts = [f"{name}={_short(value)}" for name, value in given.items() if value != plain[name]]
    return f"{given['type']}({','.join(parts)})" if parts else str(given["type"])


def parse_fusion(text: str) -> AnyRanker:
    """Return the ranker for a name, or for JSON as in a registration's `ranker`.

    Raises:
        InvalidRequest: The text is neither; the message has the nearest and the valid names.
    """
    given = text.strip()
    try:
        data = json.loads(given) if given.startswith("{") else {"type": given}
        return _PARSER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        near = difflib.get_close_matches(given, NAMES, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        wrong = ": ".join([*map(str, first["loc"][1:]), said(first)])
        raise InvalidRequest(
            f"{given!r} is not a fusion ({wrong}).",
            hint=f"{meant}Give {', '.join(NAMES)}, or JSON such as "
            '{"type": "weighted", "alpha": 0.3}.',
            field="fusion",
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{given!r} is not JSON: {error}.", field="fusion") from None


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "/".join(f"{number:g}" for number in value.values())
    return f"{value:g}" if isinstance(value, float) else str(value)
