"""Reports for people: `report.md` and a self-contained `report.html`, from a `report.json`.

    write_reports(report, folder)

`views` and `by_query` pick and group rows, `sections` makes them tables and other `blocks` of data,
once; three renderers write those: `html` by Jinja2, `markdown`, and `terminal` by rich. All are
pure functions of the report. `wording` writes figures; `charts` draws SVG.
"""

from __future__ import annotations

from pathlib import Path

from corral.bench.report.html import render as render_html
from corral.bench.report.markdown import render as render_markdown
from corral.bench.report.report import Report

__all__ = ["HTML_NAME", "MARKDOWN_NAME", "render_html", "render_markdown", "write_reports"]

MARKDOWN_NAME = "report.md"
HTML_NAME = "report.html"


def write_reports(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write both reports into an existing folder; return the paths of report.md and report.html."""
    paths = folder / MARKDOWN_NAME, folder / HTML_NAME
    for path, text in zip(paths, (render_markdown(report), render_html(report)), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
