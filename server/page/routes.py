"""Pages for people: what this server is, and its documentation. They ask no other host."""

from __future__ import annotations

from importlib import metadata, resources

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse

from corral.api.errors import NotFound
from corral.server import DISTRIBUTION
from corral.server.access.roles import PUBLIC
from corral.server.routing import ContractRoute

PLACES = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/v1/health",
    "providers": "/v1/providers",
    "models": "/v1/models",
    "vector_dbs": "/v1/vector-dbs",
}
"""Where things are, as `/` says it."""

ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")
"""Files of Swagger UI, from the package fastapi-swagger."""

# Whatever a page asks for comes from here; Swagger UI is started by a script in its page.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Corral</title>
<link rel="icon" href="docs/assets/favicon-32x32.png">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 3em auto; }}</style>
<h1>Corral {version}</h1>
<p>One fence around every vector database: vector, keyword and hybrid retrieval over HTTP.</p>
<ul>
{places}
</ul>
</html>
"""


class PageRoute(ContractRoute):
    """A route of a page: what is not there is a 404."""

    not_found_status = 404


router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[PUBLIC])


@router.get("/")
async def root(request: Request) -> Response:
    """Return what this is and where things are: HTML for a browser, JSON for everyone else."""
    version = metadata.version(DISTRIBUTION)
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"name": "Corral", "version": version, **PLACES})
    places = [f'<li><a href="{path[1:]}">{path}</a></li>' for path in PLACES.values()]
    page = _PAGE.format(version=version, places="\n".join(places))
    return HTMLResponse(page, headers=_HEADERS)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


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
