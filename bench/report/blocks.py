"""A report as data: sections of blocks, which `html`, `markdown` and `terminal` render."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from corral.bench.report.drawing import Drawing

Brief = Literal["all", "text", "none"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: A name or a figure.
        note: Small text beside it: an interval, a fusion, a reason.
        style: A class of the page's style sheet: a mode, a verdict.
        drawing: Shown under the text, on the page only.
        more: Opens under the text, on the page only.
        share: Percent of the color scale that fill the cell, on the page only.
    """

    text: str
    note: str = ""
    style: str = ""
    strong: bool = False
    drawing: Drawing | None = None
    more: Folded | None = None
    share: float | None = None

    @property
    def whole(self) -> str:
        """Text and note."""
        return f"{self.text} {self.note}".strip()


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        figures: True if it is right-aligned.
        wraps: True if its texts may take several lines.
        brief: The part of its cells shown in a terminal: all, the text without the note, or
            nothing.
    """

    name: str
    figures: bool = False
    wraps: bool = False
    brief: Brief = "all"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns; the first column names the row.

    Attributes:
        failed: Short rows with the reason for missing figures in the last cell.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    failed: Sequence[Sequence[Cell]] = ()
    heat: bool = False

    @property
    def cells(self) -> list[list[Cell]]:
        """All rows, with every entry as a `Cell`."""
        return [[Cell(c) if isinstance(c, str) else c for c in row] for row in self.rows]

    @property
    def padded(self) -> list[list[Cell]]:
        """Failed rows padded to full length, with the reason in a column that wraps."""
        found = []
        for *names, reason in self.failed:
            row = [*names, *[Cell("")] * (len(self.columns) - len(names))]
            wide = [at for at, column in enumerate(self.columns) if column.wraps]
            row[next((at for at in wide if at >= len(names)), len(names))] = reason
            found.append(row)
        return found


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `kind` is a class of the style sheet, or `code`."""

    text: str
    kind: str = "lead"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list: its subject and its text; `link` leads to a section."""

    name: str
    text: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: Sequence[Item]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its caption, the values that it shows, and a legend of (name, series)."""

    caption: str
    drawing: Drawing
    legend: Sequence[tuple[str, int]] = ()
    values: Table | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts side by side."""

    charts: Sequence[Chart]


@dataclass(frozen=True, slots=True)
class Folded:
    """A line that unfolds.

    Attributes:
        name: The subject of the line, in bold.
        summary: The rest of the line.
        agrees: True if the line is sufficient, so that Markdown and the terminal omit the blocks.
    """

    name: str
    blocks: Sequence[Block]
    summary: str = ""
    agrees: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a part of a section."""

    text: str


Block = Table | Text | Items | Facts | Charts | Folded | Heading


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `link` is its name in the table of contents."""

    anchor: str
    title: str
    link: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def figures(*names: str, brief: Brief = "all") -> list[Column]:
    """Return right-aligned columns for figures."""
    return [Column(name, figures=True, brief=brief) for name in names]
