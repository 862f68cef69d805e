"""`report.html`: one file that loads no other files and is readable without its script."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.api.errors import MissingDependency
from corral.bench.report import drawing, views, wording
from corral.bench.report.report import Report
from corral.bench.report.sections import sections

if TYPE_CHECKING:
    import jinja2

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The page's content security policy: it may load nothing, whatever its texts contain."""


def render(report: Report) -> str:
    """Return the page of a report.

    Raises:
        MissingDependency: Jinja2 is not installed.
    """
    figures = {
        "backends": str(len(views.backends(report))),
        "data sets": str(len(report.data_sets)),
        "queries": f"{sum(d.queries for d in report.data_sets):,}",
        "documents": f"{sum(d.documents for d in report.data_sets):,}",
        "run time": wording.duration(report),
        "failures": str(len(report.failures)),
    }
    return _template().render(
        report=report,
        machine=wording.machine(report),
        figures=figures,
        sections=sections(report),
        policy=POLICY,
        style=_own("style.css"),
        script=_own("page.js"),
    )


@cache
def _template() -> jinja2.Template:
    try:
        import jinja2  # noqa: PLC0415 - the extra `bench` may be absent
    except ModuleNotFoundError:
        command = "pip install 'corral-rag[bench]'"
        raise MissingDependency("The page of a report", "jinja2", command) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_written,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["block"] = lambda value, kind: type(value).__name__ == kind
    environment.globals |= {"outline": drawing.outline, "short": wording.short}
    environment.globals["colors"] = drawing.COLORS
    return environment.get_template("page.html.jinja")


def _written(value: Any) -> Any:
    """Return a text without forbidden characters, or a number with at most two decimals."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return wording.clean(value) if type(value) is str else value


@cache
def _own(name: str) -> str:
    """Return a file of this package."""
    return (Path(__file__).parent / name).read_text("utf-8")
