"""Find the headings of Markdown texts: their positions, levels and texts."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEADING_LENGTH = 200

# None of these patterns backtracks, because a single line may be as long as a whole document.
_ATX = re.compile(r" {0,3}(#{1,6})([ \t].*)?")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|#]|[-*+][ \t]|\d{1,9}[.)][ \t])")
_MARKED = re.compile(r"\n {0,3}(?:[#=-]|`{3}|~{3}).*")
_FRONT_MATTER = re.compile(r"---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_TAG = re.compile(r"<[^<>]*>|\{#[^{}]*\}")
_MARK = re.compile(r"[*`]+|(?<!\w)_+|(?<!_)_++(?!\w)")


class Heading(NamedTuple):
    """A heading.

    Attributes:
        start: Start of its line in the text, in characters.
        end: End of its line, including an underline.
        level: 1 or more; 1 is the outermost level.
        text: Its text without markup, 1 to 200 characters.
    """

    start: int
    end: int
    level: int
    text: str


def markdown_headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text in order, except in code and front matter."""
    found: list[Heading] = []
    front = _FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    fence = ""  # The fence of an open code block.
    after = begin  # The end of the last line that is a heading, an underline or a fence.
    for marked in _MARKED.finditer("\n" + text[begin:]):
        start, end = begin + marked.start(), begin + marked.end() - 1
        line = text[start:end]
        opened = _FENCE.match(line)
        if fence:
            closes = opened and line.strip().startswith(fence) and not line.strip().strip(fence[0])
            fence, after = "" if closes else fence, end + 1
            continue
        if opened:
            fence, after = opened[1], end + 1
            continue
        atx, under = _ATX.fullmatch(line), _UNDERLINE.fullmatch(line)
        if atx:
            found += _heading(start, end, len(atx[1]), _unclosed(atx[2] or ""))
        elif under and start > after:
            before = max(text.rfind("\n", 0, start - 1) + 1, begin)
            above = text[before : start - 1]
            if above.strip() and not _NO_PARAGRAPH.match(above):
                found += _heading(before, end, 1 if under[1][0] == "=" else 2, above)
        if atx or under:
            after = end + 1
    return found


def _heading(start: int, end: int, level: int, marked: str) -> list[Heading]:
    text = plain(marked)
    return [Heading(start, end, level, text)] if text else []


def _unclosed(marked: str) -> str:
    """Return the text of an ATX heading without the closing number signs."""
    text = marked.rstrip(" \t")
    unclosed = text.rstrip("#")
    return unclosed if unclosed.endswith((" ", "\t")) else text


def plain(marked: str) -> str:
    """Return a line without Markdown markup and link targets, shortened."""
    text = _MARK.sub("", _TAG.sub("", _LINK.sub(r"\1", marked)))
    return " ".join(text.split())[:MAX_HEADING_LENGTH]
