"""Find tables without ruled lines: rows of short texts that share the same gaps."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from corral.providers.ingestion.read.formats.pdf.elements import (
    Run,
    Table,
    are_joined,
    is_figure,
    weight,
)
from corral.providers.ingestion.read.formats.pdf.joining import cell_text

MIN_GAP = 0.55
"""Minimum width of the gap between two columns, as a share of the font size."""

_NARROW_GAP = 0.2
"""Minimum width of that gap in a row with a cell that fills its column."""

_SAME_EDGE = 1.2
"""Maximum distance, in points, between the left edges of the cells of one column."""

_OVERLAP = 0.8
"""Lines less than this share of their height apart are side by side."""

MAX_PITCH = 2.6
"""Maximum distance between rows of one table, in multiples of the line height."""

_MAX_RETRIED = 200
"""Maximum number of rows of a group that is searched again if it is not a table."""

_LONG = 9
"""Maximum mean number of words per cell; cells with more are prose."""

_Row = list[Run]
_Gap = tuple[float, float]


@dataclass(slots=True)
class Group:
    """A range of rows that may be a table, and the gaps that all of them share."""

    first: int
    last: int
    gaps: list[_Gap]


def find_groups(rows: Sequence[_Row]) -> list[Group]:
    """Return the groups of rows that are tables, from top to bottom."""
    groups: list[Group] = []
    number = 0
    while number < len(rows):
        group = _group(rows, number) if len(rows[number]) > 1 else None
        if group and _is_table(rows[group.first : group.last + 1], group.gaps):
            groups.append(group)
            number = group.last + 1
        else:
            number += 1 if not group or group.last - number < _MAX_RETRIED else group.last - number
    return groups


def split_at_edges(rows: Sequence[_Row]) -> list[_Row]:
    """Split runs at the coordinates where cells of other rows begin.

    A cell may fill its column, so that it is as close to the next cell as two words are.
    """
    many = [number for number, row in enumerate(rows) if len(row) > 1]
    starts = sorted(run.x0 for number in many for run in rows[number][1:])
    edges = [start for start, following in pairwise(starts) if following - start <= _SAME_EDGE]
    if not edges:
        return list(rows)
    return [
        [part for run in row for part in _parts(run, edges)]
        if many[0] - 1 <= number <= many[-1] + 1
        else row
        for number, row in enumerate(rows)
    ]


def _parts(run: Run, edges: Sequence[float]) -> list[Run]:
    """Split a run at the words that begin at an edge."""
    places = [
        number
        for number, (_, x0, _) in enumerate(run.words)
        if number and edges[0] - _SAME_EDGE <= x0 <= edges[-1] + _SAME_EDGE and _is_edge(x0, edges)
    ]
    if not places:
        return [run]
    parts = []
    for start, end in pairwise([0, *places, len(run.words)]):
        words = run.words[start:end]
        x0, x1 = min(word[1] for word in words), max(word[2] for word in words)
        parts.append(Run(words, x0, run.top, x1, run.bottom, run.size, run.order))
    return parts


def _is_edge(x0: float, edges: Sequence[float]) -> bool:
    place = bisect_left(edges, x0)
    return any(abs(edge - x0) <= _SAME_EDGE for edge in edges[max(place - 1, 0) : place + 1])


def _group(rows: Sequence[_Row], first: int) -> Group:
    """Return the longest group that begins with row number `first`."""
    gaps, last, count = _gaps(rows[first]), first, len(rows[first])
    number = first + 1
    full = first
    while number < len(rows) and gaps:
        above, row = rows[number - 1], rows[number]
        if _top(row) - _bottom(above) > (MAX_PITCH - 1) * _height(row):
            break
        if len(row) > 1:
            shared = _shared(gaps, row)
            lost = len(gaps) - len(shared)
            narrow = any(end - start < MIN_GAP * _size(row[0]) for start, end in shared)
            if not shared or lost > max(len(gaps), count) / 2 or (narrow and lost):
                break
            gaps, full, last = shared, number, number
        elif _fits(gaps, row[0]) and number - full <= 4:
            if _cell(gaps, row[0]) or _is_tight(rows, number):
                last = number
        else:
            break
        number += 1
    return Group(first, last, gaps)


def _gaps(row: _Row) -> list[_Gap]:
    return [
        (left.x1, right.x0)
        for left, right in pairwise(row)
        if right.x0 - left.x1 >= MIN_GAP * _size(left)
    ]


def _shared(gaps: Sequence[_Gap], row: _Row) -> list[_Gap]:
    """Return the gaps, reduced to the parts in which a row has no words."""
    size = _size(row[0])
    shared = []
    for start, end in gaps:
        pieces = [(start, end)]
        for run in row:
            cut = []
            for a, b in pieces:
                if run.x1 <= a or run.x0 >= b:
                    cut.append((a, b))
                else:
                    cut += [(a, run.x0), (run.x1, b)]
            pieces = cut
        best = max(pieces, key=lambda piece: piece[1] - piece[0])
        if best[1] - best[0] >= _NARROW_GAP * size:
            shared.append(best)
    return shared


def _fits(gaps: Sequence[_Gap], run: Run) -> bool:
    """Return True if a run does not cross a gap, apart from a small tolerance."""
    return all(run.x1 <= end - 1 or run.x0 >= start + 1 for start, end in gaps)


def _cell(gaps: Sequence[_Gap], run: Run) -> int:
    """Return the number of the column that contains a run."""
    return sum(1 for start, end in gaps if run.middle > (start + end) / 2)


def _is_tight(rows: Sequence[_Row], number: int) -> bool:
    """Return True if a row is as close to the one above as the lines of a paragraph are."""
    return _top(rows[number]) - _top(rows[number - 1]) < 1.35 * _height(rows[number])


def _top(row: _Row) -> float:
    return min(run.top for run in row)


def _bottom(row: _Row) -> float:
    return max(run.bottom for run in row)


def _height(row: _Row) -> float:
    return max(run.bottom - run.top for run in row)


def _size(run: Run) -> float:
    return run.size or run.height / 1.2


def _is_table(rows: Sequence[_Row], gaps: Sequence[_Gap]) -> bool:
    full = [row for row in rows if len(row) > 1]
    if not gaps or len(full) * 4 < len(rows):
        return False
    if len(full) == 1:  # A single row is a table if one of its cells continues on the next line.
        return any(
            len(row) == 1 and _cell(gaps, row[0]) and _goes_on(full[0], row[0]) for row in rows
        )
    columns: list[list[Run]] = [[] for _ in range(len(gaps) + 1)]
    for row in full:
        for run in row:
            columns[_cell(gaps, run)].append(run)
    if sum(map(bool, columns)) < 2:
        return False
    words = [statistics.fmean(weight(run.text) for run in column) for column in columns if column]
    figures = sum(is_figure(run.text) for column in columns for run in column)
    if figures * 4 >= sum(map(len, columns)):
        return True
    if len(full) == 2 and len(gaps) == 1:
        return min(words) <= 3 and max(words) <= _LONG
    return min(words) <= 4 or max(words) <= 5


def _goes_on(row: _Row, below: Run) -> bool:
    return any(abs(run.x0 - below.x0) <= 2 and are_joined(run.text, below.text) for run in row[1:])


def made(rows: Sequence[_Row], gaps: Sequence[_Gap]) -> Table:
    """Return the table made of rows that share gaps; the lines of a cell are joined."""
    count = len(gaps) + 1
    cells: list[list[list[Run]]] = []
    pitches = _pitches(rows)
    last: _Row = []
    for row in rows:
        places: list[list[Run]] = [[] for _ in range(count)]
        for run in row:
            places[_cell(gaps, run)].append(run)
        pitch = _top(row) - _top(last) if last else 0
        beside = pitch < _OVERLAP * _height(row)
        if cells and (beside or _continues(places, cells[-1], pitch, pitches)):
            for number, more in enumerate(places):
                cells[-1][number] += more
        else:
            cells.append(places)
        last = row
    runs = [run for row in rows for run in row]
    left = min(run.x0 for run in runs)
    return Table(
        [[cell_text(cell) for cell in row] for row in cells],
        [left, *(end for _, end in gaps)],
        left, min(run.top for run in runs),
        max(run.x1 for run in runs), max(run.bottom for run in runs),
    )  # fmt: skip


def _pitches(rows: Sequence[_Row]) -> tuple[float, float]:
    """Return the smallest and the largest distance between adjacent rows."""
    tops = [_top(row) for row in rows]
    between = [below - above for above, below in pairwise(tops)]
    return (min(between), max(between)) if between else (0.0, 0.0)


def _continues(
    places: Sequence[Sequence[Run]],
    above: Sequence[Sequence[Run]],
    pitch: float,
    pitches: tuple[float, float],
) -> bool:
    """Return True if a row is the next line of the cells above."""
    filled = [number for number, place in enumerate(places) if place]
    if not all(above[number] for number in filled):
        return False
    least, greatest = pitches
    if least < 0.8 * greatest:  # Rows are further apart than the lines of a cell.
        return pitch < (least + greatest) / 2
    return not places[0] and len(filled) < max(len(places) - 1, 2)
