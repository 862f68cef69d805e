"""Find tables with ruled lines: a grid of lines, and the words in its cells."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from corral.providers.ingestion.read.formats.pdf.elements import Rule, Run, Table
from corral.providers.ingestion.read.formats.pdf.joining import cell_text

_NEAR = 3.0
"""Maximum distance, in points, of lines that count as touching."""

MAX_RULES = 6000
MAX_CELLS = 20_000
_MAX_LINES_A_CELL = 10
"""Maximum mean number of lines per cell; with more, the cells are boxes or columns of text."""

_MIN_FILLED = 0.25


def take_tables(rules: Sequence[Rule], runs: list[Run]) -> tuple[list[Table], list[Run]]:
    """Return the tables of a page, and the runs that are not in a table."""
    tables: list[Table] = []
    for grid in _grids(rules):
        table, rest = _filled(grid, runs)
        if table:
            tables.append(table)
            runs = rest
    return tables, runs


class _Grid:
    """A grid of touching lines.

    Attributes:
        xs: Coordinates of the vertical lines, ascending.
        ys: Coordinates of the horizontal lines, ascending.
    """

    def __init__(self, across: list[Rule], down: list[Rule]) -> None:
        self.xs = _places([rule.x0 for rule in down])
        self.ys = _places([rule.top for rule in across])
        self.xs = _widened(self.xs, [(rule.x0, rule.x1) for rule in across])
        self.ys = _widened(self.ys, [(rule.top, rule.bottom) for rule in down])
        self._down = _by_place(self.xs, [(rule.x0, rule) for rule in down])
        self._across = _by_place(self.ys, [(rule.top, rule) for rule in across])

    def has_line_left_of(self, row: int, column: int) -> bool:
        """Return True if a line separates a cell from the cell to its left."""
        middle = (self.ys[row] + self.ys[row + 1]) / 2
        return any(rule.top <= middle <= rule.bottom for rule in self._down.get(column, ()))

    def has_line_above(self, row: int, column: int) -> bool:
        """Return True if a line separates a cell from the cell above it."""
        middle = (self.xs[column] + self.xs[column + 1]) / 2
        return any(rule.x0 <= middle <= rule.x1 for rule in self._across.get(row, ()))


def _by_place(places: list[float], rules: list[tuple[float, Rule]]) -> dict[int, list[Rule]]:
    """Group lines by the index of their coordinate in `places`."""
    grouped: dict[int, list[Rule]] = {}
    for value, rule in rules:
        number = bisect_right(places, value + _NEAR) - 1
        if number >= 0 and abs(places[number] - value) <= _NEAR:
            grouped.setdefault(number, []).append(rule)
    return grouped


def _places(values: list[float]) -> list[float]:
    """Return values in ascending order, with values near each other merged."""
    places: list[float] = []
    for value in sorted(values):
        if not places or value - places[-1] > _NEAR:
            places.append(value)
    return places


def _widened(places: list[float], spans: list[tuple[float, float]]) -> list[float]:
    """Add an outer coordinate on each side on which most lines extend beyond the outermost."""
    if not places or not spans:
        return places
    starts, ends = sorted(span[0] for span in spans), sorted(span[1] for span in spans)
    first, last = starts[len(starts) // 2], ends[len(ends) // 2]
    before = [first] if first < places[0] - 3 * _NEAR else []
    behind = [last] if last > places[-1] + 3 * _NEAR else []
    return [*before, *places, *behind]


def _grids(rules: Sequence[Rule]) -> Iterator[_Grid]:
    """Yield the grids of touching lines, from top to bottom."""
    if not 4 <= len(rules) <= MAX_RULES:
        return
    across = _merged([rule for rule in rules if rule.x1 - rule.x0 >= rule.bottom - rule.top], True)
    down = _merged([rule for rule in rules if rule.x1 - rule.x0 < rule.bottom - rule.top], False)
    groups: list[tuple[list[Rule], list[Rule]]] = []
    down.sort(key=lambda rule: rule.top)
    owner = _owners(across, down)
    members: dict[int, tuple[list[Rule], list[Rule]]] = {}
    for number, root in enumerate(owner):
        own = members.setdefault(root, ([], []))
        if number < len(across):
            own[0].append(across[number])
        else:
            own[1].append(down[number - len(across)])
    groups = [group for group in members.values() if len(group[0]) > 1 and group[1]]
    for group in sorted(groups, key=lambda group: min(rule.top for rule in group[0])):
        grid = _Grid(*group)
        rows, columns = len(grid.ys) - 1, len(grid.xs) - 1
        if rows >= 2 and columns >= 2 and rows * columns <= MAX_CELLS:
            yield grid


def _owners(across: list[Rule], down: list[Rule]) -> list[int]:
    """Return the number of each line's group; touching lines are in the same group."""
    owner = list(range(len(across) + len(down)))

    def root(number: int) -> int:
        while owner[number] != number:
            owner[number] = owner[owner[number]]
            number = owner[number]
        return number

    tops = [rule.top for rule in across]
    for number, rule in enumerate(down, len(across)):
        first = bisect_right(tops, rule.top - _NEAR)
        for place in range(first, bisect_right(tops, rule.bottom + _NEAR)):
            if across[place].x0 - _NEAR <= rule.x0 <= across[place].x1 + _NEAR:
                owner[root(place)] = root(number)
    return [root(number) for number in range(len(owner))]


def _merged(rules: list[Rule], across: bool) -> list[Rule]:
    """Merge lines that continue each other; return the lines in order."""

    def key(rule: Rule) -> tuple[float, float]:
        return (rule.top, rule.x0) if across else (rule.x0, rule.top)

    merged: list[Rule] = []
    level = None
    rows: list[list[Rule]] = []
    for rule in sorted(rules, key=key):
        place = key(rule)[0]
        if level is None or place - level > 1.5:
            rows.append([])
            level = place
        rows[-1].append(rule)
    for row in rows:
        row.sort(key=lambda rule: rule.x0 if across else rule.top)
        for rule in row:
            last = merged[-1] if merged and rule is not row[0] else None
            if last and across and rule.x0 <= last.x1 + _NEAR:
                last.x1 = max(last.x1, rule.x1)
            elif last and not across and rule.top <= last.bottom + _NEAR:
                last.bottom = max(last.bottom, rule.bottom)
            else:
                merged.append(Rule(rule.x0, rule.top, rule.x1, rule.bottom))
    return merged


def _filled(grid: _Grid, runs: list[Run]) -> tuple[Table | None, list[Run]]:
    """Return the table in a grid, or None, and the runs outside of it."""
    xs, ys = grid.xs, grid.ys
    cells: dict[tuple[int, int], list[Run]] = {}
    rest: list[Run] = []
    for run in runs:
        middle = (run.top + run.bottom) / 2
        row = bisect_right(ys, middle) - 1
        if not 0 <= row < len(ys) - 1 or run.x1 < xs[0] or run.x0 > xs[-1]:
            rest.append(run)
            continue
        parts = _by_column(run, xs)
        for column, part in parts.items():
            if 0 <= column < len(xs) - 1:
                cells.setdefault((row, column), []).append(part)
            else:
                rest.append(part)
    heads = _heads(grid)
    held: dict[tuple[int, int], list[Run]] = {}
    for place, inside in cells.items():
        held.setdefault(heads[place], []).extend(inside)
    count = (len(xs) - 1) * (len(ys) - 1)
    lines = sum(len({round(run.top) for run in inside}) for inside in held.values())
    if not held or lines > _MAX_LINES_A_CELL * len(held):
        return None, runs
    rows = [["" for _ in xs[1:]] for _ in ys[1:]]
    for (row, column), inside in held.items():
        rows[row][column] = cell_text(inside)
    rows = _with_one_header(rows, heads)
    covered = sum(1 for place, head in heads.items() if head in held)
    columns = [number for number in range(len(xs) - 1) if any(row[number] for row in rows)]
    rows = [[row[number] for number in columns] for row in rows if any(row)]
    if covered < _MIN_FILLED * count or len(columns) < 2 or len(rows) < 2:
        return None, runs
    edges = [xs[number] for number in columns]
    return Table(rows, edges, xs[0], ys[0], xs[-1], ys[-1]), rest


def _with_one_header(
    rows: list[list[str]], heads: dict[tuple[int, int], tuple[int, int]]
) -> list[list[str]]:
    """Merge the header rows into one; a title over several columns is repeated in each."""
    width = len(rows[0])
    spans = any(heads[0, column][1] != column for column in range(width))
    depth = sum(1 for row in range(len(rows)) if heads[row, 0] == (0, 0))
    if not spans or not 1 < depth < len(rows):
        return rows
    header = []
    for column in range(width):
        places = dict.fromkeys(heads[row, column] for row in range(depth))
        header.append(" ".join(filter(None, (rows[row][place] for row, place in places))))
    return [header, *rows[depth:]]


def _by_column(run: Run, xs: list[float]) -> dict[int, Run]:
    """Split a run by the columns of its words."""
    column = bisect_right(xs, run.x0 + 1) - 1
    if column == bisect_right(xs, run.x1 - 1) - 1:
        return {column: run}
    parts: dict[int, Run] = {}
    for word in run.words:
        _, x0, x1 = word
        column = bisect_right(xs, (x0 + x1) / 2) - 1
        if column not in parts:
            parts[column] = Run([], x0, run.top, x1, run.bottom, run.size, run.order)
        part = parts[column]
        part.words.append(word)
        part.x0, part.x1 = min(part.x0, x0), max(part.x1, x1)
    return parts


def _heads(grid: _Grid) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, for each cell, the first of the cells that it is merged with."""
    heads: dict[tuple[int, int], tuple[int, int]] = {}
    for row, _ in enumerate(pairwise(grid.ys)):
        for column, _ in enumerate(pairwise(grid.xs)):
            head = row, column
            if column and not grid.has_line_left_of(row, column):
                head = heads[row, column - 1]
            elif row and not grid.has_line_above(row, column):
                head = heads[row - 1, column]
            heads[row, column] = head
    return heads
