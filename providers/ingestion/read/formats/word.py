"""Convert Word files (ECMA-376, part 1, section 17) to Markdown, with all tracked changes accepted.

The XML is read as a stream, and only the text is kept in memory. All elements with text are read:
content controls, hyperlinks, insertions, results of fields, text boxes, tables in cells. Deletions
and the code of fields are skipped. Elements that are not text, such as pictures, are counted.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read.detecting import COMPOUND_FILE
from corral.providers.ingestion.read.formats.archive import (
    main_part,
    opened,
    parse_xml,
    pictures_of,
    relations,
)
from corral.providers.ingestion.read.formats.common import (
    Readable,
    escaped,
    joined,
    locked,
    reading,
    table,
)
from corral.providers.ingestion.read.formats.pdf.pictures import PictureText, office_pictures

_LEFT_OUT = {"del", "moveFrom", "instrText", "delText", "delInstrText", "Fallback"}
_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_NO_TEXT = {
    "blip": "pictures",
    "imagedata": "pictures",
    "chart": "charts",
    "relIds": "diagrams",
    "OLEObject": "embedded objects",
    "altChunk": "embedded documents",
    "subDoc": "embedded documents",
    "sym": "symbols of a font",
}
_NOTES = ("footnotes.xml", "endnotes.xml")
_PARTS = {"headers": r"header\d*\.xml", "footers": r"footer\d*\.xml", "comments": r"comments\.xml"}


@dataclass(frozen=True, slots=True)
class _Style:
    """A paragraph style. It inherits what it does not define from another style.

    Attributes:
        level: Level of a heading, from 1; 0 for the document's title, None for other paragraphs.
        is_item: True if the paragraphs are list items.
        based_on: Id of the style that it inherits from; "" for none.
    """

    level: int | None = None
    is_item: bool = False
    based_on: str = ""


@dataclass(slots=True)
class _Open:
    """An open element that contains text, with its content so far."""

    kind: str
    parts: list[str] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)  # The cells of a table, by row.
    style: _Style = _Style()
    deleted: bool = False  # The row or the paragraph mark is deleted; the paragraph's text stays.
    carried: str = ""  # Text of the previous paragraph, if its mark is deleted.


def read(data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    """Return the text of a Word file, and a list of its unread parts.

    Paragraphs and tables are in order; footnotes and endnotes are at the end.

    Raises:
        MissingDependency: Text recognition in pictures is on, and no engine is installed.
        InvalidRequest: The file is broken, needs a password, is larger than 256 MiB once unpacked,
            or has too many paragraphs or characters.
    """
    if data.startswith(COMPOUND_FILE):
        raise locked("Word", "Or it comes from Word 2003 or earlier: save it as .docx.")
    return reading("Word", lambda: _read(data, limits, office_pictures(limits, ocr)))


def _read(data: bytes, limits: DocumentLimits, picture_text: PictureText | None) -> Readable:
    with opened(data, "Word") as archive:
        main = main_part(archive)
        folder = posixpath.dirname(main)
        inside = [name for name in archive.namelist() if posixpath.dirname(name) == folder]
        parts = {posixpath.basename(name): name for name in inside}
        styles = next((n for kind, n in relations(archive, main).values() if kind == "styles"), "")
        text = _Text(limits, _styles(archive, styles) if styles in archive.namelist() else {})
        text.picture_text = picture_text
        for part in [main, *(parts[name] for name in _NOTES if name in parts)]:
            text.read(archive, part)
        unread = [f"{count} {what}" for what, count in sorted(text.unread.items())]
        for what, pattern in _PARTS.items():
            named = [part for name, part in parts.items() if re.fullmatch(pattern, name)]
            if any(_Text(limits).read(archive, part).blocks for part in named):
                unread.append(what)
    return Readable([joined(text.blocks)], title=text.title or None, unread=tuple(unread))


def _styles(archive: zipfile.ZipFile, part: str) -> dict[str, _Style]:
    """Return the paragraph styles by id."""
    styles: dict[str, _Style] = {}
    names: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "style":
            names.append(attributes.get("styleId", ""))
            styles[names[-1]] = _Style()
            return
        style = styles[names[-1]] if names else _Style()
        heading = re.fullmatch(r"heading ([1-9])", value, re.IGNORECASE)
        if name == "name" and (heading or value.lower() == "title"):
            style = replace(style, level=int(heading[1]) if heading else 0)
        elif name == "outlineLvl" and style.level is None:
            style = replace(style, level=_outline_level(value))
        elif name == "numPr":
            style = replace(style, is_item=True)
        elif name == "basedOn":
            style = replace(style, based_on=value)
        if names:
            styles[names[-1]] = style

    parse_xml(archive, part, start)
    return {name: _inherited(styles, name) for name in styles}


def _inherited(styles: dict[str, _Style], name: str) -> _Style:
    """Return a style with the values that it inherits."""
    found, seen = styles[name], {name}
    while found.based_on in styles and found.based_on not in seen:
        seen.add(found.based_on)
        base = styles[found.based_on]
        level = base.level if found.level is None else found.level
        found = _Style(level, found.is_item or base.is_item, base.based_on)
    return found


def _outline_level(value: str) -> int | None:
    """Return the level of a heading, from 1; None for ordinary text, which has 9 in the file."""
    return int(value) + 1 if value.isdigit() and int(value) < 9 else None


class _Text:
    """Builds blocks of text from the elements of parts as they are parsed."""

    def __init__(self, limits: DocumentLimits, styles: dict[str, _Style] | None = None) -> None:
        self.blocks: list[str] = []
        self.title = ""
        self.picture_text: PictureText | None = None
        self._styles = styles or {}
        self._pictures: dict[str, bytes] = {}
        self.unread: Counter[str] = Counter()
        self._limits = limits
        self._paragraphs = self._characters = 0
        self._path: list[str] = []
        self._skipped = 0  # Depth within a skipped element.
        self._stack: list[_Open] = []
        self._codes: list[bool] = []  # For each open field: True in its code, False in its result.

    def read(self, archive: zipfile.ZipFile, part: str) -> _Text:
        """Add the blocks of one part and return self."""
        self._stack, self._codes = [_Open("part")], []
        self._pictures = pictures_of(archive, part) if self.picture_text else {}
        parse_xml(archive, part, self._start, self._end, self._data)
        self.blocks += [block for block in _closed(self._stack[0]) if block.strip()]
        self.unread.update(["fields without an end"] * len(self._codes))
        return self

    def _start(self, local: str, attributes: dict[str, str]) -> None:
        parent = self._path[-1] if self._path else ""
        self._path.append(local)
        if self._skipped or local in _LEFT_OUT:
            self._skipped += 1
            self._mark_deleted(local)
        elif local in _NO_TEXT:
            self._no_text(local, attributes.get("embed") or attributes.get("id", ""))
        elif local in _HOLDERS:
            self._count(local)
            self._stack.append(_Open(local))
        elif local == "fldChar":
            self._field(attributes.get("fldCharType", ""))
        elif local in _CHARACTERS and parent == "r":
            self._add(_CHARACTERS[local])
        elif parent == "pPr" and self._stack[-1].kind == "p":
            self._set_style(self._stack[-1], local, attributes.get("val", ""))

    def _no_text(self, local: str, relation: str) -> None:
        """Count an element that is not text; if it is a picture with recognized text, add that."""
        text = ""
        if self.picture_text and relation in self._pictures:
            text = self.picture_text(self._pictures[relation])
        if text:
            self._add(f"\n{text}\n")
        else:
            self.unread[_NO_TEXT[local]] += 1

    def _end(self, local: str) -> None:
        self._path.pop()
        if self._skipped:
            self._skipped -= 1
        elif local in _HOLDERS:
            closed, outer = self._stack.pop(), self._stack[-1]
            if local == "p":
                self._end_paragraph(closed, outer)
            elif local == "tr":
                if not closed.deleted:
                    outer.cells.append(closed.parts)
            else:
                nested = any(each.kind == "tc" for each in self._stack)
                outer.parts.append(_FOLDS[local](closed, nested))

    def _end_paragraph(self, closed: _Open, outer: _Open) -> None:
        text, outer.carried = outer.carried + "".join(_closed(closed)), ""
        if closed.deleted:
            outer.carried = text
        else:
            inside = any(each.kind in {"tc", "txbxContent"} for each in self._stack)
            outer.parts.append(text if inside else self._marked(text, closed.style))

    def _marked(self, text: str, style: _Style) -> str:
        """Return a paragraph as Markdown; below a title, headings are one level deeper."""
        if style.level is not None and text.strip():
            line = " ".join(text.split())
            level = min(style.level + bool(self.title), 6) or 1
            self.title = self.title or (line if style.level == 0 else "")
            return f"{'#' * level} {line}"
        return f"- {text.strip()}" if style.is_item and text.strip() else escaped(text)

    def _set_style(self, paragraph: _Open, local: str, value: str) -> None:
        if local == "pStyle":
            paragraph.style = self._styles.get(value, paragraph.style)
        elif local == "outlineLvl":
            paragraph.style = replace(paragraph.style, level=_outline_level(value))
        elif local == "numPr" and paragraph.style.level is None:
            paragraph.style = replace(paragraph.style, is_item=True)

    def _data(self, text: str) -> None:
        if self._path[-1] == "t" and not self._skipped:
            self._characters += len(text)
            if self._characters > self._limits.max_characters:
                raise self._limits.exceeded("characters", "max_characters")
            self._add(text)

    def _add(self, text: str) -> None:
        if self._stack[-1].kind == "p" and not any(self._codes):
            self._stack[-1].parts.append(text)

    def _count(self, local: str) -> None:
        """Count paragraphs, rows and cells, including empty ones, which cost as much memory."""
        self._paragraphs += local in {"p", "tc", "tr", "tbl"}
        if self._paragraphs > self._limits.max_paragraphs:
            raise self._limits.exceeded("paragraphs and cells", "max_paragraphs")

    def _mark_deleted(self, local: str) -> None:
        """Record a tracked deletion of a row or of a paragraph mark."""
        kind = {"trPr": "tr", "rPr": "p"}.get(self._path[-2] if len(self._path) > 1 else "")
        mark = kind == "tr" or self._path[-3:-1] == ["pPr", "rPr"]
        if mark and local in {"del", "moveFrom"} and self._stack[-1].kind == kind:
            self._stack[-1].deleted = True

    def _field(self, kind: str) -> None:
        if kind == "begin":
            self._codes.append(True)
        elif kind == "separate" and self._codes:
            self._codes[-1] = False
        elif kind == "end" and self._codes:
            self._codes.pop()


def _closed(element: _Open) -> list[str]:
    return [*element.parts, element.carried] if element.carried else element.parts


def _table(closed: _Open, nested: bool) -> str:
    if nested:
        return "; ".join(", ".join(row) for row in closed.cells)
    return table(closed.cells)


_FOLDS: dict[str, Callable[[_Open, bool], str]] = {
    "txbxContent": lambda box, nested: "\n" + "\n".join(_closed(box)) + "\n",
    "tc": lambda cell, nested: " ".join(" ".join(_closed(cell)).split()),
    "tbl": _table,
}
"""Functions that convert the content of an element to one text, by element."""

_HOLDERS = {"p", "tr", *_FOLDS}
