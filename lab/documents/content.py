"""Contents of the generated documents: distinguishable sentences, and tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

_PROSE = """
the shepherd brings hay to flock before first snow and counts every lamb at gate while wool market
opens in valley where traders compare prices of fleece with last season because rain delayed
shearing on northern farms so barns remain full until spring
"""
_WORDS = _PROSE.split()

_CROPS = """
Barley Clover Fescue Lucerne Millet Oats Rye Sorghum Timothy Vetch Wheat Turnip
"""
_VILLAGES = """
Alston Brecon Calder Dunster Ennis Forres Glossop Hexham Inver Jura Kelso Lorton
"""
_COLUMNS = ["Yield", "Price", "Stock", "Losses", "Moisture", "Ash", "Fibre", "Sugar"]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a document.

    Attributes:
        rows: The header, and then rows that differ in their first cells.
        ruled: True if lines divide its cells.
    """

    rows: list[list[str]]
    ruled: bool


@dataclass(frozen=True, slots=True)
class MadePdf:
    """A PDF and its expected content.

    Attributes:
        kind: The layout.
        library: The library that wrote it.
        data: The file.
        marks: Words that occur once each, in reading order.
        grids: The tables.
        once: Texts of running lines, which should be read at most once.
        words: Words divided at line ends.
    """

    kind: str
    library: str
    data: bytes
    marks: list[str]
    grids: list[Grid] = field(default_factory=list)
    once: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


class Writer:
    """Generates sentences and tables of one document.

    Args:
        rng: Random generator for the words.
        prefix: Prefix of the words that occur once.
    """

    def __init__(self, rng: random.Random, prefix: str) -> None:
        self.rng = rng
        self.marks: list[str] = []
        self._prefix = prefix

    def mark(self) -> str:
        """Return a new word that occurs once."""
        self.marks.append(f"{self._prefix}{len(self.marks):03d}")
        return self.marks[-1]

    def words(self, count: int) -> str:
        """Return words, the first of which is a mark."""
        return " ".join([self.mark(), *(self.rng.choice(_WORDS) for _ in range(count - 1))])

    def paragraph(self, sentences: int = 4) -> str:
        """Return sentences of ten to sixteen words."""
        return " ".join(f"{self.words(self.rng.randint(10, 16))}." for _ in range(sentences))

    def grid(self, rows: int, columns: int, ruled: bool, prose: bool = False) -> Grid:
        """Return a table of numbers; with `prose`, its second column is a phrase."""
        names = [
            f"{item} {place} {self.rng.randint(100, 999)}"
            for item in _CROPS.split()
            for place in _VILLAGES.split()
        ]
        header = ["Crop", *self.rng.sample(_COLUMNS, columns - 1)]
        made = [header]
        for name in self.rng.sample(names, rows):
            made.append([name, *(self._figure() for _ in header[1:])])
        if prose:
            header[1] = "Remarks"
            for row in made[1:]:
                row[1] = " ".join(self.rng.choice(_WORDS) for _ in range(self.rng.randint(5, 9)))
        return Grid(made, ruled)

    def _figure(self) -> str:
        form = self.rng.choice(["{:.2f}", "{:.0f}", "{:.1f} %", "{:,.0f}"])
        return form.format(self.rng.uniform(1, 9000))


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of limited length."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def broken(words: Sequence[str], width: int, rng: random.Random) -> list[str]:
    """Return words in lines, hyphenating words that do not fit."""
    lines = [""]
    for word in words:
        line = f"{lines[-1]} {word}".strip()
        room = width - len(lines[-1]) - 2
        if len(line) <= width:
            lines[-1] = line
        elif room >= 3 and len(word) >= 7 and rng.random() < 0.9:
            cut = min(room, len(word) - 3)
            lines[-1] = f"{lines[-1]} {word[:cut]}-".strip()
            lines.append(word[cut:])
        else:
            lines.append(word)
    return lines
