"""Join lines: hyphenated words at line ends, and lines of scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from corral.providers.ingestion.read.formats.pdf.elements import (
    Line,
    Run,
    are_joined,
    row_text,
    rows_of,
)

_BROKEN = re.compile(r"(?:^|(?<=\W))([^\W\d_]+(?:['’][^\W\d_]+)?)([-\u2010\u00ad])$")
_START = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?(?:-[^\W\d_]+)*")
_SAME_SIZE = 0.6
_FIRST_PARTS = {"far", "half", "self", "well"}
"""Words that usually keep the hyphen in a compound, such as well-known."""


class Vocabulary:
    """The words of a document. They decide if a hyphen at a line end is part of the word."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts: Iterable[str] = texts
        self._words: set[str] | None = None

    def joined(self, first: str, second: str) -> str | None:
        """Return the word that is divided between two lines; None if no word is divided.

        The word has a hyphen if that is how it is written elsewhere in the document.

        Args:
            first: A line; a hyphen at its end may divide a word.
            second: The next line.
        """
        end, start = _BROKEN.search(first), _START.match(second)
        if not end or not start:
            return None
        whole, written = end[1] + start[0], f"{end[1]}-{start[0]}"
        if self._words is None:  # Most documents do not need the words.
            self._words = {word for text in self._texts for word in _WORD.findall(text.lower())}
        if end[2] == "\u00ad" or whole.lower() in self._words:
            return whole
        if written.lower() in self._words or not start[0][0].islower():
            return written
        return written if len(end[1]) == 1 or end[1].lower() in _FIRST_PARTS else whole


_NO_WORDS = Vocabulary(())


def cell_text(runs: Sequence[Run], words: Vocabulary = _NO_WORDS) -> str:
    """Return the text of a cell, with its lines joined."""
    text = ""
    for row in rows_of(runs):
        line = row_text(row)
        if not text or are_joined(text, line):
            text += line
            continue
        word = words.joined(text, line)
        text = _merged(text, line, word, " ") if word else f"{text} {line}"
    return text


def join_lines(lines: Sequence[Line], words: Vocabulary) -> None:
    """Join words divided at line ends, and whole lines in scripts without spaces.

    The rest of a divided word moves up to the first line; other lines are not merged.
    """
    last: Line | None = None
    for line in lines:
        if last is not None and last.text and _continues(last, line):
            if are_joined(last.text, line.text):
                last.text += line.text
                last.is_full, last.ends_block = line.is_full, line.ends_block
                last.bottom = line.bottom
                line.text = ""
                continue
            word = words.joined(last.text, line.text)
            if word:
                last.text, _, line.text = _merged(last.text, line.text, word, "\n").partition("\n")
        if line.text:
            last = line


def _continues(line: Line, following: Line) -> bool:
    """Return True if two lines may be in the same paragraph."""
    is_open = line.is_full or line.text[-1:] in "-\u2010\u00ad"
    if not is_open or line.level != following.level:
        return False
    if abs(line.size - following.size) > _SAME_SIZE:
        return False
    if line.column != following.column:
        return True
    return not line.ends_block and following.x0 <= line.x0 + max(line.size, 1)


def _merged(first: str, second: str, word: str, between: str) -> str:
    """Return two lines with the divided word moved to the end of the first."""
    start, end = _START.match(second), _BROKEN.search(first)
    if not start or not end:
        return f"{first}{between}{second}"
    rest = second[start.end() :]
    tail = re.match(r"\S*", rest)
    mark = tail[0] if tail else ""
    return f"{first[: end.start()]}{word}{mark}{between}{rest[len(mark) :].lstrip()}".rstrip(" ")
