"""Roles: a route says who may use it, the documentation lists it, the server keeps to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from corral.api.principal import Role
from corral.server.access.roles import Needs, declared
from corral.server.app import create_app
from corral.server.openai.routes import ALIAS
from corral.server.routing import ContractRoute

from .harness import InProcess, run_config
from .secured import holder, nobody

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
ORDER = ["public", "reader", "writer", "admin", "reader, default tenant", "operator"]


def table(app: FastAPI) -> Iterator[tuple[str, str, Needs]]:
    """Yield method, path and what it needs, for every route of an app.

    Raises:
        AssertionError: A route is none of ours, or says nothing about who may use it.
    """
    for found in iter_route_contexts(app.routes):
        route = found.original_route
        assert isinstance(route, ContractRoute), f"{found.path} is not behind `ContractRoute`"
        needs = declared(route.dependencies)
        assert needs is not None, f"{found.path} says nothing about who may use it"
        yield from ((method, str(found.path), needs) for method in sorted(found.methods or ()))


def rows(app: FastAPI) -> list[str]:
    """Return the rows of the page's table of routes."""
    own = [row for row in table(app) if not row[1].startswith(ALIAS)]
    found = sorted(own, key=lambda row: (ORDER.index(row[2].name), row[1], row[0]))
    plain = [(method, re.sub(r":id\}", "}", path), needs.name) for method, path, needs in found]
    return [f"| {name} | `{method} {path}` |" for method, path, name in plain]


def test_every_route_says_who_may_use_it(tmp_path: Path) -> None:
    """Each is a route of ours, which checks its declared role before it reads a body.

    If this fails: use `ContractRoute` or a subclass of it as the router's `route_class`.
    """
    assert len(list(table(create_app(run_config(), tmp_path)))) > 20


def test_a_route_that_forgets_is_found(tmp_path: Path) -> None:
    """A plain route, on a router or on the app, fails the walk; so does a mounted application.

    If this fails: the test above would not notice a route without the check.
    """

    async def forgetful() -> str:
        return "all the documents"

    plain = APIRouter()
    plain.add_api_route("/v1/all", forgetful)
    plants: list[Callable[[FastAPI], Any]] = [
        lambda app: app.include_router(plain),
        lambda app: app.add_api_route("/v1/all", forgetful),
        lambda app: app.add_route("/v1/all", cast(Any, forgetful)),
        lambda app: app.mount("/v1/all", FastAPI()),
        lambda app: app.add_api_websocket_route("/v1/all", forgetful),
    ]
    for planted in plants:
        app = create_app(run_config(), tmp_path)
        planted(app)
        with pytest.raises(AssertionError, match="/v1/all"):
            list(table(app))


def test_a_forgetful_route_still_needs_a_key(app: InProcess) -> None:
    """The gate is before the routes: a planted plain route, or application, answers no stranger.

    If this fails: the check depends on each route's author.
    """

    async def forgetful() -> str:
        return "all the documents"

    inner = FastAPI()
    inner.add_api_route("/", forgetful)
    app.app.add_api_route("/v1/all", forgetful)
    app.app.mount("/v1/mounted", inner)
    assert app.send("GET", "/v1/all").text == '"all the documents"'
    holder(app, "ann")
    for path in ("/v1/all", "/v1/mounted/", "/v1/mounted"):
        assert nobody(app).status("GET", path) == 401


def test_a_role_includes_those_below_it(app: InProcess) -> None:
    """Each route answers 401 to nobody, 403 below its role, and something else from there on.

    If this fails: a reader writes, or a tenant's admin does what the operator alone may.
    """
    holders = [
        holder(app, f"{role} of {tenant or 'all'}", role, tenant=tenant)
        for role in Role
        for tenant in ("acme", "")
    ]
    for method, path, needs in table(app.app):
        if needs.name == "public":
            continue
        sent = re.sub(r"\{\w+(:\w+)?\}", "absent", path)
        assert nobody(app).status(method, sent) == 401, (method, path)
        for who in holders:
            allowed = needs.includes(who.principal)
            assert (who.status(method, sent) != 403) is allowed, (method, path, who.principal)


def test_a_writer_of_the_default_tenant_is_no_operator(app: InProcess) -> None:
    """The operator is an admin without a tenant; a key with less is refused what is everyone's."""
    for role in (Role.READER, Role.WRITER):
        assert holder(app, role, role).status("GET", "/v1/orphans") == 403
    body = {"orphans": [{"provider_id": "sqlite", "name": "x"}]}
    admin = holder(app, "a", Role.ADMIN, tenant="acme")
    assert admin.status("POST", "/v1/orphans/remove", body) == 403


def test_the_documentation_lists_every_route(tmp_path: Path) -> None:
    """docs/access.md has a row for each route with its role, and no other.

    If this fails: put the rows that the message shows into the page's table of routes.
    """
    wanted = rows(create_app(run_config(), tmp_path))
    row = rf"^\| (?:{'|'.join(ORDER)}) \| `[A-Z]+ .*$"
    found = re.findall(row, PAGE.read_text("utf-8"), re.MULTILINE)
    assert found == wanted, "\n" + "\n".join(wanted)


def test_an_alias_needs_what_its_original_needs(tmp_path: Path) -> None:
    """A route under Llama Stack's prefix has the role of the one that it repeats.

    If this fails: what a role may not do, it does under another address.
    """
    needed = {
        (method, path): needs.name
        for method, path, needs in table(create_app(run_config(), tmp_path))
    }
    aliases = {row: name for row, name in needed.items() if row[1].startswith(ALIAS)}
    assert len(aliases) > 10
    for (method, path), name in aliases.items():
        assert needed[method, "/v1" + path.removeprefix(ALIAS)] == name, (method, path)
    deleting = {
        needed["DELETE", f"/v1/{path}:id}}"]
        for path in ("vector-dbs/{vector_db_id", "vector_stores/{vector_store_id")
    }
    assert deleting == {"admin"}


def test_the_openapi_document_says_which_routes_need_a_key(app: InProcess) -> None:
    """Each but the public ones names the bearer scheme, so that clients and /docs offer it."""
    document = app.ok("GET", "/openapi.json")
    assert set(document["components"]["securitySchemes"]) == {"HTTPBearer"}
    public = {path for _, path, needs in table(app.app) if needs.name == "public"}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) is (path not in public), path


def test_a_route_without_a_declaration_gets_the_safe_one() -> None:
    """To GET needs a reader; whatever else, a writer."""

    async def endpoint() -> None:
        return None

    for method, name in (("GET", "reader"), ("POST", "writer"), ("DELETE", "writer")):
        needs = declared(ContractRoute("/x", endpoint, methods=[method]).dependencies)
        assert needs is not None
        assert needs.name == name
    assert declared(APIRoute("/x", endpoint).dependencies) is None
