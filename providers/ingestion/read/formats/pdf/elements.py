"""The parts of a page: runs of words and ruled lines, and the lines and tables made from them.

Coordinates are points on the upright page: x grows to the right, and y grows downwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

CJK = "\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese and Japanese characters, which are written without spaces between words."""

_WIDE_END = re.compile(rf"[{CJK}，、；：「（《]$")
_WIDE_START = re.compile(rf"[{CJK}，、。；：！？」）》]")
_WIDE = re.compile(rf"[{CJK}]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FIGURE = re.compile(r"[-+−±~<>=≤≥(]*[$€£¥]?\s?\d[\d.,:/ %‰–-]*(?:[a-zA-Z%°€$£¥]{0,3})\)?[*†]?$")
_MARKER = re.compile(r"(?:[-–—•‣◦▪●○■□*·»]|[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivxlc]{1,5})[.)\]])$")


Word = tuple[str, float, float]
"""A word with its left and right edges."""


@dataclass(slots=True)
class Run:
    """Words on one line without a wide gap between them.

    Attributes:
        words: The words in reading order.
        size: Font size in points; 0 if unknown.
        order: Position in the order in which the page draws its text.
    """

    words: list[Word]
    x0: float
    top: float
    x1: float
    bottom: float
    size: float = 0
    order: int = 0

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join([word[0] for word in self.words])

    @property
    def height(self) -> float:
        """The height of the run, in points."""
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        """The x coordinate of the center."""
        return (self.x0 + self.x1) / 2


@dataclass(slots=True)
class Rule:
    """A horizontal or vertical line, or an edge of a rectangle."""

    x0: float
    top: float
    x1: float
    bottom: float


@dataclass(slots=True)
class Line:
    """A line of text.

    Attributes:
        size: Font size in points, rounded to halves; 0 if unknown.
        level: Level of a heading, from 1; 0 if the line is not a heading.
        goes_on: True if it continues the heading on the line above.
        ends_block: True if more space than usual follows.
        is_full: True if it reaches the right edge of its column.
        column: Number of its column on the page.
    """

    text: str
    size: float = 0
    level: int = 0
    goes_on: bool = False
    x0: float = 0
    top: float = 0
    x1: float = 0
    bottom: float = 0
    ends_block: bool = False
    is_full: bool = False
    column: int = 0


@dataclass(slots=True)
class Table:
    """A table.

    Attributes:
        rows: The texts of the cells by row; all rows have the same length.
        edges: Left edges of the columns.
    """

    rows: list[list[str]]
    edges: list[float]
    x0: float = 0
    top: float = 0
    x1: float = 0
    bottom: float = 0


@dataclass(slots=True)
class Page:
    """A page as it is drawn.

    Attributes:
        runs: Text by its rotation in quarter turns; -1 for another angle.
        rules: Ruled lines, in the coordinates of text that is not rotated.
        box: Left, bottom, right and top edges of the page; here y grows upwards.
        height: Height of the upright page; set by `laid_out`.
        picture_area: Total area of its pictures, in square points.
        is_drawn: True if the page draws a picture or a shape.
        confidence: Confidence of text recognition, from 0 to 1; None if it was not used.
    """

    runs: dict[int, list[Run]]
    rules: list[Rule] = field(default_factory=list)
    box: tuple[float, float, float, float] = (0, 0, 0, 0)
    height: float = 0
    picture_area: float = 0
    is_drawn: bool = False
    confidence: float | None = None


def rows_of(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs into lines, from top to bottom, each from left to right."""
    rows: list[list[Run]] = []
    spans: list[tuple[float, float]] = []
    for run in sorted(runs, key=lambda run: run.top + run.bottom):
        if rows:
            top, bottom = spans[-1]
            shared = min(bottom, run.bottom) - max(top, run.top)
            if shared >= 0.5 * min(bottom - top, run.height):
                rows[-1].append(run)
                if run.height > bottom - top:
                    spans[-1] = run.top, run.bottom
                continue
        rows.append([run])
        spans.append((run.top, run.bottom))
    for row in rows:
        row.sort(key=lambda run: run.x0)
    return rows


def row_text(row: Sequence[Run]) -> str:
    """Return the text of the runs on one line."""
    if len(row) == 1:
        return row[0].text
    texts = [run.text for run in row]
    if sum(bool(_RIGHT_TO_LEFT.search(text)) for text in texts) * 2 > len(texts):
        texts.reverse()
    return " ".join(texts)


def are_joined(first: str, second: str) -> bool:
    """Return True if two lines join without a space, as in Chinese and Japanese."""
    return bool(_WIDE_END.search(first[-1:]) and _WIDE_START.match(second))


def weight(text: str) -> float:
    """Return the number of words; two Chinese or Japanese characters count as one word."""
    return len(text.split()) + len(_WIDE.findall(text)) / 2


def is_figure(text: str) -> bool:
    """Return True if a text is a number, possibly with a unit."""
    return _FIGURE.match(text) is not None


def is_marker(text: str) -> bool:
    """Return True if a text is a bullet or a number that begins a list item."""
    return _MARKER.match(text) is not None
