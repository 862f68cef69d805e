"""The text of a Word file, as it reads when every tracked change is accepted.

Its XML is read as a stream and nothing is kept but the text, so that a file of a million empty
elements takes no memory. Whatever holds text is read (content controls, hyperlinks, insertions,
results of fields, text boxes, tables in cells); deletions and the code of fields are not. What it
holds that is no text is counted. ECMA-376, part 1, section 17.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.parsers import expat

from corral.providers.config import DocumentLimits

_PIECE = 1 << 16
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


@dataclass(slots=True)
class _Open:
    """An open element that holds text: what is in it so far."""

    kind: str
    parts: list[str] = field(default_factory=list)
    deleted: bool = False  # a row; of a paragraph only its mark, so that the next one goes on
    carried: str = ""  # the paragraph before, whose mark is deleted


def read(archive: zipfile.ZipFile, limits: DocumentLimits) -> tuple[str, tuple[str, ...]]:
    """Return the text of a Word file, and what it holds that was not read.

    Paragraphs and tables are in their order, footnotes and endnotes at the end. A row of a table is
    a line.

    Args:
        archive: The file, opened.
        limits: How many paragraphs and characters it may have.

    Raises:
        InvalidRequest: It has more of them.
        Exception: Whatever a broken file causes.
    """
    main = _main_part(archive)
    folder = posixpath.dirname(main)
    parts = {posixpath.basename(n): n for n in archive.namelist() if posixpath.dirname(n) == folder}
    text = _Text(limits)
    for part in [main, *(parts[name] for name in _NOTES if name in parts)]:
        text.read(archive, part)
    unread = [f"{count} {what}" for what, count in sorted(text.unread.items())]
    for what, pattern in _PARTS.items():
        named = [part for name, part in parts.items() if re.fullmatch(pattern, name)]
        if any(_Text(limits).read(archive, part).blocks for part in named):
            unread.append(what)
    return "\n\n".join(text.blocks), tuple(unread)


class _Text:
    """Takes the elements of parts as they come and makes blocks of text of them."""

    def __init__(self, limits: DocumentLimits) -> None:
        self.blocks: list[str] = []
        self.unread: Counter[str] = Counter()
        self._limits = limits
        self._paragraphs = self._characters = 0
        self._path: list[str] = []
        self._skipped = 0  # how deep in an element that is left out
        self._stack: list[_Open] = []
        self._codes: list[bool] = []  # of open fields: whether this is their code, not their result

    def read(self, archive: zipfile.ZipFile, part: str) -> _Text:
        """Add the blocks of one part and return self."""
        self._stack, self._codes = [_Open("part")], []
        _parse(archive, part, self._start, self._end, self._data)
        self.blocks += [block for block in _closed(self._stack[0]) if block.strip()]
        self.unread.update(["fields without an end"] * len(self._codes))
        return self

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local, parent = _local(name), self._path[-1] if self._path else ""
        self._path.append(local)
        if self._skipped or local in _LEFT_OUT:
            self._skipped += 1
            self._mark_deleted(local)
        elif local in _NO_TEXT:
            self.unread[_NO_TEXT[local]] += 1
        elif local in _FOLDS:
            self._count(local)
            self._stack.append(_Open(local))
        elif local == "fldChar":
            self._field(next((v for k, v in attributes.items() if _local(k) == "fldCharType"), ""))
        elif local in _CHARACTERS and parent == "r":
            self._add(_CHARACTERS[local])

    def _end(self, name: str) -> None:
        local = self._path.pop()
        if self._skipped:
            self._skipped -= 1
        elif local in _FOLDS:
            closed, outer = self._stack.pop(), self._stack[-1]
            nested = any(each.kind == "tc" for each in self._stack)
            text = _FOLDS[local](_closed(closed), nested)
            if local == "p":
                text, outer.carried = outer.carried + text, ""
            if local == "p" and closed.deleted:
                outer.carried = text
            elif not closed.deleted:
                outer.parts.append(text)

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
        """Count paragraphs, and cells and rows with them: an empty one costs as much."""
        self._paragraphs += local in {"p", "tc", "tr", "tbl"}
        if self._paragraphs > self._limits.max_paragraphs:
            raise self._limits.exceeded("paragraphs and cells", "max_paragraphs")

    def _mark_deleted(self, local: str) -> None:
        """Note a tracked deletion of a row, or of a paragraph's mark."""
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


def _line(parts: list[str], nested: bool) -> str:
    return " ".join(" ".join(parts).split())


_FOLDS: dict[str, Callable[[list[str], bool], str]] = {
    "p": lambda parts, nested: "".join(parts),
    "txbxContent": lambda parts, nested: "\n" + "\n".join(parts) + "\n",
    "tc": _line,
    "tr": lambda cells, nested: (", " if nested else " | ").join(cells),
    "tbl": lambda rows, nested: ("; " if nested else "\n").join(rows),
}
"""Elements that hold text, and how what is in them becomes one."""


def _parse(
    archive: zipfile.ZipFile,
    part: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] | None = None,
    data: Callable[[str], None] | None = None,
) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = _no_doctype
    with archive.open(part) as file:
        for piece in iter(lambda: file.read(_PIECE), b""):
            parser.Parse(piece)
    parser.Parse(b"", True)


def _no_doctype(*declared: object) -> None:
    raise ValueError("a Word file declares no document type")


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _main_part(archive: zipfile.ZipFile) -> str:
    """Return the name of the part that holds the text."""
    found: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if attributes.get("Type", "").endswith("/officeDocument"):
            found.append(attributes["Target"].lstrip("/"))

    _parse(archive, "_rels/.rels", start)
    return found[0]
