"""Headings of a PDF: what its bookmarks name, else what is clearly larger than its text."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from reportlab.pdfgen.canvas import Canvas

from corral.providers.ingestion.read.detecting import PDF
from corral.providers.ingestion.read.parsing import ParsedDocument, parse

BODY = "Sheep graze on the hill until the first snow, and nobody minds."


def lines(canvas: Canvas, *texts: tuple[float, str], top: float = 760) -> None:
    """Write lines below each other, each with its size."""
    for size, text in texts:
        canvas.setFont("Helvetica", size)
        canvas.drawString(72, top, text)
        top -= 1.4 * size


def bookmark(canvas: Canvas, title: str, level: int) -> None:
    """Let a bookmark lead to the page."""
    canvas.bookmarkPage(title)
    canvas.addOutlineEntry(title, title, level=level)


def read(draw: Callable[[Canvas], None]) -> ParsedDocument:
    """Return what a PDF is read as."""
    out = io.BytesIO()
    canvas = Canvas(out)
    draw(canvas)
    canvas.save()
    return parse(out.getvalue(), PDF)


def headings(parsed: ParsedDocument) -> list[tuple[int, str]]:
    """Return levels and texts."""
    return [(heading.level, heading.text) for heading in parsed.headings]


def test_bookmarks_win_over_sizes() -> None:
    """Their titles, found on their pages, are the headings; a large line that none names is not.

    If this fails: a pull quote in large letters becomes a chapter.
    """

    def draw(canvas: Canvas) -> None:
        for number in range(3):
            bookmark(canvas, f"Chapter {number}", 0)
            bookmark(canvas, f"Part of {number}", 1)
            lines(canvas, (10, f"chapter  {number}"), (10, BODY), (24, "Buy wool!"),
                  (10, f"Part of {number}"), *[(10, BODY)] * 5)  # fmt: skip
            canvas.showPage()

    found = headings(read(draw))
    assert found == [(level, text) for n in range(3) for level, text in
                     ((1, f"chapter {n}"), (2, f"Part of {n}"))]  # fmt: skip


def test_bookmarks_that_name_no_line_are_not_believed() -> None:
    """Then sizes decide, as they do without bookmarks."""

    def draw(canvas: Canvas) -> None:
        for name in ("_Toc1", "_Toc2", "Large"):
            bookmark(canvas, name, 0)
        lines(canvas, (18, "Large"), *[(10, BODY)] * 5, (14, "Smaller"), *[(10, BODY)] * 5)

    assert headings(read(draw)) == [(1, "Large"), (2, "Smaller")]


def test_sizes_are_what_is_seen() -> None:
    """However they are scaled; a heading over two lines is one; levels are the document's."""

    def draw(canvas: Canvas) -> None:
        lines(canvas, (24, "A very long title that"), (24, "goes on here"), *[(10, BODY)] * 9)
        canvas.showPage()
        canvas.scale(2, 2)
        lines(canvas, (9, "Second"), *[(5, BODY)] * 9, top=350)

    assert headings(read(draw)) == [(1, "A very long title that goes on here"), (2, "Second")]


def test_sizes_are_known_beside_raised_letters() -> None:
    """PDFium joins lines that raised letters break, so that places in its texts differ.

    If this fails: a paper with formulas or footnotes has no headings.
    """

    def draw(canvas: Canvas) -> None:
        lines(canvas, (16, "Polynomials"), *[(10, BODY)] * 3)
        for number in range(6):
            lines(canvas, (10, "Add x"), top=650 - 14 * number)
            canvas.setFont("Helvetica", 6)
            canvas.drawString(
                72 + canvas.stringWidth("Add x", "Helvetica", 10), 654 - 14 * number, "3"
            )
            canvas.setFont("Helvetica", 10)
            canvas.drawString(110, 650 - 14 * number, "+ x + 1 and some more words")
        lines(canvas, (16, "Proof"), *[(10, BODY)] * 3, top=500)

    assert headings(read(draw)) == [(1, "Polynomials"), (1, "Proof")]


@pytest.mark.parametrize(
    "page",
    [
        [(10, "Title"), *[(10, BODY)] * 9],
        [(10, "# comment"), (10, "-----"), *[(10, BODY)] * 9],
        [(18, BODY + " " + BODY), *[(10, BODY)] * 9],
        [(14, "1.5"), *[(10, BODY)] * 9],
        [*[(10, BODY)] * 3, *[(14, "Shout it out")] * 9],
        [(14, "Wool . . . . . . . . 12"), (14, "Hay ........ 13"), *[(10, BODY)] * 9],
    ],
)
def test_what_is_no_heading(page: list[tuple[float, str]]) -> None:
    """Text of one size, long or numeric lines, and pages that are large in a great part.

    If this fails: a text is torn apart at lines that head nothing.
    """
    parsed = read(lambda canvas: lines(canvas, *page))
    assert headings(parsed) == []
    assert not parsed.markdown


def test_a_running_title_is_no_heading() -> None:
    """A line that stands on each page heads none of them."""

    def draw(canvas: Canvas) -> None:
        for number in range(6):
            lines(canvas, (16, "The Sheep Gazette"), (14, f"News {number}"), *[(10, BODY)] * 9)
            canvas.showPage()

    assert headings(read(draw)) == [(1, f"News {number}") for number in range(6)]


def test_plain_lines_of_a_pdf_with_headings_stay_plain() -> None:
    """A line that looks like Markdown is quoted: it is no heading of the document."""

    def draw(canvas: Canvas) -> None:
        lines(canvas, (18, "Shell"), (10, "# not a heading"), *[(10, BODY)] * 9, (10, "----"))

    parsed = read(draw)
    assert headings(parsed) == [(1, "Shell")]
    assert "\\# not a heading" in parsed.text


def test_columns_are_read_one_after_the_other() -> None:
    """In the order in which they were written, not across.

    If this fails: every line of a paper is half of one column and half of the other.
    """

    def draw(canvas: Canvas) -> None:
        for column in range(2):
            for number in range(30):
                canvas.drawString(72 + 250 * column, 700 - 14 * number, f"c{column}l{number} wool")

    words = [word for word in read(draw).text.split() if word != "wool"]
    assert words == [f"c{column}l{number}" for column in range(2) for number in range(30)]
