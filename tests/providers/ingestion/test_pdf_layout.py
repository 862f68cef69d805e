"""PDFs as a person reads them: columns, tables, running lines, whole words, turned pages, forms."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from corral.providers.ingestion.read.detecting import PDF
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from lab.documents.fpdf2_pdfs import ligatures

Draw = Callable[[Canvas], None]


def read(draw: Draw, **options: Any) -> ParsedDocument:
    """Return a PDF as it is read."""
    out = io.BytesIO()
    canvas = Canvas(out, **options)
    draw(canvas)
    canvas.save()
    return parse(out.getvalue(), PDF)


def rows(
    canvas: Canvas, table: Sequence[Sequence[str]], edges: Sequence[float], top: float
) -> None:
    """Draw the texts of a table, 18 points a row."""
    for number, row in enumerate(table):
        for x, text in zip(edges, row, strict=False):
            canvas.drawString(x + 4, top - 18 * number, text)


def rule(canvas: Canvas, count: int, edges: Sequence[float], top: float) -> None:
    """Draw the lines of a table."""
    for x in edges:
        canvas.line(x, top + 13, x, top + 13 - 18 * count)
    for number in range(count + 1):
        y = top + 13 - 18 * number
        canvas.line(edges[0], y, edges[-1], y)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("shift", [0, 5])
def test_columns_that_are_drawn_across_are_read_down(count: int, shift: float) -> None:
    """Whatever the order of drawing, and whether or not their lines are level.

    If this fails: a sentence of a paper is half of one column and half of the next.
    """

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 9)
        for line in range(12):
            for column in range(count):
                y = 700 - 14 * line - shift * column
                canvas.drawString(40 + 520 / count * column, y, f"c{column} l{line} of its story")

    lines = [line.split()[:2] for line in read(draw).text.split("\n") if line]
    assert lines == [[f"c{c}", f"l{number}"] for c in range(count) for number in range(12)]


def test_what_reaches_across_columns_stays_in_its_place() -> None:
    """A title above them and a line below them come first and last."""

    def draw(canvas: Canvas) -> None:
        canvas.drawString(
            60, 780, "The title of all this, which reaches from the left to the right."
        )
        for line in range(8):
            for column in range(2):
                canvas.drawString(
                    60 + 250 * column, 740 - 14 * line, f"{column} {line} of the story"
                )
        canvas.drawString(60, 600, "The last words, which reach from the left to the right again.")

    text = read(draw).text
    places = [text.index(each) for each in ("The title", "0 7 of", "1 0 of", "The last")]
    assert places == sorted(places)


TABLE = [["Region", "Units", "Price"], *([f"R{n}", str(10 + n), f"{n}.50"] for n in range(5))]
SHOWN = "\n".join(["| Region | Units | Price |", "| --- | --- | --- |",
                   *(f"| R{n} | {10 + n} | {n}.50 |" for n in range(5))])  # fmt: skip


@pytest.mark.parametrize("lines", ["grid", "boxes", "shades", "none"])
def test_a_table_has_rows_and_cells(lines: str) -> None:
    """By lines, boxes around its cells, shaded rows, or the places of its words alone.

    If this fails: a price loses its item.
    """
    edges = [60, 180, 300, 420]

    def draw(canvas: Canvas) -> None:
        canvas.drawString(60, 740, "Before it stands a sentence that is as wide as the table is.")
        if lines == "grid":
            rule(canvas, 6, edges, 700)
        for number in range(6):
            for x, end in pairwise(edges):
                if lines == "boxes":
                    canvas.rect(x, 695 - 18 * number, end - x, 18)
                elif lines == "shades" and number % 2:
                    canvas.setFillGray(0.9)
                    canvas.rect(x, 695 - 18 * number, end - x, 18, stroke=0, fill=1)
                    canvas.setFillGray(0)
        rows(canvas, TABLE, edges, 700)
        canvas.drawString(60, 560, "Behind it stands a sentence that is as wide as the table is.")

    parsed = read(draw)
    assert parsed.markdown
    assert SHOWN in parsed.text
    assert parsed.text.startswith("Before")
    assert parsed.text.endswith("table is.")


@pytest.mark.parametrize("ruled", [True, False])
@pytest.mark.parametrize("repeated", [True, False])
def test_rows_of_the_next_page_have_the_header(ruled: bool, repeated: bool) -> None:
    """Once for each page, whether or not the page shows it again."""
    edges = [60, 180, 300, 420]

    def draw(canvas: Canvas) -> None:
        for page in range(2):
            table = TABLE if repeated or not page else TABLE[1:]
            if ruled:
                rule(canvas, len(table), edges, 700)
            rows(canvas, table, edges, 700)
            canvas.showPage()

    parsed = read(draw)
    assert parsed.text == f"{SHOWN}\n\n{SHOWN}"
    assert parsed.page_starts == (0, len(SHOWN) + 2)


def test_lines_of_a_cell_are_one() -> None:
    """In a ruled cell, and in a bare one whose rows are further apart than its lines."""

    def draw(canvas: Canvas) -> None:
        for top, ruled in ((700, True), (400, False)):
            for number in range(3):
                y = top - 40 * number
                canvas.drawString(64, y, f"Item {number}")
                canvas.drawString(164, y, f"{number} words that go")
                canvas.drawString(164, y - 13, "on below")
                canvas.drawString(304, y, f"{number}.25")
                if ruled:
                    for x, width in ((60, 100), (160, 140), (300, 60)):
                        canvas.rect(x, y - 24, width, 40)

    text = read(draw).text
    assert text.count("| Item 1 | 1 words that go on below | 1.25 |") == 2


def test_a_title_over_columns_is_in_each_of_them() -> None:
    """A header of two rows becomes one, so that a number keeps its whole name."""

    def draw(canvas: Canvas) -> None:
        for x, top in ((60, 713), (160, 713), (220, 695), (280, 713)):
            canvas.line(x, top, x, 641)
        for y, left in ((713, 60), (695, 160), (677, 60), (659, 60), (641, 60)):
            canvas.line(left, y, 280, y)
        table = [["Crop", "Yield"], ["", "2025", "2026"], ["Oats", "1", "2"], ["Rye", "3", "4"]]
        rows(canvas, table, [60, 160, 220], 700)

    assert read(draw).text.startswith("| Crop | Yield 2025 | Yield 2026 |\n")


def test_running_lines_are_read_once_and_numbers_of_pages_never() -> None:
    """The pages of the text stay right."""

    def draw(canvas: Canvas) -> None:
        for number, part in enumerate(("milk", "wool", "hooves", "horns"), 1):
            canvas.drawString(72, 810, "Annual report 2026 - Confidential")
            canvas.drawString(72, 700, f"Section {number} speaks of goats and their {part}.")
            canvas.drawString(280, 30, f"Page {number} of 4")
            canvas.showPage()

    parsed = read(draw)
    assert parsed.text.count("Annual report") == 1
    assert "of 4" not in parsed.text
    assert [parsed.page(parsed.text.index(f"Section {n}")) for n in range(1, 5)] == [1, 2, 3, 4]


def test_lines_that_only_look_alike_stay() -> None:
    """Numbers of invoices, and a paragraph that begins each page, are what pages are about.

    If this fails: text is lost.
    """

    def draw(canvas: Canvas) -> None:
        for number in range(4):
            canvas.drawString(72, 810, f"Invoice {1001 + number}")
            for line in range(4):
                canvas.drawString(72, 790 - 14 * line, f"Row {number + 1}.{line} of the herd")
            canvas.showPage()

    text = read(draw).text
    assert [f"Invoice {1001 + n}" in text for n in range(4)] == [True] * 4
    assert text.count(" of the herd") == 16


def test_words_are_whole_across_line_ends() -> None:
    """A hyphen goes, unless the word has it elsewhere or what follows is no word.

    If this fails: a word is not found by itself.
    """

    def draw(canvas: Canvas) -> None:
        for number, line in enumerate((
            "A wool-grower, an exam-", "ple of the wool-", "grower with the num-",
            "ber 2-", "3, in Berlin-", "Mitte.",
        )):  # fmt: skip
            canvas.drawString(72, 700 - 14 * number, line)

    text = " ".join(read(draw).text.split())
    assert (
        text
        == "A wool-grower, an example of the wool-grower with the number 2- 3, in Berlin-Mitte."
    )


def test_chinese_lines_go_on_without_a_space() -> None:
    """In text and in a cell, also one letter alone, which PDFium leaves out by itself."""

    def draw(canvas: Canvas) -> None:
        pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
        canvas.setFont("STSong-Light", 12)
        canvas.drawString(72, 700, "股东名称")
        canvas.drawString(200, 700, "持股比")
        canvas.drawString(200, 684, "例")
        canvas.drawString(72, 640, "公司的年度报告说明了主要股东的持")
        canvas.drawString(72, 624, "股比例和变动情况。")
        canvas.drawString(72, 590, "又一段。")

    text = read(draw).text
    assert (
        text
        == "股东名称 | 持股比例\n\n公司的年度报告说明了主要股东的持股比例和变动情况。\n\n又一段。"
    )


def test_ligatures_are_letters() -> None:
    """If this fails: "office" is not found in a PDF that a typesetter made."""
    made = ligatures(random.Random(1))
    text = parse(made.data, PDF).text
    assert all(word in text for word in made.words)


@pytest.mark.parametrize("turn", [90, 180, 270])
@pytest.mark.parametrize("shown", [True, False])
def test_turned_text_is_read_in_order(turn: int, shown: bool) -> None:
    """On a page that is shown turned, and on one that is not; its tables are tables."""
    moves = {90: (0, 0), 180: (595, 842), 270: (595, 842)}

    def draw(canvas: Canvas) -> None:
        if shown:
            canvas.setPageRotation(turn)
        canvas.translate(*moves[turn])
        canvas.rotate(turn)
        up = -300 if turn == 90 else 300
        for line in range(4):
            canvas.drawString(60, up - 14 * line, f"Line {line} of hay")
        rule(canvas, 6, [60, 160, 260, 360], up - 90)
        rows(canvas, TABLE, [60, 160, 260], up - 90)

    text = read(draw, pagesize=(595, 842)).text
    assert text == "\n".join(f"Line {n} of hay" for n in range(4)) + f"\n\n{SHOWN}"


def test_values_of_forms_stand_beside_their_labels() -> None:
    """Text, choices and marks; never a password."""

    def draw(canvas: Canvas) -> None:
        form = canvas.acroForm
        canvas.drawString(72, 700, "Name of the flock")
        form.textfield(name="a", x=200, y=692, width=150, height=20, value="Blackface")
        canvas.drawString(72, 660, "Organic")
        form.checkbox(name="b", x=200, y=656, size=16, checked=True)
        canvas.drawString(72, 620, "Color")
        form.choice(name="c", x=200, y=612, width=90, height=20, value="brown",
                    options=["brown", "white"])  # fmt: skip
        canvas.drawString(72, 580, "Secret")
        form.textfield(name="d", x=200, y=572, width=90, height=20, value="hush",
                       fieldFlags="password")  # fmt: skip

    text = " ".join(read(draw).text.replace("|", " ").replace("-", "").split())
    assert "Name of the flock Blackface Organic [x] Color brown Secret" in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("title", "right"),
    [("Sheep of the North", "Sheep of the North"), ("untitled", None), ("report-final.docx", None),
     ("Microsoft Word - x", None)],
)  # fmt: skip
def test_the_title_is_the_one_that_the_file_declares(title: str, right: str | None) -> None:
    """Not one that a program made up."""

    def draw(canvas: Canvas) -> None:
        canvas.setTitle(title)
        canvas.drawString(72, 700, "Hay is dry.")

    assert read(draw).title == right


def test_lists_and_labels_are_no_tables() -> None:
    """A bullet stays with its item, a label with a colon with its value."""

    def draw(canvas: Canvas) -> None:
        for number in range(4):
            canvas.drawString(60, 700 - 14 * number, f"{number + 1}.")
            canvas.drawString(80, 700 - 14 * number, f"Item {number} of a list")
        for number, (label, value) in enumerate((("Name:", "Ada"), ("Born:", "1815, London"))):
            canvas.drawString(60, 600 - 14 * number, label)
            canvas.drawString(160, 600 - 14 * number, value)

    text = read(draw).text
    assert "|" not in text
    assert "2. Item 1 of a list" in text
    assert "Name: Ada\nBorn: 1815, London" in text
