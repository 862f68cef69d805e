"""Pages for browsers: console, documentation, benchmark reports. They use no other host."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from fastapi import APIRouter, Depends, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field

from corral.api.errors import NotFound
from corral.api.principal import Role
from corral.server import DISTRIBUTION
from corral.server.access.roles import PUBLIC, Needs
from corral.server.errors import ERRORS
from corral.server.routing import NotFoundRoute, StackOf

PLACES = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/v1/health",
    "providers": "/v1/providers",
    "models": "/v1/models",
    "vector_dbs": "/v1/vector-dbs",
}
"""The addresses in the reply of `/`."""

ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")
"""Files of Swagger UI, from the package fastapi-swagger."""

# A page loads everything from this server; Swagger UI is started by a script in its page.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY}

STATIC = Path(str(resources.files("corral.server.page") / "static"))
# The console has no script or style in its page, and sends requests to this server only.
_STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
_CONSOLE = {"content-security-policy": _STRICT, "cache-control": "no-cache"}
_LASTING = {**_CONSOLE, "cache-control": "public, max-age=31536000, immutable"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PARTS = {
    path.relative_to(STATIC).as_posix(): path
    for path in sorted(STATIC.rglob("*"))
    if path.suffix in _TYPES
}
"""The files that the console loads, by name."""
_VERSION = re.compile(r"[0-9a-f]{16}")
_OTHER_PAGE = "document.js"
"""The module of `/document`."""


router = APIRouter(route_class=NotFoundRoute, include_in_schema=False, dependencies=[PUBLIC])


@router.get("/")
async def root(request: Request) -> Response:
    """Redirect a browser to the console; return name, version and addresses to other clients.

    Clients of some applications compare versions here first: see `Application.root_replies`.
    """
    agent = request.headers.get("user-agent", "")
    for application in request.app.state.applications:
        for beginning, reply in application.root_replies.items():
            if agent.startswith(beginning):
                return JSONResponse(reply.model_dump())
    if "text/html" not in request.headers.get("accept", ""):
        version = metadata.version(DISTRIBUTION)
        return JSONResponse({"name": "Corral", "version": version, **PLACES})
    return Response(status_code=307, headers={"location": "ui/"})


@router.get("/ui")
@router.get("/ui/{place:path}")
async def console(request: Request) -> Response:
    """Return the console, which shows the view that the address names.

    Its links are relative, so that they work under a path prefix: the page goes up one step for
    each slash in its address, except for encoded slashes in ids.
    """
    path = request.scope["raw_path"].decode("latin-1")
    steps = path.count("/") - request.scope.get("root_path", "").count("/") - 1
    shell = _shell().replace("{base}", "../" * steps or "./")
    return Response(shell, media_type="text/html", headers=_CONSOLE)


@cache
def _shell() -> str:
    """Return the page, which loads all modules at once and not one after the other's imports."""
    hints = "\n".join(
        f'<link rel="modulepreload" href="page/{_version()}/{name}">'
        for name in _PARTS
        if name.endswith(".js") and name != _OTHER_PAGE
    )
    page = (STATIC / "index.html").read_text("utf-8")
    return page.replace("{version}", _version()).replace("{hints}", hints)


@cache
def _version() -> str:
    """Return a digest of the console's files. It is in their addresses, so browsers keep them."""
    files = ((name.encode(), _content(name)) for name in _PARTS)
    return hashlib.sha256(b"\0".join(part for file in files for part in file)).hexdigest()[:16]


@cache
def _content(name: str) -> bytes:
    return _PARTS[name].read_bytes()


@router.get("/page/{name:path}")
async def part(name: str) -> Response:
    """Return a file of the console; its name may follow the version of all files.

    A file with another version, as during an update of several replicas, is not cached.
    """
    version, _, rest = name.partition("/")
    name = rest if _VERSION.fullmatch(version) else name
    if name not in _PARTS:
        raise NotFound("No such file.", hint=f"Files: {', '.join(_PARTS)}.")
    headers = _LASTING if version == _version() else _CONSOLE
    return Response(_content(name), media_type=_TYPES[_PARTS[name].suffix], headers=headers)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document; the first request builds it, in a thread, in 0.4 s."""
    return await asyncio.to_thread(lambda: JSONResponse(request.app.openapi()))


@router.get("/docs")
async def docs() -> Response:
    """Return Swagger UI over the OpenAPI document. Addresses are relative, for path prefixes."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Corral: OpenAPI",
        swagger_js_url="docs/assets/swagger-ui-bundle.js",
        swagger_css_url="docs/assets/swagger-ui.css",
        swagger_favicon_url="docs/assets/favicon-32x32.png",
    )
    page.headers.update(_HEADERS)
    return page


@router.get("/docs/assets/{name}")
async def asset(name: str) -> Response:
    """Return a file of Swagger UI."""
    if name not in ASSETS:
        raise NotFound("No such file.", hint=f"Files: {', '.join(ASSETS)}.")
    with resources.as_file(resources.files("fastapi_swagger") / "resources" / name) as path:
        return FileResponse(path, headers={"cache-control": "max-age=3600", **_HEADERS})


# --- the benchmark's reports ----------------------------------------------------------------------

FOLDER = "reports"
"""Folder of the reports: `corral bench quality --out ~/.corral/reports/NAME` adds one."""
REPORT = "report.html"

# A report is one file with its style and a script that sorts its tables. It runs in a sandbox
# without an origin, which may send no request, not even to this server.
_SANDBOX = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)

reports = APIRouter(
    prefix="/reports",
    tags=["Inspect"],
    route_class=NotFoundRoute,
    responses=ERRORS,
    dependencies=[Depends(Needs(Role.READER, operator=True))],
)


class ReportInfo(BaseModel):
    """A report."""

    name: str = Field(description="Name of its folder.")
    created: str = Field(description="When it was written, ISO 8601.")


class ReportList(BaseModel):
    """The reports, newest first."""

    data: list[ReportInfo]


@reports.get("", summary="List benchmark reports")
async def list_reports(stack: StackOf) -> ReportList:
    """Return the reports in the data folder's `reports`, newest first."""
    paths = sorted(_reports(stack.home), key=lambda path: -path.stat().st_mtime)
    return ReportList(data=[ReportInfo(name=p.parent.name, created=_time(p)) for p in paths])


@reports.get("/{name}", summary="Show a report", response_class=Response)
async def show(name: str, stack: StackOf) -> Response:
    """Return a report's page."""
    for path in _reports(stack.home):
        if path.parent.name == name:
            headers = {"content-security-policy": _SANDBOX}
            return FileResponse(path, media_type="text/html", headers=headers)
    raise NotFound(f"There is no report {name!r}.", hint="GET /reports lists them.", field="name")


def _reports(home: Path) -> list[Path]:
    return list((home / FOLDER).glob(f"*/{REPORT}"))


def _time(path: Path) -> str:
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return changed.isoformat(timespec="seconds")
