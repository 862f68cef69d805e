"""The benchmark's reports in the data folder, for the page that lists them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fastapi import APIRouter, Depends, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from corral.api.errors import NotFound
from corral.api.principal import Role
from corral.server.access.roles import Needs
from corral.server.errors import ERRORS
from corral.server.routing import NotFoundRoute, StackOf

FOLDER = "reports"
"""In the data folder: `corral bench quality --out ~/.corral/reports/NAME` puts one there."""
REPORT = "report.html"

# A report is one file with its style in it, and with a script that sorts its tables. In a sandbox
# that is of no origin and may ask for nothing: the server it comes from is a stranger to it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)

router = APIRouter(
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


@router.get("", summary="List benchmark reports")
async def list_reports(stack: StackOf) -> ReportList:
    """Return the reports in the data folder's `reports`, newest first."""
    found = sorted(_reports(stack.home), key=lambda path: -path.stat().st_mtime)
    return ReportList(data=[ReportInfo(name=p.parent.name, created=_time(p)) for p in found])


@router.get("/{name}", summary="Show a report", response_class=Response)
async def show(name: str, stack: StackOf) -> Response:
    """Return a report's page."""
    for path in _reports(stack.home):
        if path.parent.name == name:
            headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
            return FileResponse(path, media_type="text/html", headers=headers)
    raise NotFound(f"There is no report {name!r}.", hint="GET /reports lists them.", field="name")


def _reports(home: Path) -> list[Path]:
    return list((home / FOLDER).glob(f"*/{REPORT}"))


def _time(path: Path) -> str:
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return changed.isoformat(timespec="seconds")
