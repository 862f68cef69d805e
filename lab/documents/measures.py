"""Measures of reading quality: order of the text, cells of tables, words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from lab.documents.content import Grid, MadePdf
from lab.documents.readers import Reading, Rows

_MARK = re.compile(r"\bm\d{3}\b")


def order(made: MadePdf, reading: Reading) -> float | None:
    """Return the share of marks that are followed by the right one; None for fewer than two."""
    if len(made.marks) < 2:
        return None
    seen = _MARK.findall(reading.text)
    following = dict(itertools.pairwise(seen))
    pairs = list(zip(made.marks, made.marks[1:], strict=False))
    right = [following.get(first) == second for first, second in pairs]
    return right.count(True) / len(right)


def cells(grid: Grid, tables: Sequence[Rows]) -> tuple[int, int]:
    """Return the number of correct cells below the header, and of all cells.

    A cell is correct if its text is in a row with the same first cell and in a column with the same
    header.
    """
    header, *rows = grid.rows
    right = 0
    for row in rows:
        found = _row(header, row[0], tables)
        right += sum(found.get(name) == cell for name, cell in zip(header, row, strict=True))
    return right, len(rows) * len(header)


def _row(header: Sequence[str], key: str, tables: Sequence[Rows]) -> dict[str, str]:
    for table in tables:
        names = [_folded(name) for name in table[0]]
        for row in table[1:]:
            if row and _folded(row[0]) == key:
                return dict(zip(names, map(_folded, row), strict=False))
    return {}


def _folded(text: str) -> str:
    return " ".join(text.split())


def words(made: MadePdf, reading: Reading) -> float | None:
    """Return the share of words that are whole in the text; None if there are none."""
    if not made.words:
        return None
    return sum(word in reading.text for word in made.words) / len(made.words) - _pieces(
        made, reading
    )


def _pieces(made: MadePdf, reading: Reading) -> float:
    """Return the share of lines that end inside a hyphenated word."""
    lines = reading.text.replace("\x02", "-\n").replace("\ufffe", "-\n").split("\n")
    return sum(bool(re.search(r"[a-z]-$", line)) for line in lines) / max(len(lines), 1)


def running(made: MadePdf, reading: Reading) -> float | None:
    """Return the share of running lines that are read at most once; None if there are none."""
    if not made.once:
        return None
    return sum(reading.text.count(text) <= 1 for text in made.once) / len(made.once)


def character_errors(right: str, read: str) -> float:
    """Return the number of edits between two texts per character of the correct one."""
    right, read = _folded(right), _folded(read)
    return Levenshtein.distance(right, read) / max(len(right), 1)
