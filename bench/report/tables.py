"""HTML tables and the other blocks that the sections of the page are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corral.bench.report import wording
from corral.bench.report.markup import Content, Html, tag
from corral.bench.report.rows import Comparison, Estimate


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds figures (right-aligned) or may wrap."""

    name: str
    figures: bool = False
    wraps: bool = False


Cells = Sequence[Content]


def figures(*names: str) -> list[Column]:
    """Return columns of figures."""
    return [Column(name, figures=True) for name in names]


def table(caption: str, columns: Sequence[Column], rows: Iterable[Cells | Html]) -> Html:
    """Return a table whose columns sort by a click, in a box that scrolls on a narrow screen.

    Args:
        caption: What it holds; the scrolling box is named by it for screen readers.
        columns: The first one names the row.
        rows: Cells as `columns`, or a whole row as markup.
    """
    head = tag("tr", (_heading(column) for column in columns))
    body = [row if isinstance(row, Html) else _row(columns, row) for row in rows]
    content = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    return scrolling(caption, content)


def scrolling(name: str, *content: Content) -> Html:
    """Return a box that scrolls sideways, reachable with the keyboard."""
    return tag("div", content, class_="scroll", role="region", aria_label=name, tabindex=0)


def section(anchor: str, heading: str, *content: Content) -> Html:
    """Return a section with its heading."""
    heading_id = f"{anchor}-heading"
    title = tag("h2", heading, id=heading_id)
    return tag("section", title, content, id=anchor, aria_labelledby=heading_id)


def figure(caption: Content, *content: Content, note: Content = None) -> Html:
    """Return a chart with its caption, and a line on how to read it."""
    said = tag("p", note, class_="note") if note else None
    return tag("figure", tag("figcaption", caption), content, said)


def details(summary: Content, *content: Content, open_: bool = False) -> Html:
    """Return what is shown after a click."""
    return tag("details", tag("summary", summary), content, open=open_)


def lead(text: Content) -> Html:
    """Return a section's first paragraph."""
    return tag("p", text, class_="lead")


def user(text: str) -> Html:
    """Return a text of the user's; its direction of writing stays within it."""
    return tag("bdi", text)


def mode_badge(mode: str) -> Html:
    """Return a mode with its color."""
    known = mode if mode in ("vector", "keyword", "hybrid") else "other"
    return tag("span", mode, class_=f"badge mode-{known}")


def estimate(found: Estimate | None) -> Html:
    """Return a mean with its interval beneath."""
    if found is None:
        return tag("span", wording.NONE)
    ends = tag("small", wording.interval(found), class_="below") if found.low < found.high else None
    return tag("span", wording.score(found.mean), ends)


def verdict(found: Comparison | None, *, is_baseline: bool = False) -> Html:
    """Return a comparison's verdict with its difference and p; its statement as a tooltip."""
    if found is None:
        said = "baseline" if is_baseline else wording.NONE
        return tag("span", said, class_="quiet")
    class_ = "verdict " + found.verdict.replace(" ", "-")
    word = tag("b", f"{wording.SIGNS[found.verdict]} {found.verdict}", class_=class_)
    rest = f"{found.difference.mean:+.3f}, {wording.p_value(found.p_holm)}"
    return tag("span", word, " ", tag("span", rest, class_="quiet"), title=found.statement)


def failure_row(name: Content, columns: int, message: str) -> Html:
    """Return the row of what could not be measured."""
    head = tag("th", name, scope="row")
    sign = tag("b", "✕ failed", class_="verdict worse")
    return tag("tr", head, tag("td", sign, " ", user(message), colspan=columns - 1, class_="wraps"))


def _heading(column: Column) -> Html:
    button = tag("button", column.name, type="button")
    return tag("th", button, scope="col", class_="n" if column.figures else None)


def _row(columns: Sequence[Column], cells: Cells) -> Html:
    first = tag("th", cells[0], scope="row", class_=_class(columns[0]))
    rest = (
        tag("td", cell, class_=_class(column))
        for column, cell in zip(columns[1:], cells[1:], strict=True)
    )
    return tag("tr", first, rest)


def _class(column: Column) -> str | None:
    return "n" if column.figures else "wraps" if column.wraps else None
