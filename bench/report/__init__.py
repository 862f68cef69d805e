"""Reports for people: `report.md` and a self-contained `report.html`, from a `report.json`.

    write_reports(report, folder)

`views` and `by_query` select and group rows, `sections` turns them into tables and other `blocks`
of data, and three renderers write these: `html` with Jinja2, `markdown`, and `terminal` with rich.
All are pure functions of the report. `wording` formats figures; `charts` draws SVG.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from corral.api.errors import MissingDependency
from corral.bench.report.html import render as render_html
from corral.bench.report.markdown import render as render_markdown
from corral.bench.report.report import Report

__all__ = ["HTML_NAME", "MARKDOWN_NAME", "render_html", "render_markdown", "write_reports"]

MARKDOWN_NAME = "report.md"
HTML_NAME = "report.html"


def write_reports(report: Report, folder: Path) -> list[Path]:
    """Write report.md and report.html into an existing folder, and return their paths.

    Without Jinja2, from the extra `bench`, write only report.md.
    """
    texts = {MARKDOWN_NAME: render_markdown(report)}
    with suppress(MissingDependency):
        texts[HTML_NAME] = render_html(report)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
