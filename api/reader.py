"""The answer of a reader, which turns a file into text, and the types that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Readable:
    """The content of a file.

    Attributes:
        pages: The text of each page, "" for an empty page; a single text if there are no pages.
        paged: True if the pages are the file's own.
        markdown: True if the texts are Markdown.
        title: The title that the file declares, or None.
        unread: Parts that were not read, such as "2 pictures".
        metadata: Facts about the document, such as the pages that were recognized.
        parts: Names of the documents in a container, for Corral's own readers; None for others.
        rows: For each line of a workbook's single text, the number of its row in its sheet, from 1;
            0 for other lines. Empty for other files.
        are_cells: True if the texts are the cells of a notebook.
    """

    pages: Sequence[str]
    paged: bool = False
    markdown: bool = True
    title: str | None = None
    unread: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] | None = None
    rows: Sequence[int] = ()
    are_cells: bool = False


def takes(patterns: Iterable[str], mime_type: str) -> bool:
    """Return True if a MIME type matches one of some patterns, such as `image/*`."""
    return any(fnmatchcase(mime_type, each) for each in patterns)
