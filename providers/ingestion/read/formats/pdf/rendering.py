"""Convert laid-out pages to text: whole words, headings and tables, without running lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corral.providers.ingestion.read.formats.common import Readable, escaped, table
from corral.providers.ingestion.read.formats.pdf.elements import Line, Page, Table
from corral.providers.ingestion.read.formats.pdf.headings import body_size
from corral.providers.ingestion.read.formats.pdf.joining import Vocabulary, join_lines
from corral.providers.ingestion.read.formats.pdf.running import drop_running

_SAME_EDGE = 6.0
"""Maximum distance, in points, of column edges if a table continues on the next page."""


def readable(
    pages: Sequence[Page], laid: list[list[Line | Table]], title: str | None = None
) -> Readable:
    """Return the text of laid-out pages."""
    lines = [[each for each in page if isinstance(each, Line)] for page in laid]
    drop_running(pages, laid, body_size(lines))
    left = [[each for each in page if isinstance(each, Line)] for page in laid]
    words = Vocabulary([line.text for page in left for line in page])
    join_lines([line for page in left for line in page], words)
    _repeat_headers(laid)
    is_markdown = any(line.level for page in left for line in page) or any(
        isinstance(each, Table) for page in laid for each in page
    )
    texts = ["\n".join(_blocks(page, is_markdown)) for page in laid]
    return Readable(texts, paged=True, markdown=is_markdown, title=title)


def _repeat_headers(laid: Sequence[Sequence[Line | Table]]) -> None:
    """Copy the header of a table to its continuation on the next page."""
    last: Table | None = None
    for page in laid:
        shown = [each for each in page if isinstance(each, Table) or each.text.strip()]
        first = shown[0] if shown else None
        if isinstance(first, Table) and last and _lacks_header(last, first):
            first.rows.insert(0, last.rows[0])
        last = shown[-1] if shown and isinstance(shown[-1], Table) else None


def _lacks_header(table: Table, following: Table) -> bool:
    """Return True if a table continues another table without repeating its header."""
    if table.rows[0] == following.rows[0]:
        return False
    return len(table.edges) == len(following.edges) and all(
        abs(a - b) <= _SAME_EDGE for a, b in zip(table.edges, following.edges, strict=True)
    )


def _blocks(page: Sequence[Line | Table], is_markdown: bool) -> Iterator[str]:
    heading = ""
    for each in page:
        is_more = isinstance(each, Line) and each.goes_on and heading
        if heading and not is_more:
            yield f"\n{heading}\n"
            heading = ""
        if isinstance(each, Table):
            yield f"\n{table(each.rows)}\n"
        elif is_more:
            heading = f"{heading} {each.text.strip()}"
        elif each.level and each.text.strip():
            heading = f"{'#' * each.level} {each.text.strip()}"
        elif each.text:
            text = escaped(each.text) if is_markdown else each.text
            yield f"{text}\n" if each.ends_block else text
    if heading:
        yield f"\n{heading}\n"
