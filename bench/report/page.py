"""`report.html`: one file that asks nobody for anything, readable without its script."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from corral.bench.report import quality_sections, speed_sections, views, wording
from corral.bench.report.markup import Html, joined, tag, trusted
from corral.bench.report.report import Report
from corral.bench.report.tables import user

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What the page may load: nothing. A browser holds it to that, whatever a text has smuggled in."""

SECTIONS = (
    ("findings", "Findings", quality_sections.findings),
    ("quality", "Quality", quality_sections.quality),
    ("heat-map", "Heat map", quality_sections.heat_map),
    ("sweep", "Fusion weight", quality_sections.sweep),
    ("queries", "Queries", quality_sections.queries),
    ("tune", "Tuning", speed_sections.tuning),
    ("fidelity", "Fidelity", speed_sections.fidelity),
    ("fronts", "Recall and throughput", speed_sections.fronts),
    ("latency", "Latency", speed_sections.latencies),
    ("build", "Build", speed_sections.builds),
    ("failures", "Failures", speed_sections.failures),
    ("method", "Method", speed_sections.method),
)
"""Anchor, name in the table of contents, and what makes the section (None leaves it out)."""


def render(report: Report) -> str:
    """Return the page of a report; sections without rows are left out."""
    made = [(anchor, name, make(report)) for anchor, name, make in SECTIONS]
    links = [
        tag("li", tag("a", name, href=f"#{anchor}"))
        for anchor, name, content in made
        if content is not None
    ]
    contents = tag("nav", tag("ul", links), aria_label="Contents")
    main = tag("main", [content for _, _, content in made], id="main")
    skip = tag("a", "Skip to the findings", href="#main", class_="skip")
    body = tag("body", skip, _header(report), contents, main, tag("script", _own("page.js")))
    return f"<!DOCTYPE html>\n{tag('html', _head(report), body, lang='en')}\n"


def _head(report: Report) -> Html:
    metas = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
    ]
    title = tag("title", f"Corral benchmark, {report.started:%Y-%m-%d}")
    return tag("head", metas, title, tag("style", _own("style.css")))


def _header(report: Report) -> Html:
    figures = [
        (str(len(views.backends(report))), "backends"),
        (str(len(report.data_sets)), "data sets"),
        (f"{sum(d.queries for d in report.data_sets):,}", "queries"),
        (f"{sum(d.documents for d in report.data_sets):,}", "documents"),
        (wording.duration(report), "run time"),
        (str(len(report.failures)), "failures"),
    ]
    boxes = [tag("div", tag("dt", name), tag("dd", value)) for value, name in figures]
    day = f"{report.started:%d %B %Y}"
    return tag(
        "header",
        tag("p", "Corral benchmark", class_="kicker"),
        tag("h1", "Which mode, on which database?"),
        tag("p", f"{day} · Corral {report.corral_version} · ", user(wording.machine(report))),
        tag("dl", boxes, class_="key-figures"),
    )


@cache
def _own(name: str) -> Html:
    """A file of this package, to stand in the page as it is."""
    return joined(trusted((Path(__file__).parent / name).read_text("utf-8")))
