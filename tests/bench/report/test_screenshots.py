"""The page as a browser shows it: on a phone and on a wide screen, light and dark.

Pictures of the whole page are left in pytest's temporary folder, for whoever wants to look.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.bench.quality.metrics import NDCG
from corral.bench.report import write_reports
from corral.bench.report.report import Report
from corral.bench.report.rows import Estimate

from .example_report import example_report
from .headless import Browser
from .hostile import hostile

WINDOWS = ((400, "dark"), (1280, "light"), (1600, "light"))
"""Width in pixels, and color scheme: one decides the layout, the other the colors."""

CHARTS = """
[...document.querySelectorAll("svg[role=img], table.heat")]
  .filter((chart) => chart.checkVisibility())
  .map((chart) => {
    const box = chart.getBoundingClientRect();
    const name = (chart.getAttribute("aria-label") ?? chart.caption.textContent).slice(0, 60);
    return {name, x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
  })
"""

CLIPPED = """
[...document.querySelectorAll("details, .scroll")].map((one) => { one.open = true; return one; })
  .filter((box) => box.matches(".scroll") && box.scrollWidth > box.clientWidth)
  .map((box) => `${box.getAttribute("aria-label")}: ${box.scrollWidth} > ${box.clientWidth}`)
"""

LETTERS_OUTSIDE = """
[...document.querySelectorAll("svg.chart text")]
  .filter((text) => text.checkVisibility())
  .filter((text) => {
    const letters = text.getBoundingClientRect();
    const frame = text.closest("figure, details").getBoundingClientRect();
    return letters.left < frame.left - 1 || letters.right > frame.right + 1
      || letters.bottom > frame.bottom + 1 || letters.top < frame.top - 1;
  })
  .map((text) => text.textContent)
"""

# WCAG 2.1, 1.4.3 and the definition of relative luminance. The canvas turns any color into RGB.
TOO_FAINT = """
(() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const [r, g, b] = rgba(color).map((value) => value / 255)
      .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    while (element && rgba(getComputedStyle(element).backgroundColor)[3] < 255) {
      element = element.parentElement;
    }
    return getComputedStyle(element ?? document.body).backgroundColor;
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [high, low] = [luminance(ink), luminance(background(element))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  return [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => !e.closest("script, title, desc") && e.checkVisibility())
    .filter((e) => contrast(e) < 4.5)
    .map((e) => `${e.textContent.slice(0, 40)}: ${contrast(e).toFixed(2)}`);
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a report of three backends."""
    small = example_report(backends=("memory", "sqlite", "faiss"))
    return write_reports(small, tmp_path_factory.mktemp("reports"))[1]


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_the_page_renders(browser: Browser, page: Path, width: int, scheme: str) -> None:
    """No error, no request, no sideways scrolling; every chart has ink, and stays in its frame.

    A chart has more than a dozen colors: those of its marks and grid, with their soft edges. If
    this fails with few colors: it is empty, or painted in the color of what is behind it.
    """
    browser.open(page, width, scheme=scheme)
    picture = browser.screenshot()
    page.with_name(f"{width}-{scheme}.png").write_bytes(picture)
    assert browser.errors == []
    assert browser.requests == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    charts: list[dict[str, Any]] = browser.evaluate(CHARTS)
    assert len(charts) >= 15
    for chart, colors in zip(charts, browser.colors(picture, charts), strict=True):
        assert chart["width"] > 100, chart["name"]
        assert colors > 12, chart["name"]
    assert browser.evaluate(LETTERS_OUTSIDE) == []


def test_nothing_is_clipped_on_a_screen(browser: Browser, page: Path) -> None:
    """At 1,280 pixels every table fits into its box, folded ones too.

    If this fails: a reader has to scroll a table sideways to see its figures.
    """
    browser.open(page, 1280)
    assert browser.evaluate(CLIPPED) == []


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_documents_open_within_the_page(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    """Behind a click, documents have room and contrast, and the page still fits the window."""
    browser.open(page, width, scheme=scheme)
    opened = "[...document.querySelectorAll('#queries th details')]"
    assert browser.evaluate(f"{opened}.map(one => one.open = true).length") > 20
    shown = browser.evaluate(
        f"{opened}.filter(one => one.checkVisibility()).map(one => one.offsetHeight)"
    )
    assert shown
    assert min(shown) > 100
    page.with_name(f"documents-{width}-{scheme}.png").write_bytes(browser.screenshot())
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(TOO_FAINT) == []
    assert browser.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_readable(browser: Browser, page: Path, scheme: str) -> None:
    """Letters have a contrast of at least 4.5 to what is behind them, on every cell of the map."""
    browser.open(page, 1280, scheme=scheme)
    assert browser.evaluate(TOO_FAINT) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_color_of_the_heat_map_is_readable(
    browser: Browser, report: Report, tmp_path: Path, scheme: str
) -> None:
    """A value can be read wherever it lies on the color scale: 61 places are looked at."""
    row = report.quality[0].model_copy(update={"comparison": None})
    rows = []
    for at in range(61):
        found = Estimate(mean=at / 60, low=at / 60, high=at / 60)
        changed = {"backend": f"b{at}", "metrics": {NDCG: found}, "data_set": f"set-{at % 2}"}
        rows.append(row.model_copy(update=changed))
    many = report.model_copy(update={"quality": tuple(rows)})
    browser.open(write_reports(many, tmp_path)[1], 1280, scheme=scheme)
    assert browser.evaluate("document.querySelectorAll('.heat .cell').length") == 61
    assert browser.evaluate(TOO_FAINT) == []


def test_a_hostile_report_does_nothing(browser: Browser, report: Report, tmp_path: Path) -> None:
    """Texts that are markup elsewhere run no script and ask for nothing; the page fits a phone.

    If this fails: whoever writes a query or a document decides what the reader's browser does.
    """
    page = write_reports(hostile(report), tmp_path)[1]
    browser.open(page, 400)
    assert browser.evaluate("window.pwned") is None
    assert browser.errors == []
    assert browser.requests == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400


def test_tables_sort_with_the_keyboard(browser: Browser, page: Path) -> None:
    """The first Tab reaches the way past the contents; Enter on a heading sorts by its column."""
    browser.open(page, 1280)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.evaluate("document.querySelectorAll('#quality thead button')[2].focus()")
    values = "[...document.querySelectorAll('#quality table')[0].tBodies[0].rows]"
    values += ".filter(row => row.cells.length > 3).map(row => parseFloat(row.cells[2].innerText))"
    before = browser.evaluate(values)
    browser.press("Enter")
    assert browser.evaluate(values) == sorted(before) != before
    browser.press("Enter")
    assert browser.evaluate(values) == sorted(before, reverse=True)
    heading = "document.activeElement.closest('th').getAttribute('aria-sort')"
    assert browser.evaluate(heading) == "descending"


def test_the_browser_tells_on_a_page(browser: Browser, tmp_path: Path) -> None:
    """A page that logs an error, throws, asks for a picture or is blank is seen to do so.

    If this fails: the tests above would pass whatever a report did.
    """
    page = tmp_path / "bad.html"
    page.write_text(
        "<img src='http://127.0.0.1:9/x'><script>console.error('a'); throw Error('b')</script>",
        "utf-8",
    )
    browser.open(page, 400)
    assert any("a" in error for error in browser.errors)
    assert any("Error: b" in error for error in browser.errors)
    assert browser.requests == ["http://127.0.0.1:9/x"]
    page.write_text("<div style='width: 900px'>wide</div>", "utf-8")
    browser.open(page, 400)
    assert browser.evaluate("document.documentElement.scrollWidth") > 400
    blank = browser.screenshot({"x": 0, "y": 300, "width": 200, "height": 100})
    assert browser.colors(blank) == [1]
