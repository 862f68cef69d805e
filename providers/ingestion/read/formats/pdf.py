"""The pages of a PDF, with the headings that its bookmarks name or its large lines are.

A PDF says how large a letter is and not what a line is for. Its bookmarks do, where it has any;
else a line is a heading that is clearly larger than the lines most of the text is in.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.common import (
    Readable,
    escaped,
    locked,
    package,
    reading,
)

LARGER = 1.15
"""A heading is so much larger than the body."""

MAX_HEADING_LENGTH = 120
MAX_HEADING_SHARE = 0.25
"""If more of the text than this is large, the sizes say nothing."""

MAX_BOOKMARKS = 10_000
_NUMBER = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})+)\.?\s+(?=\S)")
_LEADER = re.compile(r"(?:\.\s?){4}")
_LEVELS = 6
_WANTS_A_PASSWORD = 4


@dataclass(slots=True)
class _Line:
    """A line of a page.

    Attributes:
        text: Text of the line.
        size: Size of its letters in points, rounded to halves; 0 if unknown.
        level: Level of a heading, from 1; 0: not a heading.
        goes_on: True if it continues the heading on the line above.
    """

    text: str
    size: float = 0
    level: int = 0
    goes_on: bool = False


def read(data: bytes, limits: DocumentLimits) -> Readable:
    """Return the text of each page of a PDF; "" for scanned pages.

    One thread at a time: PDFium is not safe for several.

    Raises:
        MissingDependency: pypdfium2 is not installed.
        InvalidRequest: The file is broken or asks for a password, or has too many pages or
            characters.
    """
    pdfium = package("pypdfium2", "pypdfium2", "PDF")
    raw = package("pypdfium2.raw", "pypdfium2", "PDF")
    return reading("PDF", lambda: _read(pdfium, raw, data, limits))


def _read(pdfium: Any, raw: Any, data: bytes, limits: DocumentLimits) -> Readable:
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == _WANTS_A_PASSWORD:
            raise locked("PDF") from None
        raise
    try:
        if len(document) > limits.max_pages:
            raise limits.exceeded("pages", "max_pages")
        pages = list(_pages(raw, document, limits))
        if not _mark_bookmarks(document, pages):
            _mark_large_lines(pages)
    finally:
        document.close()
    has_headings = any(line.level for page in pages for line in page)
    return Readable(
        [
            _markdown(page) if has_headings else "\n".join(line.text for line in page)
            for page in pages
        ],
        paged=True,
        markdown=has_headings,
    )


def _pages(raw: Any, document: Any, limits: DocumentLimits) -> Iterator[list[_Line]]:
    characters = 0
    for page in document:
        text = page.get_textpage()
        characters += text.count_chars()
        if characters > limits.max_characters:
            raise limits.exceeded("characters", "max_characters")
        yield list(_lines(raw, text))
        text.close()
        page.close()


def _lines(raw: Any, page: Any) -> Iterator[_Line]:
    """Yield the lines of a page with their sizes.

    PDFium has two texts of a page: one in which lines are joined as a reader sees them, and one
    whose places are those of letters. A line has the size that the same letters have there.
    """
    sizes: defaultdict[str, list[float]] = defaultdict(list)
    position = 0
    for line in page.get_text_range().split("\n"):
        sizes[_letters(line)].append(_size(raw, page, position, line.rstrip("\r")))
        position += len(line) + 1
    for line in page.get_text_bounded().split("\n"):
        known = sizes[_letters(line)]
        yield _Line(line.rstrip("\r"), known.pop(0) if known else 0.0)


def _letters(line: str) -> str:
    return "".join(filter(str.isalnum, line))


def _size(raw: Any, page: Any, position: int, text: str) -> float:
    """Return the size of a line's first and middle letter, the smaller; 0 where not known."""
    matrix = raw.FS_MATRIX()
    letters = [number for number, letter in enumerate(text) if not letter.isspace()]
    sizes = []
    for number in letters[:: max(len(letters) // 2, 1)][:2]:
        with suppress(Exception):  # an index that PDFium does not know
            index = raw.FPDFText_GetCharIndexFromTextIndex(page.raw, position + number)
            if raw.FPDFText_GetUnicode(page.raw, index) == ord(text[number]):
                raw.FPDFText_GetMatrix(page.raw, index, matrix)
                font_size = raw.FPDFText_GetFontSize(page.raw, index)
                sizes.append(font_size * math.hypot(matrix.c, matrix.d))
    return round(2 * min(sizes, default=0)) / 2


def _mark_bookmarks(document: Any, pages: Sequence[list[_Line]]) -> bool:
    """Mark the lines that bookmarks name; return True if at least half of these were found."""
    named: list[tuple[_Line, int]] = []
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


def _mark_large_lines(pages: Sequence[list[_Line]]) -> None:
    weights: Counter[float] = Counter()
    for page in pages:
        for line in page:
            weights[line.size] += len(line.text)
    del weights[0.0]
    if not weights:
        return
    body = weights.most_common(1)[0][0]
    running = _running(pages)
    found = [
        line
        for page in pages
        for line in page
        if line.size >= body * LARGER and _is_short(line.text) and _folded(line.text) not in running
    ]
    if sum(len(line.text) for line in found) > MAX_HEADING_SHARE * weights.total():
        return
    levels = _levels(line.size for line in found)
    for line in found:
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


def _running(pages: Sequence[list[_Line]]) -> set[str]:
    """Return the lines that stand on every third page or more: running titles."""
    seen = Counter(text for page in pages for text in {_folded(line.text) for line in page})
    return {text for text, count in seen.items() if count >= max(3, len(pages) / 3)}


def _levels(sizes: Iterator[float]) -> dict[float, int]:
    """Return the level of each size, the largest first; sizes within a point are one."""
    levels: dict[float, int] = {}
    last, level = 0.0, 0
    for size in sorted(set(sizes), reverse=True):
        if not level or last - size > 1:
            last, level = size, min(level + 1, _LEVELS)
        levels[size] = level
    return levels


def _markdown(page: Sequence[_Line]) -> str:
    parts: list[str] = []
    for line in page:
        if line.goes_on and parts:
            parts[-1] = f"{parts[-1].rstrip()} {line.text.strip()}\n"
        elif line.level:
            parts.append(f"\n{'#' * line.level} {line.text.strip()}\n")
        else:
            parts.append(escaped(line.text))
    return "\n".join(parts)
