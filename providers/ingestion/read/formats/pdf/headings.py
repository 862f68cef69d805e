"""Headings of a PDF: the lines that its bookmarks name, else those in larger type.

A PDF says how large a letter is and not what a line is for. Its bookmarks do, where it has any;
else a line is a heading that is clearly larger than the lines most of the text is in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from corral.providers.ingestion.read.formats.pdf.elements import Line

LARGER = 1.15
"""A heading is so much larger than the body."""

MAX_HEADING_LENGTH = 120
MAX_HEADING_SHARE = 0.25
"""If more of the text than this is large, the sizes say nothing."""

MAX_BOOKMARKS = 10_000
_NUMBER = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})+)\.?\s+(?=\S)")
_LEADER = re.compile(r"(?:\.\s?){4}")
_LEVELS = 6


def body_size(pages: Sequence[list[Line]]) -> float:
    """Return the size in which most of the text is; 0 if unknown."""
    weights = _weights(pages)
    return weights.most_common(1)[0][0] if weights else 0.0


def mark_bookmarks(document: Any, pages: Sequence[list[Line]]) -> bool:
    """Mark the lines that bookmarks name; return True if at least half of these have one."""
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
    """Return a line in the form in which lines and bookmarks compare: without its number."""
    return _NUMBER.sub("", " ".join(text.split()), count=1).casefold()


def mark_large_lines(pages: Sequence[list[Line]]) -> None:
    """Mark the lines in larger type than most of the text, but none that stands on many pages."""
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
    is_entry = _LEADER.search(line)  # of a table of contents
    is_short = len(line) <= MAX_HEADING_LENGTH and any(map(str.isalpha, line))
    return is_short and not is_sentence and not is_entry


def _running(pages: Sequence[list[Line]]) -> set[str]:
    """Return the lines that stand on every third page or more: running titles."""
    counts = Counter(text for page in pages for text in {_folded(line.text) for line in page})
    return {text for text, count in counts.items() if count >= max(3, len(pages) / 3)}


def _levels(sizes: Iterator[float]) -> dict[float, int]:
    """Return the level of each size, the largest first; sizes within a point are one."""
    levels: dict[float, int] = {}
    last, level = 0.0, 0
    for size in sorted(set(sizes), reverse=True):
        if not level or last - size > 1:
            last, level = size, min(level + 1, _LEVELS)
        levels[size] = level
    return levels


def _weights(pages: Sequence[list[Line]]) -> Counter[float]:
    """Return the number of letters in each size."""
    weights: Counter[float] = Counter()
    for page in pages:
        for line in page:
            weights[line.size] += len(line.text)
    del weights[0.0]
    return weights
