"""The id of a request and the template of its route, for logs, refusals and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from itertools import takewhile

from fastapi.routing import APIRoute
from starlette.types import Scope

REQUEST_ID = "x-request-id"
"""The header, and the key of a scope, with a request's id."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the current request; "" outside of one."""


def template_of(scope: Scope, routes: Sequence[APIRoute]) -> str:
    """Return the template of a request's route, even if it was refused before routing."""
    template = getattr(scope.get("route"), "path_format", None)
    if template is not None:
        return str(template)
    path = scope["path"]
    if match := next((route for route in routes if route.path_regex.match(path)), None):
        return match.path_format
    known = [_in_common(path.split("/"), route.path_format.split("/")) for route in routes]
    return "/".join([*max(known, key=len), "*"])


def _in_common(parts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the common beginning of two paths; a parameter in braces matches only itself."""
    both = zip(parts, others, strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], both)]
