"""PDFs written by fpdf2, by layout."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import reportlab
from fpdf import FPDF

from lab.documents.content import Grid, MadePdf, Writer

LIBRARY = "fpdf2"
_VERA = Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"


class _Running(FPDF):
    """A PDF with a running title and page numbers."""

    title_line = ""

    def header(self) -> None:
        """Draw the running title."""
        if self.title_line:
            self.set_font("Times", size=8)
            self.cell(0, 5, self.title_line, align="C")
            self.ln(12)

    def footer(self) -> None:
        """Draw the page's number."""
        if self.title_line:
            self.set_y(-14)
            self.set_font("Times", size=8)
            self.cell(0, 5, f"{self.page_no()} / {{nb}}", align="C")


def _pdf(size: float = 10, family: str = "Times", title: str = "", **options: Any) -> _Running:
    pdf = _Running(**options)
    pdf.title_line = title
    pdf.add_page()
    pdf.set_font(family, size=size)
    return pdf


def columns(rng: random.Random, count: int, title: str = "") -> MadePdf:
    """Return justified text in columns."""
    writer = Writer(rng, "m")
    pdf = _pdf(rng.choice([8, 9, 10]), title=title)
    text = "\n\n".join(writer.paragraph() for _ in range(rng.randint(14, 30)))
    with pdf.text_columns(text, ncols=count, gutter=rng.choice([5, 8]), text_align="J"):
        pass
    once = [title] if title else []
    return MadePdf(f"{count} columns", LIBRARY, bytes(pdf.output()), writer.marks, once=once)


def running(rng: random.Random) -> MadePdf:
    """Return pages with a running title and page numbers."""
    title = f"Handbook of the valley, edition {rng.randint(2, 9)}"
    writer = Writer(rng, "m")
    pdf = _pdf(11, title=title)
    for _ in range(26):
        pdf.multi_cell(0, 6, writer.paragraph(5), new_x="LMARGIN", new_y="NEXT")
        pdf.ln(3)
    return MadePdf("running lines", LIBRARY, bytes(pdf.output()), writer.marks, once=[title])


def table(
    rng: random.Random,
    layout: Literal["ALL", "NONE", "HORIZONTAL_LINES", "MINIMAL", "SINGLE_TOP_LINE", "INTERNAL"],
    rows: int = 10,
    prose: bool = False,
) -> MadePdf:
    """Return a table between paragraphs, with the rules of one of fpdf2's layouts."""
    writer = Writer(rng, "m")
    ruled = layout in {"ALL", "INTERNAL"}
    pdf = _pdf(rng.choice([9, 10, 11]), rng.choice(["Times", "Helvetica"]))
    pdf.multi_cell(0, 5, writer.paragraph(4), new_x="LMARGIN", new_y="NEXT")
    pdf.ln(4)
    grid = writer.grid(rows, rng.randint(3, 5), ruled, prose)
    _draw(pdf, grid, layout, prose)
    pdf.ln(4)
    pdf.multi_cell(0, 5, writer.paragraph(4), new_x="LMARGIN", new_y="NEXT")
    kind = f"table, {layout.lower().replace('_', ' ')}" + (" prose" if prose else "")
    return MadePdf(kind, LIBRARY, bytes(pdf.output()), writer.marks, [grid])


def _draw(pdf: FPDF, grid: Grid, layout: str, prose: bool) -> None:
    widths = [28, 60, *[18] * (len(grid.rows[0]) - 2)] if prose else None
    with pdf.table(
        borders_layout=layout,
        col_widths=widths, line_height=5, repeat_headings=0, width=170,
        text_align=("LEFT", *["RIGHT" if not prose else "LEFT"] * (len(grid.rows[0]) - 1)),
    ) as made:  # fmt: skip
        for cells in grid.rows:
            row = made.row()
            for cell in cells:
                row.cell(cell)


def ligatures(rng: random.Random) -> MadePdf:
    """Return text with ligatures, as typesetters write them."""
    writer = Writer(rng, "m")
    pdf = FPDF()
    pdf.add_page()
    pdf.add_font("Vera", fname=str(_VERA))
    pdf.set_font("Vera", size=11)
    lines = [
        f"{writer.mark()} five of\ufb01ces \ufb02ooded, the \ufb01rst \ufb02ock sold"
        for _ in range(12)
    ]
    pdf.multi_cell(0, 6, "\n".join(lines))
    words = ["offices", "flooded", "first", "flock"]
    return MadePdf("ligatures", LIBRARY, bytes(pdf.output()), writer.marks, words=words)


def labels(rng: random.Random) -> MadePdf:
    """Return two tables below each other, with a line of text between them."""
    writer = Writer(rng, "m")
    pdf = _pdf(10, "Helvetica")
    grids = []
    for _ in range(2):
        pdf.multi_cell(0, 6, f"{writer.words(6)}:", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(3)
        grid = writer.grid(6, 4, True)
        _draw(pdf, grid, "ALL", False)
        pdf.ln(6)
        grids.append(grid)
    rows = {row[0] for row in grids[0].rows[1:]}
    grids[1] = Grid([row for row in grids[1].rows if row[0] not in rows], True)
    return MadePdf("two tables", LIBRARY, bytes(pdf.output()), writer.marks, grids)


def table_in_columns(rng: random.Random) -> MadePdf:
    """Return columns above an unruled table as wide as the page."""
    writer = Writer(rng, "m")
    pdf = _pdf(9)
    text = "\n\n".join(writer.paragraph() for _ in range(8))
    with pdf.text_columns(text, ncols=2, gutter=7, text_align="J", balance=True):
        pass
    pdf.ln(8)
    grid = writer.grid(8, 5, False)
    _draw(pdf, grid, "NONE", False)
    return MadePdf("table below columns", LIBRARY, bytes(pdf.output()), writer.marks, [grid])


def pdfs(seed: int = 2) -> list[MadePdf]:
    """Return PDFs of all layouts."""
    rng = random.Random(seed)
    return [
        columns(rng, 2), columns(rng, 3), columns(rng, 2, "Proceedings of the valley"),
        running(rng), running(rng), ligatures(rng), labels(rng), table_in_columns(rng),
        table(rng, "ALL"), table(rng, "ALL", 70), table(rng, "ALL", prose=True),
        table(rng, "INTERNAL"), table(rng, "ALL", 6),
        table(rng, "NONE"), table(rng, "NONE", 60), table(rng, "NONE", prose=True),
        table(rng, "HORIZONTAL_LINES"), table(rng, "MINIMAL"), table(rng, "SINGLE_TOP_LINE"),
        table(rng, "HORIZONTAL_LINES", prose=True),
    ]  # fmt: skip
