"""Find the headings of a PDF: the lines that its bookmarks name, or else lines in larger type.

A PDF does not record the purpose of a line. Its bookmarks name headings, if it has any. Otherwise a
line is a heading if its font is clearly larger than the font of most of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from corral.providers.ingestion.read.formats.pdf.elements import Line

LARGER = 1.15
"""Minimum ratio between the font sizes of a heading and of the body."""

MAX_HEADING_LENGTH = 120
MAX_HEADING_SHARE = 0.25
"""Maximum share of large text; if there is more, sizes do not indicate headings."""

MAX_BOOKMARKS = 10_000
_NUMBER = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})+)\.?\s+(?=\S)")
_LEADER = re.compile(r"(?:\.\s?){4}")
_LEVELS = 6


def body_size(pages: Sequence[list[Line]]) -> float:
    """Return the font size of most of the text; 0 if unknown."""
    weights = _weights(pages)
    return weights.most_common(1)[0][0] if weights else 0.0


def mark_bookmarks(document: Any, pages: Sequence[list[Line]]) -> bool:
    """Mark the lines that bookmarks name; return False if under half of the bookmarks match.

    In that case no line is marked.
    """
    named: list[tuple[Line, int]] = []
    count = 0
    for bookmark in document.get_toc(max_depth=_LEVELS):
        count += 1
        if count > MAX_BOOKMARKS:
            break
        destination = bookmark.get_dest()
        page = destination.get_index() if destination else None
        title = _folded(bookmark.get_title())
        if page is not None and page < len(pages) and title:
            match = next((line for line in pages[page] if _folded(line.text) == title), None)
            named += [(match, bookmark.level + 1)] if match else []
    if not count or 2 * len(named) < count:
        return False
    for line, level in named:
        line.level = level
    return True


def _folded(text: str) -> str:
    """Return a line or bookmark in normalized form, without its number, for comparison."""
    return _NUMBER.sub("", " ".join(text.split()), count=1).casefold()


def mark_large_lines(pages: Sequence[list[Line]]) -> None:
    """Mark lines in larger type than most of the text, except lines that repeat on many pages."""
    weights = _weights(pages)
    if not weights:
        return
    body = weights.most_common(1)[0][0]
    running = _running(pages)
    large = [
        line
        for page in pages
        for line in page
        if line.size >= body * LARGER and _is_short(line.text) and _folded(line.text) not in running
    ]
    if sum(len(line.text) for line in large) > MAX_HEADING_SHARE * weights.total():
        return
    levels = _levels(line.size for line in large)
    for line in large:
        line.level = levels[line.size]
    for page in pages:
        for above, line in pairwise(page):
            line.goes_on = bool(line.level) and line.size == above.size


def _is_short(text: str) -> bool:
    line = text.strip()
    is_sentence = line.endswith((".", ",", ";")) and len(line) > MAX_HEADING_LENGTH // 2
    is_entry = _LEADER.search(line)  # An entry in a table of contents.
    is_short = len(line) <= MAX_HEADING_LENGTH and any(map(str.isalpha, line))
    return is_short and not is_sentence and not is_entry


def _running(pages: Sequence[list[Line]]) -> set[str]:
    """Return the running titles: lines on at least every third page."""
    counts = Counter(text for page in pages for text in {_folded(line.text) for line in page})
    return {text for text, count in counts.items() if count >= max(3, len(pages) / 3)}


def _levels(sizes: Iterator[float]) -> dict[float, int]:
    """Return the level of each font size, from the largest; sizes within a point share a level."""
    levels: dict[float, int] = {}
    last, level = 0.0, 0
    for size in sorted(set(sizes), reverse=True):
        if not level or last - size > 1:
            last, level = size, min(level + 1, _LEVELS)
        levels[size] = level
    return levels


def _weights(pages: Sequence[list[Line]]) -> Counter[float]:
    """Return the number of characters in each font size."""
    weights: Counter[float] = Counter()
    for page in pages:
        for line in page:
            weights[line.size] += len(line.text)
    del weights[0.0]
    return weights
