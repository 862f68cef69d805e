"""Read PowerPoint files (ECMA-376, part 1, section 19): a page per slide, titles as headings."""

from __future__ import annotations

import zipfile
from collections import Counter
from dataclasses import dataclass, field

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
from corral.providers.ingestion.read.formats.common import Readable, escaped, locked, reading, table
from corral.providers.ingestion.read.formats.pdf.pictures import PictureText, office_pictures

_LEFT_OUT = {"Fallback", "extLst"}
_FURNITURE = {"sldNum", "dt", "ftr", "hdr", "sldImg"}
"""Placeholders that repeat on every slide."""

_TITLES = {"ctrTitle": 1, "title": 2}
"""Placeholders for titles, with their heading levels."""

_NO_TEXT = {
    "pic": "pictures",
    "chart": "charts",
    "relIds": "diagrams",
    "oleObj": "embedded objects",
}


def read(data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    """Return the text of each slide, with its tables and its speaker's notes.

    Raises:
        MissingDependency: Text recognition in pictures is on, and no engine is installed.
        InvalidRequest: The file is broken, needs a password, is larger than 256 MiB once unpacked,
            or has too many slides, paragraphs or characters.
    """
    if data.startswith(COMPOUND_FILE):
        raise locked("PowerPoint", "Or it comes from PowerPoint 2003 or earlier: save it as .pptx.")
    return reading("PowerPoint", lambda: _read(data, limits, office_pictures(limits, ocr)))


def _read(data: bytes, limits: DocumentLimits, picture_text: PictureText | None) -> Readable:
    with opened(data, "PowerPoint") as archive:
        main = main_part(archive)
        slides = _slides(archive, main)
        if len(slides) > limits.max_pages:
            raise limits.exceeded("slides", "max_pages")
        budget = _Budget(limits, picture_text)
        pages = [_page(archive, slide, budget) for slide in slides]
    unread = tuple(f"{count} {what}" for what, count in sorted(budget.unread.items()) if count > 0)
    return Readable(pages, paged=True, unread=unread)


def _slides(archive: zipfile.ZipFile, main: str) -> list[str]:
    """Return the names of the slides in the order of the presentation."""
    parts = relations(archive, main)
    found: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "sldId":  # Here `id` is the relationship's `r:id`, not the slide's own id.
            found.append(parts[attributes["id"]][1])

    parse_xml(archive, main, start)
    return found


def _page(archive: zipfile.ZipFile, slide: str, budget: _Budget) -> str:
    shapes = _Part(archive, slide, budget).shapes
    shapes.sort(key=lambda shape: shape.placeholder not in _TITLES)
    blocks = [shape.text() for shape in shapes if shape.placeholder not in _FURNITURE]
    for kind, name in relations(archive, slide).values():
        if kind == "notesSlide":
            notes = _Part(archive, name, budget).shapes
            said = [shape.text() for shape in notes if shape.placeholder == "body"]
            blocks += [f"Notes: {text}" for text in said if text.strip()]
    return "\n\n".join(block for block in blocks if block.strip())


class _Budget:
    """Counts paragraphs, characters and unread objects of a file, and enforces the limits."""

    def __init__(self, limits: DocumentLimits, picture_text: PictureText | None) -> None:
        self.picture_text = picture_text
        self.unread: Counter[str] = Counter()
        self._limits = limits
        self._paragraphs = self._characters = 0

    def paragraph(self) -> None:
        self._paragraphs += 1
        if self._paragraphs > self._limits.max_paragraphs:
            raise self._limits.exceeded("paragraphs and cells", "max_paragraphs")

    def text(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > self._limits.max_characters:
            raise self._limits.exceeded("characters", "max_characters")


@dataclass(slots=True)
class _Shape:
    placeholder: str = ""
    paragraphs: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def text(self) -> str:
        lines = [" ".join(each.split()) for each in self.paragraphs]
        if self.placeholder in _TITLES:
            title = " ".join(filter(None, lines))
            return f"{'#' * _TITLES[self.placeholder]} {title}" if title else ""
        return "\n\n".join(
            filter(None, [escaped("\n".join(filter(None, lines))), table(self.rows)])
        )


class _Part:
    """The shapes of a slide or of its notes, in order."""

    def __init__(self, archive: zipfile.ZipFile, part: str, budget: _Budget) -> None:
        self.shapes: list[_Shape] = []
        self._budget = budget
        self._pictures = pictures_of(archive, part) if budget.picture_text else {}
        self._path: list[str] = []
        self._skipped = 0
        parse_xml(archive, part, self._start, self._end, self._data)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if self._skipped or name in _LEFT_OUT:
            self._skipped += 1
        elif name in {"sp", "graphicFrame"}:
            self.shapes.append(_Shape())
        elif name == "blip" and attributes.get("embed", "") in self._pictures:
            self._picture(self._pictures[attributes["embed"]])
        elif name in _NO_TEXT:
            self._budget.unread[_NO_TEXT[name]] += 1
        elif self.shapes:
            self._inside(self.shapes[-1], name, attributes)

    def _picture(self, data: bytes) -> None:
        """Add the text in a picture, and no longer count the picture as unread."""
        text = self._budget.picture_text(data) if self._budget.picture_text else ""
        if text:
            self._budget.text(text)
            self._budget.unread["pictures"] -= "pic" in self._path
            self.shapes.append(_Shape(paragraphs=text.split("\n")))

    def _inside(self, shape: _Shape, name: str, attributes: dict[str, str]) -> None:
        if name == "ph":
            shape.placeholder = attributes.get("type", "obj")
        elif name in {"p", "tr", "tc"}:
            self._budget.paragraph()
        if name == "p" and "tc" not in self._path:
            shape.paragraphs.append("")
        elif name == "tr":
            shape.rows.append([])
        elif name == "tc" and shape.rows:
            shape.rows[-1].append("")
        elif name in {"br", "tab"} or (name == "p" and "tc" in self._path):
            self._add(shape, " ")

    def _end(self, name: str) -> None:
        self._path.pop()
        self._skipped -= bool(self._skipped)

    def _data(self, text: str) -> None:
        if self._path[-1] == "t" and not self._skipped and self.shapes:
            self._budget.text(text)
            self._add(self.shapes[-1], text)

    def _add(self, shape: _Shape, text: str) -> None:
        target = shape.rows[-1] if "tc" in self._path and shape.rows else shape.paragraphs
        if target:
            target[-1] += text
