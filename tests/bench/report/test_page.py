"""report.html: complete without its script, asks nobody for anything, and sound as a document."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from corral.bench.report import render_html
from corral.bench.report.html import POLICY
from corral.bench.report.report import Report
from corral.bench.report.sections import SECTIONS, sections
from corral.bench.report.wording import clean

from .hostile import PAYLOADS, hostile

VOID = {"meta", "br", "hr", "link", "input"}
"""Elements that have no end tag."""


class Document(HTMLParser):
    """The elements of a page with their attributes, and its text; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def document(report: Report) -> Document:
    """Return the example's page, parsed."""
    return Document(render_html(report))


def test_every_section_is_there_and_linked(document: Document, report: Report) -> None:
    """Each section has an id that the table of contents links to, and no id occurs twice."""
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    anchors = {section.anchor for section in sections(report)}
    assert len(anchors) == len(SECTIONS)
    assert anchors <= set(ids)
    links = {str(a["href"]).removeprefix("#") for a in document.all("a")}
    assert anchors <= links <= set(ids)


def test_nothing_is_loaded(document: Document) -> None:
    """No address but anchors and data:, none in the style sheet, and a policy forbids them."""
    for name, attributes in document.elements:
        assert name not in {"iframe", "object", "embed", "form", "base", "image", "use"}
        assert not {"src", "srcset", "action", "xlink:href", "ping"} & set(attributes)
        assert str(attributes.get("href", "#")).startswith(("#", "data:,"))
        assert not [key for key in attributes if key.startswith("on")]
    assert not re.search(r"url\(|@import|https?:|fetch|XMLHttp|import\(", "".join(document.texts))
    metas = document.all("meta")
    assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in metas
    assert "default-src 'none'" in POLICY


def test_it_is_sane_for_screen_readers(document: Document) -> None:
    """A language, one h1, headings of tables with a scope, charts with a name, boxes with one."""
    assert document.all("html") == [{"lang": "en"}]
    assert len(document.all("h1")) == len(document.all("main")) == 1
    assert all(a.get("scope") in {"col", "row", "rowgroup"} for a in document.all("th"))
    assert len(document.all("caption")) == len(document.all("table"))
    charts = [a for a in document.all("svg") if a.get("role") == "img"]
    assert len(charts) > 20
    assert all(len(str(a["aria-label"])) > 20 for a in charts)
    boxes = [a for a in document.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in boxes)


def test_figures_are_written_and_not_only_drawn(report: Report) -> None:
    """Each mean, interval and verdict of the quality rows stands in the page as text."""
    text = re.sub(r"\s+", " ", "\n".join(Document(render_html(report)).texts))
    for row in report.quality:
        for value in row.metrics.values():
            assert f"{value.mean:.3f}" in text
            assert f"[{value.low:.3f}, {value.high:.3f}]" in text
    for verdict in {row.comparison.verdict for row in report.quality if row.comparison}:
        assert verdict in text
    assert "Connection refused" in text


def test_hostile_text_stays_text(report: Report) -> None:
    """The page of a hostile report has the elements of the page of the harmless one, no others.

    If this fails: a query, a document, a name or a message has become markup.
    """
    harmless = Document(render_html(report))
    kinds = {name for name, _ in harmless.elements}
    page = Document(render_html(hostile(report)))
    assert len(page.all("details")) == len(harmless.all("details"))
    assert {name for name, _ in page.elements} <= kinds | {"ul", "li"}
    assert len(page.all("script")) == len(page.all("style")) == 1
    assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
    shown = "".join(page.texts)
    assert all(clean(payload) in shown for payload in PAYLOADS)


def test_documents_that_decided_are_shown_with_ranks(report: Report) -> None:
    """Each shown win and loss has them behind a click: judgement, both ranks, id, excerpt."""
    text = "".join(Document(render_html(report)).texts)
    excerpts = report.data_sets[0].excerpts
    for said in (
        f"relevance 2; rank 1 here, rank 7 in the baseline; d0{excerpts['d0']}",
        f"not relevant; not found here, rank 1 in the baseline; d1{excerpts['d1']}",
        f"not judged; rank 12 here, not found in the baseline; d2{excerpts['d2']}",
    ):
        assert said in text


def test_a_report_from_before_documents_is_a_page(report: Report) -> None:
    """Where a report has no excerpts, as older ones, queries are shown without documents.

    If this fails: nobody can look at the reports that they kept.
    """
    data = report.model_dump(mode="json")
    for row in data["quality"]:
        del row["shown"]
    for row in data["data_sets"]:
        del row["excerpts"]
    page = render_html(Report.model_validate(data))
    assert "Greatest wins" in page
    assert "Documents</summary>" not in page


@pytest.mark.parametrize("kept", ["quality", "answers", "speed", "builds", "tune", "failures"])
def test_a_report_of_one_section_is_a_page(report: Report, kept: str) -> None:
    """A run of one part of the suite has the sections of that part, and how it was measured."""
    others = {"quality", "answers", "speed", "builds", "tune", "failures"} - {kept}
    some = report.model_copy(update=dict.fromkeys(others, ()))
    page = Document(render_html(some))
    sections = {a["id"] for a in page.all("section")}
    expected = {
        "quality": {"findings", "quality", "heat-map", "sweep", "queries"},
        "answers": {"answers"},
        "speed": {"findings", "fronts", "latency", "growth"},
        "builds": {"build", "growth"},
        "tune": {"findings", "tune", "sweep"},
        "failures": {"findings", "failures"},
    }
    assert sections == expected[kept] | {"method"}


def test_equal_reports_make_equal_pages(report: Report) -> None:
    """Rendering reads nothing but the report: no time, no order that changes."""
    again = Report.model_validate_json(report.model_dump_json())
    assert render_html(again) == render_html(report)
