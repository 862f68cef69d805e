"""Routers of applications: packages register them under the entry-point group `corral.routers`.

    router = APIRouter(prefix="/hello", tags=["Hello"], route_class=NotFoundRoute, responses=ERRORS)
    APPLICATION = Application(router, paths=("/hello",), refusal=...)

    [project.entry-points."corral.routers"]
    hello = "corral_hello:APPLICATION"

The gate, the quotas, the limits and the audit log apply to these routes as to Corral's own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any, TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import ConfigError, Unauthenticated
from corral.providers.base.config import ServerSettings
from corral.server.errors import ERRORS, response_of
from corral.server.limits import refuse
from corral.server.rewriting import RefusalRewriter, Rewrite
from corral.server.routing import ContractRoute, routes_of

ENTRY_POINT_GROUP = "corral.routers"

Refusal: TypeAlias = Callable[[int, str, str], dict[str, Any]]
"""Makes an application's error body of (status, code, message)."""

_KEY_HEADER = b"api-key"
"""The header in which Qdrant's and other clients send their key."""


def with_bearer(scope: Scope, settings: ServerSettings) -> Scope:
    """Return a request with its `api-key` header, if any, converted to a bearer token."""
    headers = Headers(scope=scope)
    key = headers.get(_KEY_HEADER.decode())
    if key is None or "authorization" in headers:
        return scope
    bearer = (b"authorization", b"Bearer " + key.encode("latin-1"))
    return {**scope, "headers": [*scope["headers"], bearer]}


@dataclass(frozen=True, slots=True)
class Application:
    """An application's routes, its error format, and where its requests have the API key.

    Attributes:
        router: The routes, each a `ContractRoute` or a subclass.
        paths: Prefixes of paths to which `refusal` and `with_key` apply, including unknown paths.
        refusal: Makes the body of a 4xx or 5xx under `paths`; None: Corral's common format.
        with_key: Returns a request with its key as a bearer token, which the gate expects; raises
            `Unauthenticated`. Default: also accepts the `api-key` header.
        description: Text of the HTTP reference for the router's first tag.
        root_replies: The reply to `GET /`, by prefix of the User-Agent.
    """

    router: APIRouter
    paths: tuple[str, ...] = ()
    refusal: Refusal | None = None
    with_key: Callable[[Scope, ServerSettings], Scope] = with_bearer
    description: str = ""
    root_replies: Mapping[str, BaseModel] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        """Return True if a path is under one of `paths`."""
        return any(path == each or path.startswith(f"{each}/") for each in self.paths)

    @property
    def routes(self) -> list[APIRoute]:
        """The routes of the router."""
        return routes_of(self.router)


def refusals(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of routes that use a model for error bodies."""
    return {name: {**each, "model": model} for name, each in ERRORS.items()}


def installed_applications(routes: Sequence[APIRoute]) -> list[Application]:
    """Return the applications of all installed packages, in the order of their entry points' names.

    Args:
        routes: Corral's own routes.

    Raises:
        ConfigError: An entry point cannot be imported or is not an `Application`, or one of its
            routes is not a `ContractRoute` or has a path that is already served.
    """
    applications: list[Application] = []
    served = list(routes)
    for entry in _entry_points(tuple(sys.path)):
        application = _loaded(entry)
        if problem := _problem(application, served):
            raise _broken(entry, problem)
        applications.append(application)
        served += application.routes
    return applications


@cache
def _entry_points(_: tuple[str, ...]) -> list[metadata.EntryPoint]:
    """Return the installed routers by name; packages' metadata is read once per path."""
    return sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)


def _loaded(entry: metadata.EntryPoint) -> Application:
    try:
        application = entry.load()
    except (Exception, SystemExit) as error:  # an import runs the package's code
        raise _broken(entry, f"cannot be imported: {_cause(error)}") from error
    if not isinstance(application, Application):
        raise _broken(entry, f"is not an Application but {type(application).__name__}")
    for route in application.router.routes:
        if not isinstance(route, ContractRoute):
            path = getattr(route, "path", "?")
            raise _broken(
                entry,
                f"has the route {path}, which is not a ContractRoute and would not check roles; "
                "use APIRouter(route_class=ContractRoute)",
            )
        try:  # Read the signature now, not at the first request; Corral's own routes have tests.
            _ = entry.value.startswith("corral.server.") or route.dependant
        except Exception as error:  # FastAPI and pydantic raise many types for a bad signature
            raise _broken(entry, f"has the route {route.path}, with {_cause(error)}") from error
    return application


def _problem(application: Application, served: Sequence[APIRoute]) -> str:
    """Return the conflict of an application's paths with served routes; "" if there is none."""
    for other in served:
        if application.covers(other.path_format):
            return f"claims {', '.join(application.paths)}, but {other.path_format} is served there"
        for route in application.routes:
            if _overlap(route, other):
                return f"has the route {route.path_format}, but {other.path_format} is served"
    return ""


def _overlap(one: APIRoute, other: APIRoute) -> bool:
    if not (one.methods or set()) & (other.methods or set()):
        return False
    return bool(one.path_regex.match(other.path_format) or other.path_regex.match(one.path_format))


def _broken(entry: metadata.EntryPoint, problem: str) -> ConfigError:
    return ConfigError(
        f"The router {entry.name!r} is broken: {entry.value} {problem}.",
        hint="Fix or uninstall its package.",
    )


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(". ")


class ApplicationForms:
    """ASGI middleware around the gate: converts applications' keys and errors.

    It also rewrites errors of the gate, of limits and of missing routes.

    Args:
        app: The inner application.
        applications: The applications with `paths` to watch.
        settings: `server` of the configuration.
    """

    def __init__(
        self, app: ASGIApp, applications: Sequence[Application], settings: ServerSettings
    ) -> None:
        self._app = app
        self._applications = applications
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        application = application_at(path, self._applications)
        if application is None:
            await self._app(scope, receive, send)
            return
        if application.refusal is not None:
            send = RefusalRewriter(send, _rewriting(application.refusal))
        try:
            scope = application.with_key(scope, self._settings)
        except Unauthenticated as error:
            await refuse(response_of(error), receive, send)
            return
        await self._app(scope, receive, send)


def application_at(path: str, applications: Sequence[Application]) -> Application | None:
    """Return the application that covers a path, None if none does."""
    return next((each for each in applications if each.covers(path)), None)


def _rewriting(refusal: Refusal) -> Rewrite:
    """Return a rewriter of errors from the common format to an application's."""

    def rewrite(status: int, body: bytes) -> tuple[bytes, Mapping[str, str]]:
        try:
            error = json.loads(body)["error"]
            made = refusal(status, error["code"] or "", error["message"])
        except (ValueError, KeyError, TypeError):
            return body, {}
        return json.dumps(made, ensure_ascii=False).encode("utf-8", "replace"), {}

    return rewrite
