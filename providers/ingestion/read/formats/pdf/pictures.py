"""Read pictures as documents of one page, or several for a TIFF."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read.formats.common import Readable, reading
from corral.providers.ingestion.read.formats.pdf.layout import laid_out
from corral.providers.ingestion.read.formats.pdf.recognizing import (
    PageRecognizer,
    recognition_of,
)
from corral.providers.ingestion.read.formats.pdf.rendering import readable
from corral.providers.ingestion.read.ocr import INSTALL, MAX_SIDE

PictureText = Callable[[bytes], str]
"""A function that returns the text in a picture."""

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_MIN_SIDE = 16
_PAGE_INCHES = 8.0
"""Assumed width of the page that a picture shows, since its resolution is not known."""


def read(data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    """Return the text in a picture by text recognition.

    Raises:
        MissingDependency: No recognition engine is installed.
        InvalidRequest: Text recognition is switched off, the file is broken, or it has too many
            pixels or pages.
    """
    return reading("picture", lambda: _read(data, limits, ocr))


def office_pictures(limits: DocumentLimits, ocr: OcrSettings) -> PictureText | None:
    """Return a function that reads the text in pictures of Office files; None if that is off.

    The function returns "" for a picture that cannot be read.

    Raises:
        MissingDependency: No engine is installed.
    """
    if not ocr.office_pictures:
        return None
    recognizer = PageRecognizer(ocr)
    if not recognizer.can_read:
        raise MissingDependency("Reading text in pictures", "rapidocr", INSTALL)

    def text(data: bytes) -> str:
        try:
            picture = next(_pictures(data, ocr, limits))
            page = recognizer.page(picture, _dpi_of(picture))
        except (InvalidRequest, OSError, SyntaxError, ValueError):
            return ""
        return readable([page], [laid_out(page)]).pages[0] if page else ""

    return text


def _read(data: bytes, limits: DocumentLimits, ocr: OcrSettings) -> Readable:
    recognizer = PageRecognizer(ocr)
    if ocr.engine == "none":
        raise InvalidRequest(
            "Text recognition is switched off.",
            hint="The operator's setting is rag.ocr.engine.",
            field="content",
        )
    if not recognizer.can_read:
        raise MissingDependency("Reading pictures", "rapidocr", INSTALL)
    pages, unread = [], []
    for number, picture in enumerate(_pictures(data, ocr, limits), 1):
        page = recognizer.page(picture, _dpi_of(picture))
        if page is None:
            unread.append(f"pages from {number} on ({recognizer.refused})")
            break
        pages.append(page)
    return recognition_of(readable(pages, [laid_out(page) for page in pages]), pages, ocr, unread)


def _pictures(data: bytes, settings: OcrSettings, limits: DocumentLimits) -> Iterator[Any]:
    """Yield the pictures in a PNG, JPEG, TIFF or WebP file: all pages of a TIFF, else one.

    Raises:
        MissingDependency: Pillow is not installed.
        InvalidRequest: A picture has too many pixels, or the file too many pages.
    """
    try:
        image = importlib.import_module("PIL.Image")
        operations = importlib.import_module("PIL.ImageOps")
    except ImportError:
        raise MissingDependency("Reading pictures", "rapidocr", INSTALL) from None
    with image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        count = getattr(opened, "n_frames", 1) if opened.format == "TIFF" else 1
        if count > limits.max_pages:
            raise limits.exceeded("pages", "max_pages")
        for number in range(count):
            if count > 1:
                opened.seek(number)
            pixels = opened.width * opened.height
            if pixels > settings.max_pixels:
                raise InvalidRequest(
                    f"The picture has {pixels} pixels.",
                    hint=f"At most {settings.max_pixels} are read (rag.ocr.max_pixels).",
                    field="content",
                )
            opened.draft("RGB", (MAX_SIDE, MAX_SIDE))
            yield _on_white(image, operations.exif_transpose(opened))


def _on_white(image: Any, picture: Any) -> Any:
    """Convert a picture to RGB; transparent parts become white."""
    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        alpha = picture.convert("RGBA")
        ground = image.new("RGBA", alpha.size, "white")
        ground.alpha_composite(alpha)
        picture = ground
    if picture.mode.startswith(("I", "F")):  # More than eight bits per pixel.
        low, high = picture.getextrema()
        picture = picture.point(lambda value: (value - low) * 255 / max(high - low, 1)).convert("L")
    return picture.convert("RGB")


def _dpi_of(picture: Any) -> float:
    """Return the resolution, in pixels per inch, at which a picture is as wide as a page."""
    return float(max(min(picture.size), _MIN_SIDE)) / _PAGE_INCHES
