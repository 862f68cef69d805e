"""Convert LibreOffice texts and presentations (ODT, ODP; OASIS OpenDocument 1.3) to Markdown.

The XML is read as a stream. Deleted text and comments are dropped; footnotes come at the end.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from dataclasses import dataclass, field

from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.archive import opened, parse_xml
from corral.providers.ingestion.read.formats.common import (
    Readable,
    escaped,
    joined,
    locked,
    reading,
    table,
)

_CONTENT, _MANIFEST = "content.xml", "META-INF/manifest.xml"
_LEFT_OUT = {
    "tracked-changes", "annotation", "note-citation", "table-of-content", "alphabetical-index",
    "desc", "binary-data", "forms", "ruby-text",
}  # fmt: skip
_FURNITURE = {"header", "footer", "date-time", "page-number"}
"""Classes of frames that repeat on every slide."""
_COUNTED = {"annotation": "comments", "image": "pictures", "object": "embedded objects"}
_CHARACTERS = {"s": " ", "tab": "\t", "line-break": "\n"}
_CELLS = {"table-cell", "covered-table-cell"}
_MAX_REPEATED = 64
"""Maximum number of copies of a repeated cell; sheets declare thousands of empty ones."""


def read(data: bytes, limits: DocumentLimits) -> Readable:
    """Return the text of a document, or of each slide of a presentation.

    Raises:
        InvalidRequest: The file is broken, needs a password, is larger than 256 MiB once unpacked,
            or has too many slides, paragraphs or characters.
    """
    return reading("OpenDocument", lambda: _read(data, limits))


def _read(data: bytes, limits: DocumentLimits) -> Readable:
    with opened(data, "OpenDocument") as archive:
        if _is_encrypted(archive):
            raise locked("OpenDocument")
        text = _Text(limits)
        parse_xml(archive, _CONTENT, text.start, text.end, text.data)
    unread = tuple(f"{count} {what}" for what, count in sorted(text.unread.items()))
    pages = [joined(blocks) for blocks in text.pages]
    if text.slides:
        return Readable(pages[1:], paged=True, unread=unread)
    return Readable([joined([*pages, *text.notes])], title=text.title or None, unread=unread)


def _is_encrypted(archive: zipfile.ZipFile) -> bool:
    names: set[str] = set()
    if _MANIFEST in archive.namelist():
        parse_xml(archive, _MANIFEST, lambda name, attributes: names.add(name))
    return "encryption-data" in names


@dataclass(slots=True)
class _Table:
    rows: list[list[str]] = field(default_factory=list)
    cell: list[str] = field(default_factory=list)
    columns: int = 1


class _Text:
    """Builds blocks of text from the elements of a document as they are parsed."""

    def __init__(self, limits: DocumentLimits) -> None:
        self.pages: list[list[str]] = [[]]
        self.notes: list[str] = []
        self.unread: Counter[str] = Counter()
        self.title = ""
        self.slides = 0
        self._limits = limits
        self._paragraphs = self._characters = 0
        self._path: list[str] = []
        self._skipped = 0  # Depth within a skipped element.
        self._open: list[list[str]] = []  # Texts of open paragraphs.
        self._levels: list[int | None] = []  # Levels of open paragraphs; None for ordinary text.
        self._tables: list[_Table] = []
        self._frames: list[str] = []  # Classes of open frames.
        self._is_item = False  # The next paragraph begins a list item.
        self._titles = {"Title"}  # Styles of titles.

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""
        parent = self._path[-1] if self._path else ""
        self._path.append(name)
        if not self._skipped and name in _COUNTED:
            self.unread[_COUNTED[name]] += 1
        frame = attributes.get("class", "") if name == "frame" else ""
        if self._skipped or name in _LEFT_OUT or frame in _FURNITURE or (
            name == "title" and parent in {"frame", "g", "image"}
        ):  # fmt: skip
            self._skipped += 1
        elif name in {"p", "h"}:
            self._count()
            self._open.append([])
            self._levels.append(self._level(name, attributes))
        elif name in _CHARACTERS:
            self.data(_CHARACTERS[name], as_it_is=True)
        elif name == "frame":
            self._frames.append(frame)
        elif name == "style" and attributes.get("parent-style-name") == "Title":
            self._titles.add(attributes.get("name", ""))
        elif name == "list-item":
            self._is_item = True
        elif name == "page" and parent == "presentation":
            self._page()
        else:
            self._in_table(name, attributes)

    def _in_table(self, name: str, attributes: dict[str, str]) -> None:
        if name == "table":
            self._tables.append(_Table())
        elif name == "table-row" and self._tables:
            self._tables[-1].rows.append([])
        elif name in _CELLS and self._tables:
            self._count()
            repeated = attributes.get("number-columns-repeated", "1")
            self._tables[-1].cell = []
            self._tables[-1].columns = int(repeated) if repeated.isdigit() else 1

    def end(self, name: str) -> None:
        """Handle the end of an element."""
        self._path.pop()
        if self._skipped:
            self._skipped -= 1
        elif name in {"p", "h"}:
            self._add("".join(self._open.pop()).strip(" "), self._levels.pop())
        elif name == "frame":
            self._frames.pop()
        elif name in _CELLS and self._tables and self._tables[-1].rows:
            closed = self._tables[-1]
            copies = closed.columns if closed.columns <= _MAX_REPEATED else 1
            closed.rows[-1] += [" ".join(closed.cell)] * copies
            closed.cell = []
        elif name == "table" and self._tables:
            rows = self._tables.pop().rows
            if self._tables:
                self._tables[-1].cell += [cell for row in rows for cell in row if cell]
            else:
                self.pages[-1].append(table(rows))

    def data(self, text: str, *, as_it_is: bool = False) -> None:
        """Handle text. White space in the XML is collapsed unless `as_it_is`."""
        if self._open and not self._skipped:
            self._characters += len(text)
            if self._characters > self._limits.max_characters:
                raise self._limits.exceeded("characters", "max_characters")
            self._open[-1].append(text if as_it_is else re.sub(r"\s+", " ", text))

    def _count(self) -> None:
        self._paragraphs += 1
        if self._paragraphs > self._limits.max_paragraphs:
            raise self._limits.exceeded("paragraphs and cells", "max_paragraphs")

    def _page(self) -> None:
        self.slides += 1
        if self.slides > self._limits.max_pages:
            raise self._limits.exceeded("slides", "max_pages")
        self.pages.append([])

    def _level(self, name: str, attributes: dict[str, str]) -> int | None:
        """Return the level of a heading; 0 for the document's title, None for ordinary text."""
        if "title" in self._frames:
            return 1 if self.slides == 1 else 2
        if attributes.get("style-name") in self._titles:
            return 0
        number = attributes.get("outline-level", "1")
        return (int(number) if number.isdigit() else 1) if name == "h" else None

    def _add(self, text: str, level: int | None) -> None:
        """Add a paragraph to the current cell, the notes, or the page."""
        if not text.strip():
            return
        if self._tables:
            self._tables[-1].cell.append(text)
        elif "note-body" in self._path:
            self.notes.append(escaped(text))
        elif "notes" in self._path:
            self.pages[-1].append(f"Notes: {text}")
        elif level is not None:
            self._add_heading(" ".join(text.split()), level)
        else:
            self.pages[-1].append(f"- {text}" if self._is_item else escaped(text))
            self._is_item = False

    def _add_heading(self, line: str, level: int) -> None:
        if self.slides:  # The title comes first, wherever it is in the file.
            self.pages[-1].insert(0, f"{'#' * level} {line}")
            return
        self.pages[-1].append(f"{'#' * (min(level + bool(self.title), 6) or 1)} {line}")
        self.title = self.title or (line if level == 0 else "")
