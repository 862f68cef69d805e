"""Read PDFs: the text of each page in reading order, with headings and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read.formats.common import (
    Readable,
    declared_title,
    locked,
    package,
    reading,
)
from corral.providers.ingestion.read.formats.pdf.elements import Line, Page
from corral.providers.ingestion.read.formats.pdf.headings import mark_bookmarks, mark_large_lines
from corral.providers.ingestion.read.formats.pdf.layout import laid_out
from corral.providers.ingestion.read.formats.pdf.letters import Letters, add_drawings, add_values
from corral.providers.ingestion.read.formats.pdf.recognizing import (
    PageRecognizer,
    ranges,
    recognition_of,
)
from corral.providers.ingestion.read.formats.pdf.rendering import readable
from corral.providers.ingestion.read.ocr import INSTALL

_WANTS_A_PASSWORD = 4
_MAX_STAMP = 60
"""Maximum number of letters on a scanned page besides its picture, such as a stamp."""

_SCAN_SHARE = 0.5
"""Minimum share of the page that the pictures of a stamped scan cover."""


def read(data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    """Return the text of each page of a PDF; scanned pages are read by text recognition.

    Call it from one thread at a time, since PDFium is not thread-safe.

    Raises:
        MissingDependency: pypdfium2 or the configured recognition engine is not installed.
        InvalidRequest: The file is broken, needs a password, or has too many pages or characters;
            or all its pages are scanned, and no engine is installed.
    """
    pdfium = package("pypdfium2", "pypdfium2", "PDF")
    raw = package("pypdfium2.raw", "pypdfium2", "PDF")
    return reading("PDF", lambda: _read(pdfium, raw, data, limits, ocr))


def _read(pdfium: Any, raw: Any, data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == _WANTS_A_PASSWORD:
            raise locked("PDF") from None
        raise
    try:
        if len(document) > limits.max_pages:
            raise limits.exceeded("pages", "max_pages")
        if document.get_formtype():
            document.init_forms()
        pages = list(_pages(raw, document, limits))
        unread = _recognize(document, pages, ocr)
        laid = [laid_out(page) for page in pages]
        lines = [[each for each in page if isinstance(each, Line)] for page in laid]
        if not mark_bookmarks(document, lines):
            mark_large_lines(lines)
        title = declared_title(document.get_metadata_value("Title"))
    finally:
        document.close()
    return recognition_of(readable(pages, laid, title), pages, ocr, unread)


def _pages(raw: Any, document: Any, limits: DocumentLimits) -> Iterator[Page]:
    characters = 0
    for page in document:
        made = Page({}, box=page.get_cropbox())
        add_drawings(raw, page, made)
        text = page.get_textpage()
        characters += text.count_chars()
        if characters > limits.max_characters:
            raise limits.exceeded("characters", "max_characters")
        made.runs = Letters(raw, text).read()
        add_values(raw, document, page, made)
        yield made
        text.close()
        page.close()


def _recognize(document: Any, pages: list[Page], ocr: OcrSettings) -> list[str]:
    """Replace scanned pages with their recognized text; return the list of unread pages."""
    scanned = [number for number, page in enumerate(pages) if _is_scanned(page)]
    if not scanned:
        return []
    recognizer = PageRecognizer(ocr)
    if not recognizer.can_read:
        if len(scanned) == sum(1 for page in pages if page.runs or page.is_drawn):
            raise InvalidRequest(
                "The PDF has no text: its pages are scanned.",
                hint=f"To recognize it: {INSTALL}"
                if ocr.engine != "none"
                else "Text recognition is switched off: the operator's setting is rag.ocr.engine.",
                field="content",
            )
        return [f"scanned pages {ranges([number + 1 for number in scanned])}"]
    for place, number in enumerate(scanned):
        page = document[number]
        width, height = page.get_size()
        most = (ocr.max_pixels / max(width * height, 1)) ** 0.5
        scale = min(ocr.dpi / 72, most)
        picture = page.render(scale=scale).to_pil().convert("RGB")
        page.close()
        made = recognizer.page(picture, 72 * scale)
        if made is None:
            left = ranges([number + 1 for number in scanned[place:]])
            return [f"scanned pages {left} ({recognizer.refused})"]
        pages[number] = made
    return []


def _is_scanned(page: Page) -> bool:
    """Return True if a page is drawn but has no text, or has little text and a large picture."""
    letters = sum(len(word[0]) for runs in page.runs.values() for run in runs for word in run.words)
    if not letters:
        return page.is_drawn
    left, bottom, right, top = page.box
    area = max((right - left) * (top - bottom), 1)
    return letters <= _MAX_STAMP and page.picture_area >= _SCAN_SHARE * area
