"""Pages of a PDF for people: as a picture, and the areas of a passage on it."""

from __future__ import annotations

import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int
from typing import Any, NamedTuple

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.common import locked, package, reading

MAX_PIXELS = 4_000_000
"""Maximum size of a picture: an A4 page at 200 dots per inch."""

MAX_AREAS = 400
"""Maximum areas of a passage on a page, about one a line."""

MAX_PAGE_CHARACTERS = 40_000
MAX_PASSAGE_CHARACTERS = 10_000
"""Longer texts are cut."""

_GRAM = 12
"""Letters and digits that follow one another on the page as in the passage are of the passage."""
_MIN_RUN = 16
"""Minimum length of a run of them."""
_MAX_GAP = 8
"""Letters and digits between two runs that belong to them, such as a footnote's number."""
_MIN_SHARE = 0.5
"""Share of a passage on one page that must be on it."""
_UNITS = 1_000_000
"""The size of a page for PDFium's integers."""
_WANTS_A_PASSWORD = 4


class Area(NamedTuple):
    """A rectangle on a page, in percent of its width and height, from the top left."""

    left: float
    top: float
    width: float
    height: float


class _Letter(NamedTuple):
    text: str
    box: tuple[float, float, float, float]


def picture(data: bytes, number: int, width: int) -> bytes:
    """Return a page as a PNG, at most `width` pixels wide and of at most `MAX_PIXELS`.

    Args:
        data: The PDF.
        number: Number of the page, from 1.
        width: In pixels, >= 1.

    Raises:
        MissingDependency: pypdfium2 is not installed.
        InvalidRequest: The file is broken or asks for a password, or has no such page.
    """
    return reading("PDF", lambda: _picture(data, number, width))


def areas(data: bytes, number: int, passage: str, *, is_whole: bool) -> tuple[list[Area], int]:
    """Return the areas of a passage on a page, empty if it is not there, and the number of pages.

    Args:
        data: The PDF.
        number: Number of the page, from 1.
        passage: Text as it was read from this page and perhaps its neighbors.
        is_whole: True if all of the passage should be on this page.

    Raises:
        MissingDependency, InvalidRequest: As for `picture`.
    """
    return reading("PDF", lambda: _areas(data, number, passage, is_whole=is_whole))


def _picture(data: bytes, number: int, width: int) -> bytes:
    with _page(data, number) as (page, _):
        wide, high = page.get_size()
        scale = min(width / max(wide, 1), (MAX_PIXELS / max(wide * high, 1)) ** 0.5)
        pixels = page.render(scale=scale, rev_byteorder=True).to_numpy()
        return _png(pixels[..., :3])


def _areas(data: bytes, number: int, passage: str, *, is_whole: bool) -> tuple[list[Area], int]:
    with _page(data, number) as (page, count):
        letters = list(_letters(page))
        runs = _runs("".join(one.text for one in letters), _plain(passage), is_whole=is_whole)
        lines = [line for start, end in runs for line in _lines(letters[start:end])]
        return [_area(page, line) for line in lines[:MAX_AREAS]], count


@contextmanager
def _page(data: bytes, number: int) -> Iterator[tuple[Any, int]]:
    pdfium = package("pypdfium2", "pypdfium2", "PDF")
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == _WANTS_A_PASSWORD:
            raise locked("PDF") from None
        raise
    try:
        if not 1 <= number <= len(document):
            raise InvalidRequest(
                f"page must be from 1 to {len(document)} (got {number}).", field="page"
            )
        if document.get_formtype():
            document.init_forms()
        page = document[number - 1]
        yield page, len(document)
    finally:
        document.close()


def _png(pixels: Any) -> bytes:
    """Return RGB pixels, uint8 of shape (height, width, 3), as a PNG."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 5)),
        (b"IEND", b""),
    )
    made = b"\x89PNG\r\n\x1a\n"
    for kind, body in parts:
        checksum = zlib.crc32(kind + body)
        made += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)
    return made


def _plain(text: str) -> str:
    """Return the letters and digits of a text, without differences of case or form."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, folded))


def _letters(page: Any) -> Iterator[_Letter]:
    """Yield the letters and digits of a page with their boxes, in the order of the file."""
    raw = package("pypdfium2.raw", "pypdfium2", "PDF")
    text = page.get_textpage()
    for place in range(min(text.count_chars(), MAX_PAGE_CHARACTERS)):
        if plain := _plain(chr(raw.FPDFText_GetUnicode(text, place))):
            box = text.get_charbox(place, loose=True)
            yield from (_Letter(letter, box) for letter in plain)
    text.close()


def _runs(page: str, passage: str, *, is_whole: bool) -> list[tuple[int, int]]:
    """Return the ranges of a page's letters that are the passage's, in order.

    If the passage is not there as it is, its runs are looked for in any order: columns and notes
    may be read in another order than the file has them.
    """
    text = passage[:MAX_PASSAGE_CHARACTERS]
    if not text:
        return []
    if (start := page.find(text)) >= 0:
        return [(start, start + len(text))]
    grams = {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}
    runs: list[list[int]] = []
    for at in range(len(page) - _GRAM + 1):
        if page[at : at + _GRAM] not in grams:
            continue
        if runs and at - runs[-1][1] <= _MAX_GAP:
            runs[-1][1] = at + _GRAM
        else:
            runs.append([at, at + _GRAM])
    long = [(start, end) for start, end in runs if end - start >= _MIN_RUN]
    common = sum(end - start for start, end in long)
    return [] if is_whole and common < _MIN_SHARE * len(text) else long


def _lines(letters: Sequence[_Letter]) -> Iterator[tuple[float, float, float, float]]:
    """Yield the box around the letters of each line."""
    line: tuple[float, float, float, float] | None = None
    for _, (left, bottom, right, top) in letters:
        if line is not None:
            common = min(line[3], top) - max(line[1], bottom)
            if common > (top - bottom) / 2 and left >= line[0] - (top - bottom):
                line = (
                    min(line[0], left), min(line[1], bottom),
                    max(line[2], right), max(line[3], top),
                )  # fmt: skip
                continue
            yield line
        line = (left, bottom, right, top)
    if line is not None:
        yield line


def _area(page: Any, box: tuple[float, float, float, float]) -> Area:
    """Return a box in points as an area; PDFium knows of rotated and of cropped pages."""
    raw = package("pypdfium2.raw", "pypdfium2", "PDF")
    corners = []
    for x, y in ((box[0], box[3]), (box[2], box[1])):
        across, down = c_int(), c_int()
        raw.FPDF_PageToDevice(page, 0, 0, _UNITS, _UNITS, 0, x, y, byref(across), byref(down))
        corners.append([min(max(each.value / _UNITS, 0), 1) * 100 for each in (across, down)])
    (left, right), (top, bottom) = (sorted(each) for each in zip(*corners, strict=True))
    return Area(*(round(each, 3) for each in (left, top, right - left, bottom - top)))
