"""Routers that other packages install: served like Corral's own routes, or refused at startup."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.api.errors import ConfigError
from corral.api.principal import UNRESTRICTED, Role
from corral.server.app import create_app

from .harness import InProcess, Json, run_config
from .secured import Holder, holder, nobody
from .test_audit import lines

SERVER = Path(__file__).parents[2] / "server"
PIECES = "errors|limits|routers|routing|access.roles|access.audit|applications"
"""Modules of the server that an application may import."""

TOY = '''
from fastapi import APIRouter
from pydantic import BaseModel

from corral.server.errors import ERRORS
from corral.server.routers import Application
from corral.server.routing import NotFoundRoute, StackOf

router = APIRouter(
    prefix="/toy", tags=["Toy"], route_class=NotFoundRoute, responses=ERRORS
)


class Note(BaseModel):
    text: str


@router.get("/names")
async def names(stack: StackOf) -> list[str]:
    """Return the ids of the caller's vector DBs."""
    return [each.identifier for each in await stack.vector_dbs()]


@router.get("/vector-dbs/{vector_db_id}")
async def show(vector_db_id: str, stack: StackOf) -> str:
    """Return an embedding model."""
    return (await stack.vector_db(vector_db_id)).embedding_model


@router.post("/notes")
async def note(request: Note) -> Note:
    """Return a note."""
    return request


APPLICATION = Application(
    router,
    paths=("/toy",),
    refusal=lambda status, code, message: {"oops": message, "code": code},
    description="A toy.",
)
'''

BROKEN = {
    "import no_such_module": "cannot be imported: ModuleNotFoundError",
    "APPLICATION = 3": "is not an Application but int",
    TOY.replace("/toy", "/v1"): "claims /v1, but /v1/vector-dbs",
    TOY.replace('"/names"', '"/names", deprecated=True')
    .replace('prefix="/toy"', 'prefix="/collections"')
    .replace('"/names"', '""'): "has the route /collections, but /collections is served",
    TOY.replace(", route_class=NotFoundRoute", ""): "has the route /toy/names, which is not a "
    "ContractRoute",
    TOY.replace("request: Note", "request: Note, stack: object()"): "has the route /toy/notes, "
    "with ",
}
"""Sources of broken routers, with what the refusal says."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that installs a router package with some source."""
    site = tmp_path / "site"
    about = site / "corral_toy-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: corral-toy\nVersion: 1.0\n")
    entry = "[corral.routers]\ntoy = corral_toy_router:APPLICATION\n"
    (about / "entry_points.txt").write_text(entry)

    def installed(source: str) -> None:
        (site / "corral_toy_router.py").write_text(source)
        monkeypatch.syspath_prepend(site)

    yield installed
    sys.modules.pop("corral_toy_router", None)


@pytest.fixture
def app(install: Callable[[str], None], tmp_path: Path) -> Iterator[InProcess]:
    """Return an app with the toy router, which allows ten requests a minute."""
    install(TOY)
    settings = {"rate_limits": {"requests_per_minute": 10}}
    with InProcess(tmp_path / "home", run_config(server=settings)) as running:
        yield running


def test_an_installed_router_is_served(app: InProcess) -> None:
    """Its routes work, and the HTTP reference has them with their tag.

    If this fails: an application needs a fork of Corral.
    """
    app.register("notes")
    assert app.ok("GET", "/toy/names") == ["notes"]
    document = app.ok("GET", "/openapi.json")
    assert {"/toy/names", "/toy/notes"} <= set(document["paths"])
    assert {"name": "Toy", "description": "A toy."} in document["tags"]


def test_the_router_of_the_page_is_served(install: Callable[[str], None], tmp_path: Path) -> None:
    """The example in the documentation works as it stands.

    If this fails: who follows the page gets an error.
    """
    page = SERVER.parent / "docs" / "roads" / "your-application.md"
    [source] = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    install(source)
    with InProcess(tmp_path / "home") as app:
        app.register("notes")
        app.insert("A fence keeps the cattle in.", db="notes")
        question = {"vector_db_id": "notes", "text": "fence"}
        assert app.ok("POST", "/hello/ask", question) == ["A fence keeps the cattle in."]
        refused = app.send("POST", "/hello/ask", json={**question, "vector_db_id": "none"})
        assert (refused.status_code, set(refused.json())) == (404, {"problem"})


def test_the_gate_holds_for_an_installed_router(app: InProcess, tmp_path: Path) -> None:
    """No key, too small a role, too many requests: refused in its own form, and in the audit log.

    If this fails: an installed package opens a way around the keys.
    """
    ann = holder(app, "ann", tenant="acme")
    holder(app, "bob", Role.WRITER).register("theirs")

    def refusal(who: Holder, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        response = who.send(method, path, body)
        assert set(response.json()) == {"oops", "code"}
        return response.status_code, response.json()["code"]

    assert refusal(nobody(app), "GET", "/toy/names") == (401, "unauthenticated")
    assert ann.ok("GET", "/toy/names") == []
    assert refusal(ann, "POST", "/toy/notes", {"text": "x"}) == (403, "forbidden")
    assert refusal(ann, "GET", "/toy/vector-dbs/theirs") == (404, "not_found")
    assert refusal(ann, "GET", "/toy/nowhere") == (404, "no_such_route")
    for _ in range(6):
        ann.ok("GET", "/toy/names")
    assert refusal(ann, "GET", "/toy/names") == (429, "rate_limited")
    written = [line for line in lines(tmp_path / "home" / "audit") if "/toy" in line["action"]]
    assert [(line["user"], line["action"], line["status"]) for line in written] == [
        (None, "GET /toy/names", 401),
        ("ann", "GET /toy/names", 200),
        ("ann", "POST /toy/notes", 403),
        ("ann", "GET /toy/vector-dbs/{vector_db_id}", 404),
        ("ann", "GET /toy/*", 404),
        *[("ann", "GET /toy/names", 200)] * 6,
        ("ann", "GET /toy/names", 429),
    ]
    assert written[3]["vector_dbs"] == ["theirs"]


def test_an_api_key_header_is_a_key_there(app: InProcess) -> None:
    """A request without Authorization may send its key as `api-key`."""
    ann = holder(app, "ann")
    assert (
        nobody(app).send("GET", "/toy/names", None, {"api-key": str(ann.secret)}).status_code == 200
    )


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_router_is_named_at_startup(
    install: Callable[[str], None], tmp_path: Path, source: str
) -> None:
    """The app is not made: the error names entry point, package value and what is wrong.

    A command, which has an operator, works, so that one can look for the cause.

    If this fails: the server starts without the application, or one shadows another's routes.
    """
    install(source)
    with pytest.raises(ConfigError) as refused:
        create_app(run_config(), tmp_path / "home")
    message = str(refused.value)
    assert "The router 'toy' is broken: corral_toy_router:APPLICATION" in message
    assert BROKEN[source] in message
    assert "Fix or uninstall its package." in message
    create_app(run_config(), tmp_path / "home", UNRESTRICTED)


def imported(path: Path) -> list[str]:
    """Return the names that a file imports, with their modules."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_the_server_knows_no_application() -> None:
    """No module outside `server/applications` imports one, and these import the public pieces only.

    If this fails: an application cannot be taken out, or another package could not be written.
    """
    allowed = re.compile(rf"(?!corral\.)|corral\.(api|providers|server\.({PIECES}))(\.|$)")
    for path in SERVER.rglob("*.py"):
        is_application = path.parent.name == "applications"
        for name in imported(path):
            assert is_application or not name.startswith("corral.server.applications"), path
            assert not is_application or allowed.match(name), f"{path}: {name}"
