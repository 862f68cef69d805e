"""Remove running headers, footers and page numbers, which repeat on the pages of a document."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from corral.providers.ingestion.read.formats.pdf.elements import Line, Page, Table

_ZONE = 0.12
"""Share of a page's height, at the top and at the bottom, that may contain running lines."""

_OUTERMOST = 3
"""Maximum number of running lines at the top, and at the bottom, of a page."""

_MIN_PAGES = 3
"""Minimum number of pages with a running line, unless the document has only two pages."""

_NEAR = 4.0
_APART = 0.6
"""Maximum space between lines of one paragraph, as a share of their height."""

_MAX_OFFSET = 50
"""Maximum difference between a page's number and its position in the document."""

_NUMBER = re.compile(r"\d+")
_PAGE_WORDS = re.compile(
    r"(?:pages?|p|pg|of|seite|von|s|página|pagina|pág|de|di|стр|из|sur|sida|av|第|页|頁|共|ページ|[\W\d_]"
    r"|[ivxlcdm]+(?=\W*$))*",
    re.IGNORECASE,
)

_Elements = list[Line | Table]


def drop_running(pages: Sequence[Page], laid: list[_Elements], body: float) -> None:
    """Remove headers, footers and page numbers; the first occurrence of a header stays.

    Args:
        pages: The pages, for their heights.
        laid: The lines and tables of each page; modified.
        body: Font size of most of the text.
    """
    if len(pages) < 2:
        return
    lines: defaultdict[str, list[tuple[int, Line]]] = defaultdict(list)
    for number, (page, elements) in enumerate(zip(pages, laid, strict=True)):
        for line in _outer(page, elements):
            lines[_NUMBER.sub("#", " ".join(line.text.split()))].append((number, line))
    dropped: set[int] = set()
    for group in lines.values():
        for alike in _at_one_height(group):
            dropped.update(_repeats(alike, laid, body))
    for number, elements in enumerate(laid):
        laid[number] = [each for each in elements if id(each) not in dropped]


def _outer(page: Page, elements: _Elements) -> list[Line]:
    """Return the lines at the top and at the bottom of a page."""
    lines = sorted(
        (
            each
            for each in elements
            if isinstance(each, Line) and each.column > 0 and not each.level and each.text
        ),
        key=lambda line: line.top,
    )
    zone = page.height * _ZONE
    outer = [line for line in lines[:_OUTERMOST] if line.bottom < zone]
    below = [line for line in lines[-_OUTERMOST:] if line.top > page.height - zone]
    return outer + [line for line in below if line not in outer]


def _stands_apart(line: Line, elements: _Elements) -> bool:
    """Return True if a line is further from other lines than the lines of a paragraph are."""
    space = _APART * (line.bottom - line.top)
    return not any(
        other.top < line.bottom + space
        and other.bottom > line.top - space
        and abs(other.top - line.top) > _NEAR
        for other in elements
    )


def _at_one_height(group: list[tuple[int, Line]]) -> list[list[tuple[int, Line]]]:
    groups: list[list[tuple[int, Line]]] = []
    for number, line in sorted(group, key=lambda each: each[1].top):
        if groups and line.top - groups[-1][-1][1].top <= _NEAR:
            groups[-1].append((number, line))
        else:
            groups.append([(number, line)])
    return groups


def _repeats(alike: list[tuple[int, Line]], laid: Sequence[_Elements], body: float) -> list[int]:
    """Return the ids of the lines to drop, among lines that differ only by numbers."""
    count = len(laid)
    numbers = sorted({number for number, _ in alike})
    is_large = bool(body) and alike[0][1].size >= 1.15 * body
    least = max(_MIN_PAGES, count / 2) if is_large else _MIN_PAGES
    if len(numbers) < least and not len(numbers) == count == 2:
        return []
    alike.sort(key=lambda each: each[0])
    texts = {line.text for _, line in alike}
    first = alike[0][1]
    is_number = _PAGE_WORDS.fullmatch(first.text) is not None
    if is_number and len(texts) > 1:
        return [id(line) for _, line in alike]
    if len(texts) > 1 and not all(_names_page(number, line.text) for number, line in alike):
        alike = [each for each in alike if each[1].text == first.text]
    elif len(texts) > 1 and not all(_stands_apart(line, laid[page]) for page, line in alike):
        return []
    return [id(line) for _, line in alike if line is not first]


def _names_page(number: int, text: str) -> bool:
    """Return True if a number in a text may be the number of its page."""
    return any(
        abs(int(digits) - number - 1) <= _MAX_OFFSET
        for digits in _NUMBER.findall(text)
        if len(digits) < 6
    )
