"""PDFs written by reportlab, by layout."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

from reportlab.lib.colors import black, lightgrey, white
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    PageTemplate,
    Paragraph,
    Spacer,
)
from reportlab.platypus import Table as Drawn

from lab.documents.content import Grid, MadePdf, Writer, broken, wrapped

LIBRARY = "reportlab"
_LETTERS = """
agricultural preparation understanding considerable neighbouring transportation
"""
_LONG = _LETTERS.split()


def _style(size: float = 10) -> ParagraphStyle:
    return ParagraphStyle(
        "body", parent=getSampleStyleSheet()["Normal"], fontSize=size, leading=1.25 * size,
        alignment=TA_JUSTIFY, spaceAfter=0.6 * size,
    )  # fmt: skip


def _built(
    story: list[Any], columns: int = 1, page: tuple[float, float] = A4, running: str = ""
) -> bytes:
    """Return a PDF with this many columns, optionally with a running title and page numbers."""
    out = io.BytesIO()
    width = (page[0] - 120 - 20 * (columns - 1)) / columns
    frames = [
        Frame(60 + n * (width + 20), 70, width, page[1] - 150, 0, 0, 0, 0) for n in range(columns)
    ]

    def decorate(canvas: Canvas, document: BaseDocTemplate) -> None:
        if running:
            canvas.setFont("Helvetica", 8)
            canvas.drawString(60, page[1] - 40, running)
            canvas.drawRightString(page[0] - 60, 30, f"Page {document.page}")

    template = BaseDocTemplate(out, pagesize=page)
    template.addPageTemplates(PageTemplate("page", frames, onPage=decorate))
    template.build(story)
    return out.getvalue()


def _table(grid: Grid, style: list[Any], **options: Any) -> Drawn:
    cell = ParagraphStyle("cell", fontSize=9, leading=11)
    rows = [
        [Paragraph(text, cell) if len(text) > 30 else text for text in row] for row in grid.rows
    ]
    base = [("FONTSIZE", (0, 0), (-1, -1), 9), ("VALIGN", (0, 0), (-1, -1), "TOP")]
    return Drawn(rows, style=base + style, **options)


def _kind(made: Callable[[Writer], bytes], kind: str, rng: random.Random, **more: Any) -> MadePdf:
    writer = Writer(rng, "m")
    return MadePdf(kind, LIBRARY, made(writer), writer.marks, **more)


def columns(rng: random.Random, count: int) -> MadePdf:
    """Return justified text in columns."""
    size = rng.choice([8, 9, 10])
    return _kind(
        lambda writer: _built(
            [Paragraph(writer.paragraph(), _style(size)) for _ in range(rng.randint(14, 24))], count
        ),
        f"{count} columns", rng,
    )  # fmt: skip


def across(rng: random.Random, count: int) -> MadePdf:
    """Return columns below a title, with the lines drawn across all columns."""
    writer = Writer(rng, "m")
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(50, 790, writer.words(5))
    canvas.setFont("Helvetica", 9)
    wide = (A4[0] - 100) / count
    parts = [wrapped(writer.paragraph(9), int(wide / 5.2)) for _ in range(count)]
    lines = min(map(len, parts))
    kept = {word.strip(".") for part in parts for line in part[:lines] for word in line.split()}
    for number in range(lines):
        for column, part in enumerate(parts):
            canvas.drawString(50 + wide * column, 750 - 12 * number, part[number])
    canvas.save()
    marks = [mark for mark in writer.marks if mark in kept or mark == writer.marks[0]]
    return MadePdf(f"{count} columns across", LIBRARY, out.getvalue(), marks)


def running(rng: random.Random) -> MadePdf:
    """Return pages with a running title and page numbers."""
    title = f"Annual report {rng.randint(1990, 2030)} of the valley"
    return _kind(
        lambda writer: _built(
            [Paragraph(writer.paragraph(6), _style()) for _ in range(22)], running=title
        ),
        "running lines", rng, once=[title, "Page "],
    )  # fmt: skip


def hyphens(rng: random.Random) -> MadePdf:
    """Return lines with hyphenated words."""
    writer = Writer(rng, "m")
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    words = [
        word
        for _ in range(30)
        for word in (writer.mark(), rng.choice(_LONG), rng.choice(_LONG), "and", rng.choice(_LONG))
    ]
    for number, line in enumerate(broken(words, 60, rng)):
        canvas.drawString(72, 770 - 14 * number, line)
    canvas.save()
    return MadePdf("hyphens", LIBRARY, out.getvalue(), writer.marks, words=_LONG)


def table(rng: random.Random, form: str) -> MadePdf:
    """Return a table between paragraphs: ruled, with top and bottom rules, zebra or unruled."""
    writer = Writer(rng, "m")
    grid_style: dict[str, list[Any]] = {
        "ruled": [("GRID", (0, 0), (-1, -1), 0.5, black)],
        "long ruled": [("GRID", (0, 0), (-1, -1), 0.5, black)],
        "prose ruled": [("GRID", (0, 0), (-1, -1), 0.5, black)],
        "three rules": [("LINEABOVE", (0, 0), (-1, 0), 1, black),
                        ("LINEBELOW", (0, 0), (-1, 0), 0.5, black),
                        ("LINEBELOW", (0, -1), (-1, -1), 1, black)],
        "zebra": [("ROWBACKGROUNDS", (0, 1), (-1, -1), [white, lightgrey])],
        "bare": [],
        "bare prose": [],
        "bare right": [("ALIGN", (1, 0), (-1, -1), "RIGHT")],
    }  # fmt: skip
    ruled = form.endswith("ruled")
    rows = 60 if form == "long ruled" else rng.randint(5, 14)
    columns = rng.randint(3, 5)
    above = [Paragraph(writer.paragraph(3), _style()) for _ in range(2)]
    grid = writer.grid(rows, columns, ruled, prose="prose" in form)
    widths = [90, 170, *[60] * (columns - 2)] if "prose" in form else None
    drawn = _table(grid, grid_style[form], colWidths=widths, repeatRows=0)
    below = [Paragraph(writer.paragraph(3), _style()) for _ in range(2)]
    data = _built([*above, Spacer(1, 8), drawn, Spacer(1, 8), *below])
    return MadePdf(f"table, {form}", LIBRARY, data, writer.marks, [grid])


def table_in_columns(rng: random.Random) -> MadePdf:
    """Return two columns with a table in one."""
    writer = Writer(rng, "m")
    story: list[Any] = [Paragraph(writer.paragraph(), _style(9)) for _ in range(4)]
    grid = writer.grid(6, 3, True)
    style = [("GRID", (0, 0), (-1, -1), 0.5, black)]
    story += [_table(grid, style), Spacer(1, 8)]
    story += [Paragraph(writer.paragraph(), _style(9)) for _ in range(12)]
    return MadePdf("table in columns", LIBRARY, _built(story, 2), writer.marks, [grid])


def rotated(rng: random.Random) -> MadePdf:
    """Return a rotated page with a table."""
    writer = Writer(rng, "m")
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.setPageRotation(90)
    canvas.rotate(90)
    lines = wrapped(writer.paragraph(6), 90)
    for number, line in enumerate(lines):
        canvas.drawString(60, -60 - 14 * number, line)
    grid = writer.grid(6, 4, True)
    top = -60 - 14 * len(lines) - 20
    for i, row in enumerate(grid.rows):
        for j, text in enumerate(row):
            canvas.drawString(64 + 130 * j, top - 18 * i - 13, text)
            canvas.rect(60 + 130 * j, top - 18 * i - 18, 130, 18)
    canvas.save()
    return MadePdf("rotated", LIBRARY, out.getvalue(), writer.marks, [grid])


def wide(rng: random.Random) -> MadePdf:
    """Return an unruled table on a landscape page."""
    writer = Writer(rng, "m")
    grid = writer.grid(12, 7, False)
    story = [Paragraph(writer.paragraph(), _style()), Spacer(1, 9), _table(grid, [])]
    data = _built(story, page=landscape(A4))
    return MadePdf("wide table", LIBRARY, data, writer.marks, [grid])


def chinese(rng: random.Random) -> MadePdf:
    """Return Chinese text with line breaks inside words."""
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    words = ["年度报告", "主要股东", "持股比例", "羊毛市场", "价格变动", "春季牧场"]
    text = "".join(f"{rng.choice(words)}说明了第{number}项的情况，" for number in range(40, 90))
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.setFont("STSong-Light", 11)
    for number in range(0, len(text), 38):
        canvas.drawString(72, 760 - number / 38 * 16, text[number : number + 38])
    canvas.save()
    return MadePdf("Chinese", LIBRARY, out.getvalue(), [], words=[w for w in words if w in text])


def pdfs(seed: int = 1) -> list[MadePdf]:
    """Return PDFs of all layouts."""
    rng = random.Random(seed)
    forms = ["ruled", "long ruled", "prose ruled", "ruled", "three rules", "zebra", "bare",
             "bare prose", "bare right"]  # fmt: skip
    return [
        columns(rng, 2), columns(rng, 3), columns(rng, 2), across(rng, 2), across(rng, 3),
        running(rng), hyphens(rng), *(table(rng, form) for form in forms), table_in_columns(rng),
        rotated(rng), wide(rng), chinese(rng),
    ]  # fmt: skip
