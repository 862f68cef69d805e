"""The report's tables on a terminal, with rich. Text of a report is never interpreted as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text as Line

from corral.bench.report.blocks import Block, Cell, Column, Folded, Table
from corral.server.cli import display


def show(blocks: Iterable[Block]) -> None:
    """Print tables, each followed by an empty line; of folded blocks, print only the line."""
    for block in blocks:
        if isinstance(block, Table):
            display.show(grid(block), "")
        elif isinstance(block, Folded):
            line(f"{block.name}: {block.summary}")


def line(*texts: str) -> None:
    """Print lines unchanged."""
    for text in texts:
        display.show(Line(display.clean(text)))


def grid(table: Table) -> Grid:
    """Return a table without page-only columns and empty columns."""
    shown = [
        at
        for at, column in enumerate(table.columns)
        if column.brief != "none" and any(row[at].whole for row in table.cells)
    ]
    found = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    found.title, found.title_justify = Line(display.clean(table.caption)), "left"
    rows = [[Line(_text(row[at], table.columns[at])) for at in shown] for row in table.cells]
    for place, at in enumerate(shown):
        column = table.columns[at]
        texts = [row[place].plain for row in rows]
        parts = [part for text in texts for part in (text.split() if column.wraps else [text])]
        found.add_column(  # a name may take several lines; figures and words are never truncated
            display.clean(column.name),
            overflow="fold",
            justify="right" if column.figures else "left",
            min_width=max(map(cell_len, [*parts, *display.clean(column.name).split()]), default=0),
        )
    for row in rows:
        found.add_row(*row)
    return found


def _text(cell: Cell, column: Column) -> str:
    return display.clean(cell.whole if column.brief == "all" else cell.text)
