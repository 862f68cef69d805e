"""Find the tables in Markdown, and the places where they may be cut."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_SEPARATOR = re.compile(r"^ {0,3}[|:-][|:\- \t]*+$", re.MULTILINE)
FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})", re.MULTILINE)
"""Matches the begin or end of a code block."""
_BAR = re.compile(r"(?<!\\)\|")
_FILLED = re.compile(r"[^\s|]")


@dataclass(frozen=True, slots=True)
class Table:
    """A table in GitHub-flavored Markdown; positions are in characters.

    Attributes:
        start: Start of the header row.
        rows: End of each row, without its line break; the first one is the separator.
        header: The header row and the separator, each with its line break.
        columns: The cells of these two rows.
    """

    start: int
    rows: tuple[int, ...]
    header: str
    columns: tuple[list[str], list[str]]

    @property
    def body(self) -> int:
        """Start of the first row after the separator."""
        return self.rows[0] + 1

    @property
    def end(self) -> int:
        """End of the last row."""
        return self.rows[-1]

    def row(self, position: int) -> tuple[int, int]:
        """Return the start and end of the row that contains a position in the body."""
        number = bisect_right(self.rows, position - 1)
        return self.rows[number - 1] + 1, self.rows[number]

    def rows_in(self, start: int, end: int) -> tuple[int, ...]:
        """Return the row ends in the body that are after `start` and at most `end`."""
        first = max(1, bisect_right(self.rows, start))
        return self.rows[first : bisect_right(self.rows, end)]

    def header_from(self, column: int, most: int) -> str:
        """Return the header of the columns from number `column` on.

        Return "" if there are none, or if the header has more than `most` characters.
        """
        if not column:
            return self.header if len(self.header) <= most else ""
        lines = [cells[column : column + most] for cells in self.columns]
        if not all(lines) or sum(len(cell) + 1 for cells in lines for cell in cells) > most:
            return ""
        return "".join(f"|{'|'.join(cells)}|\n" for cells in lines)


def find_tables(text: str) -> list[Table]:
    """Return the tables with rows in a Markdown text, in order, except in code blocks."""
    separators = list(_SEPARATOR.finditer(text))
    if not separators:
        return []
    fences = [match.start() for match in FENCE.finditer(text)]
    tables: list[Table] = []
    for match in separators:
        in_code = bisect_right(fences, match.start()) % 2
        covered = tables[-1].end if tables else -1
        if "-" in match[0] and not in_code and match.start() > covered:
            tables += _table(text, match)
    return tables


def bars(text: str, start: int, end: int) -> list[int]:
    """Return the positions of the cell separators between two positions."""
    return [match.start() for match in _BAR.finditer(text, start, end)]


def cell_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the positions of cell separators with a filled cell on both sides."""
    filled = _FILLED.search(text, start, end)
    if filled is None:
        return
    for match in _BAR.finditer(text, filled.end(), end):
        if filled.start() < match.start():
            filled = _FILLED.search(text, match.start(), end)
            if filled is None:
                return
        yield match.start()


def _table(text: str, separator: re.Match[str]) -> list[Table]:
    start = text.rfind("\n", 0, max(separator.start() - 1, 0)) + 1
    head = text[start : separator.start()]
    columns = _cells(head), _cells(separator[0])
    if "|" not in head or len(columns[0]) != len(columns[1]):
        return []
    ends = [separator.end()]
    while ends[-1] < len(text):
        end = text.find("\n", ends[-1] + 1)
        end = len(text) if end < 0 else end
        if "|" not in text[ends[-1] + 1 : end]:
            break
        ends.append(end)
    header = f"{head}{separator[0]}\n"
    return [Table(start, tuple(ends), header, columns)] if len(ends) > 1 else []


def _cells(line: str) -> list[str]:
    line = line.strip()
    places = [-1, *bars(line, 0, len(line)), len(line)]
    cells = [line[a + 1 : b] for a, b in pairwise(places)]
    first, last = line.startswith("|"), len(cells) > 1 and not cells[-1].strip()
    return cells[first : len(cells) - last]
