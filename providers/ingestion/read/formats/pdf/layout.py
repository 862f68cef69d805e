"""Find the reading order of a page: its columns, and the tables and lines in them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from corral.providers.ingestion.read.formats.pdf import unruled
from corral.providers.ingestion.read.formats.pdf.elements import (
    Line,
    Page,
    Rule,
    Run,
    Table,
    is_figure,
    is_marker,
    row_text,
    rows_of,
    weight,
)
from corral.providers.ingestion.read.formats.pdf.letters import box_of
from corral.providers.ingestion.read.formats.pdf.ruled import take_tables

_MAX_DEPTH = 12
_MIN_LINES = 3
"""Minimum number of lines side by side for them to be columns."""

_MAX_RANGES = 60
_MAX_EDGES = 40
_MIN_GUTTER = 0.9
"""Minimum space between two columns, as a multiple of the font size."""

_PROSE = 3.0
"""Minimum mean number of words per line of prose; cells of a table have fewer."""

_BLOCK_GAP = 0.7
"""Minimum space between paragraphs, as a share of a line's height."""


def laid_out(page: Page) -> list[Line | Table]:
    """Return the lines and tables of a page in reading order.

    Their coordinates count from the top of the page. `page.height` is set to the height of the
    upright page.
    """
    elements: list[Line | Table] = []
    turns = sorted(page.runs, key=lambda turn: (turn < 0, -len(page.runs[turn])))
    for turn in turns:
        runs = page.runs[turn]
        if turn < 0:  # A watermark.
            elements += [replace(_line([run], -1), size=0.0) for run in runs]
            continue
        tables: list[Table] = []
        if page.rules:
            tables, runs = take_tables([turned(rule, turn) for rule in page.rules], runs)
        made = _Layout(tables).read(runs)
        if turn == turns[0]:
            _, top, _, bottom = box_of(turn, *page.box)
            page.height = bottom - top
            for each in made:
                each.top, each.bottom = each.top - top, each.bottom - top
        else:
            for each in made:
                if isinstance(each, Line):
                    each.column = -1
        elements += made
    return elements


def turned(rule: Rule, turn: int) -> Rule:
    """Return a rule in the coordinates of rotated text."""
    if not turn:
        return rule
    return Rule(*box_of(turn, rule.x0, -rule.bottom, rule.x1, -rule.top))


class _Layout:
    """Lays out the text of one rotation."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = dict(enumerate(tables))
        self._columns = 0
        self._elements: list[Line | Table] = []

    def read(self, runs: Sequence[Run]) -> list[Line | Table]:
        """Return lines and tables in reading order."""
        holders = [
            Run([], table.x0, table.top, table.x1, table.bottom, 0, -1 - number)
            for number, table in self._tables.items()
        ]
        rows = rows_of(runs)
        if holders:
            rows = sorted(
                [*rows, *([holder] for holder in holders)],
                key=lambda row: min(run.top for run in row),
            )
        self._region(rows, 0)
        return self._elements

    def _region(self, rows: list[list[Run]], depth: int) -> None:
        split = _columns(rows) if depth < _MAX_DEPTH and len(rows) > 1 else None
        if split is None:
            self._flow(rows)
            return
        before, left, right, after = split
        for part in (before, left, right, after):
            if part:
                self._region(part, depth + 1)

    def _flow(self, rows: list[list[Run]]) -> None:
        """Add rows of one column as lines, and groups of rows as tables."""
        if any(len(row) > 1 for row in rows):
            rows = unruled.split_at_edges(rows)
        groups = unruled.find_groups(rows) if any(len(row) > 1 for row in rows) else []
        position = 0
        for group in groups:
            self._lines(rows[position : group.first])
            table = unruled.made(rows[group.first : group.last + 1], group.gaps)
            self._add_table(table)
            position = group.last + 1
        self._lines(rows[position:])

    def _add_table(self, table: Table) -> None:
        """Add a table; a list of labels with a colon and their values becomes lines of text."""
        labels = [row[0] for row in table.rows if row[0]]
        if len(table.edges) == 2 and all(label.endswith((":", "：")) for label in labels):
            for row in table.rows:
                self._elements.append(
                    Line(" ".join(filter(None, row)), x0=table.x0, top=table.top, x1=table.x1,
                         bottom=table.bottom, column=-1)
                )  # fmt: skip
        else:
            self._elements.append(table)

    def _lines(self, rows: Sequence[list[Run]]) -> None:
        self._columns += 1
        made: list[Line] = []
        for row in rows:
            if row[0].order < 0:
                made = self._finished(made)
                self._elements.append(self._tables[-1 - row[0].order])
            else:
                made.append(_line(row, self._columns))
        self._finished(made)

    def _finished(self, lines: list[Line]) -> list[Line]:
        """Set `ends_block` and `is_full` of lines by their positions, and add them; return []."""
        if lines:
            blocks = [[lines[0]]]
            for line, below in pairwise(lines):
                height = max(min(line.bottom - line.top, below.bottom - below.top), 1)
                line.ends_block = below.top - line.bottom > _BLOCK_GAP * height
                if line.ends_block:
                    blocks.append([])
                blocks[-1].append(below)
            for block in blocks:
                right = max(line.x1 for line in block)
                for line in block:
                    line.is_full = line.x1 >= right - 1.6 * max(line.size, 8)
            self._elements += lines
        return []


def _line(row: Sequence[Run], column: int) -> Line:
    sizes = [run.size for run in row if run.size] or [0.0]
    return Line(
        row_text(row),
        round(2 * min(sizes)) / 2,
        x0=row[0].x0, top=min(run.top for run in row),
        x1=max(run.x1 for run in row), bottom=max(run.bottom for run in row),
        column=column,
    )  # fmt: skip


_Rows = list[list[Run]]


def _columns(rows: _Rows) -> tuple[_Rows, _Rows, _Rows, _Rows] | None:
    """Split rows at the best gap: above the columns, left, right, below; None for no columns."""
    runs = [run for row in rows for run in row]
    left_edge = min(run.x0 for run in runs)
    sizes = [run.size or run.height / 1.2 for run in runs if run.order >= 0]
    if len(sizes) < 2 * _MIN_LINES:
        return None
    gutter = _MIN_GUTTER * statistics.median(sizes)
    best: tuple[float, int, int, float] | None = None
    edges = _edges(runs, left_edge + 4 * gutter)
    kinds = {id(run): _kind(run) for run in runs} if edges else {}
    for edge in edges:
        ranges = _ranges(rows, edge, gutter)
        for first, last in ranges:
            score = _score(rows[first : last + 1], edge, kinds)
            if score and (best is None or score > best[0]):
                best = score, first, last, edge
            elif not score and len(ranges) < _MAX_RANGES:
                ranges += _halves(rows, first, last, edge)
    if best is None:
        return None
    _, first, last, edge = best
    inside = rows[first : last + 1]
    left = [[run for run in row if run.x0 < edge - 1] for row in inside]
    right = [[run for run in row if run.x0 >= edge - 1] for row in inside]
    return rows[:first], list(filter(None, left)), list(filter(None, right)), rows[last + 1 :]


def _edges(runs: Sequence[Run], beyond: float) -> list[float]:
    """Return the x coordinates at which most runs begin, from left to right."""
    edges: list[tuple[int, float]] = []
    starts = sorted(run.x0 for run in runs if run.x0 > beyond)
    group: list[float] = []
    for start in [*starts, float("inf")]:
        if group and start - group[-1] > 3:
            if len(group) >= _MIN_LINES:
                edges.append((len(group), group[0]))
            group = []
        group.append(start)
    return sorted(edge for _, edge in sorted(edges)[-_MAX_EDGES:])


def _ranges(rows: _Rows, edge: float, gutter: float) -> list[tuple[int, int]]:
    """Return the ranges of rows in which no run crosses the gap left of an edge, trimmed."""
    ranges: list[tuple[int, int]] = []
    start = 0
    for number in range(len(rows) + 1):
        crossed = number == len(rows) or any(
            run.x0 < edge - 1 and run.x1 > edge - gutter for run in rows[number]
        )
        if crossed:
            trimmed = _trimmed(rows, start, number - 1, edge)
            ranges += [trimmed] if trimmed else []
            start = number + 1
    return ranges


def _halves(rows: _Rows, first: int, last: int, edge: float) -> list[tuple[int, int]]:
    """Split a range at its widest horizontal space; return [] if that is too narrow."""
    widest, place = 0.0, first
    bottom = max(run.bottom for run in rows[first])
    for number in range(first + 1, last + 1):
        space = min(run.top for run in rows[number]) - bottom
        bottom = max(bottom, *(run.bottom for run in rows[number]))
        if space > widest:
            widest, place = space, number
    if (
        widest < _BLOCK_GAP * max(run.height for run in rows[place])
        or last - first < 2 * _MIN_LINES
    ):
        return []
    parts = [_trimmed(rows, first, place - 1, edge), _trimmed(rows, place, last, edge)]
    return [part for part in parts if part and part[1] - part[0] >= _MIN_LINES - 1]


def _trimmed(rows: _Rows, first: int, last: int, edge: float) -> tuple[int, int] | None:
    """Return a range without rows at its ends that are set apart and have no right side."""
    rights = [n for n in range(first, last + 1) if rows[n][-1].x0 >= edge - 1]
    if not rights:
        return None
    start, end = rights[0], rights[-1]
    while start > first and not _stands_apart(rows[start - 1], rows[start]):
        start -= 1
    while end < last and not _stands_apart(rows[end], rows[end + 1]):
        end += 1
    return start, end


def _stands_apart(above: Sequence[Run], below: Sequence[Run]) -> bool:
    height = max(run.height for run in below)
    return min(run.top for run in below) - max(run.bottom for run in above) > _BLOCK_GAP * height


class _Kind(NamedTuple):
    """The look of a run."""

    words: float
    is_figure: bool
    is_marker: bool


def _kind(run: Run) -> _Kind:
    text = run.text
    return _Kind(weight(text), is_figure(text), is_marker(text))


def _score(rows: _Rows, edge: float, kinds: Mapping[int, _Kind]) -> float:
    """Return the amount of text that stands in two columns; 0 if they are none, or a table."""
    left = [run for row in rows for run in row if run.x0 < edge - 1]
    right = [run for row in rows for run in row if run.x0 >= edge - 1]
    if len(left) < _MIN_LINES or len(right) < _MIN_LINES:
        return 0
    top = max(min(run.top for run in side) for side in (left, right))
    bottom = min(max(run.bottom for run in side) for side in (left, right))
    beside = [
        sum(1 for run in side if run.top < bottom and run.bottom > top) for side in (left, right)
    ]
    if min(beside) < _MIN_LINES:
        return 0
    return (
        min(beside) + min(_height(left), _height(right))
        if _is_text(rows, left, right, kinds)
        else 0
    )


def _height(runs: Sequence[Run]) -> float:
    return sum(run.height for run in runs) / 1000


def _is_text(
    rows: _Rows, left: Sequence[Run], right: Sequence[Run], kinds: Mapping[int, _Kind]
) -> bool:
    """Return True if two sides are columns of text, False if they are cells of a table."""
    sides = [[run for run in side if run.order >= 0] for side in (left, right)]
    if not all(sides):
        return False
    looks = [[kinds[id(run)] for run in side] for side in sides]
    words = [sum(kind.words for kind in side) / len(side) for side in looks]
    figures = max(sum(kind.is_figure for kind in side) / len(side) for side in looks)
    if sum(kind.is_marker for kind in looks[0]) * 2 > len(looks[0]):
        return False
    if min(words) >= _PROSE and figures < 0.3:
        return True
    orders = [[run.order for run in side] for side in sides]
    if figures < 0.3 and (max(orders[0]) < min(orders[1]) or max(orders[1]) < min(orders[0])):
        return True
    both = sum(1 for row in rows if row[0].x0 < sides[1][0].x0 <= row[-1].x0 + 3)
    return both * 3 < min(map(len, sides)) and figures < 0.3
