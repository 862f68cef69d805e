"""Recognize the text on pictures of pages, upright and within limits of time and number."""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read import deadline
from corral.providers.ingestion.read.formats.common import Readable
from corral.providers.ingestion.read.formats.pdf.elements import Page, Run
from corral.providers.ingestion.read.ocr import MAX_SIDE, Piece, engine

_DOUBTFUL = 0.75
"""Confidence below which a page is also tried in other orientations."""


class PageRecognizer:
    """Recognizes pages of one document, up to the time and number that the settings allow.

    Args:
        settings: The engine and its limits.

    Raises:
        MissingDependency: The configured engine is not installed.
    """

    def __init__(self, settings: OcrSettings) -> None:
        self.settings = settings
        self._engine = engine(settings)
        self._pages = 0
        self._ends: float | None = None
        self.refused = ""

    @property
    def can_read(self) -> bool:
        """True if there is an engine."""
        return self._engine is not None

    def page(self, picture: Any, dpi: float) -> Page | None:
        """Return a page with text in points; None if a limit has been reached.

        Args:
            picture: A Pillow image.
            dpi: Resolution in pixels per inch.
        """
        seconds = self._seconds()
        if self._engine is None or not seconds:
            return None
        # numpy takes 0.1 s to import, and most documents have no scans.
        scans = importlib.import_module("corral.providers.ingestion.read.formats.pdf.scans")
        picture, scale = _fitted(picture)
        picture = scans.leveled(picture)
        ends = time.monotonic() + seconds
        best = self._engine.recognize(picture, seconds), picture
        for turn in _turns(best[0]):
            left = ends - time.monotonic()
            if left > 0:
                turned = picture.rotate(turn, expand=True)
                best = max(best, (self._engine.recognize(turned, left), turned), key=_rank)
            if _confidence(best[0]) >= _DOUBTFUL and not _is_tall(best[0]):
                break
        pieces, picture = best
        if not any(map(str.isalnum, "".join(piece.text for piece in pieces))):
            pieces = []  # A drawing: engines take its boxes and strokes for text.
        points = 72 / dpi * scale
        width, height = picture.width * points, picture.height * points
        return Page(
            {0: _runs(pieces, points)},
            scans.ruled_lines(picture, points) if pieces else [],
            box=(0, -height, width, 0), confidence=_confidence(pieces) if pieces else None,
        )  # fmt: skip

    def _seconds(self) -> float:
        """Count a page, and return the seconds left for it; 0 if a limit has been reached."""
        if self._ends is None:
            self._ends = time.monotonic() + self.settings.max_seconds
            deadline.extend(self.settings.max_seconds)
        left = self._ends - time.monotonic()
        if left <= 0:
            self.refused = f"more than {self.settings.max_seconds:g} seconds (rag.ocr.max_seconds)"
        elif self._pages >= self.settings.max_pages:
            self.refused = f"more than {self.settings.max_pages} pages (rag.ocr.max_pages)"
        self._pages += 1
        return 0 if self.refused else left


def _fitted(picture: Any) -> tuple[Any, float]:
    """Return a picture scaled down to the maximum size, and the factor."""
    longer = max(picture.size)
    if longer <= MAX_SIDE:
        return picture, 1.0
    scale = longer / MAX_SIDE
    size = max(round(picture.width / scale), 1), max(round(picture.height / scale), 1)
    return picture.resize(size), scale


def _confidence(pieces: Sequence[Piece]) -> float:
    letters = sum(len(piece.text) for piece in pieces)
    return sum(piece.confidence * len(piece.text) for piece in pieces) / max(letters, 1)


def _turns(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """Return the rotations, in degrees, to try on a page that does not seem upright."""
    if not pieces or (_confidence(pieces) >= _DOUBTFUL and not _is_tall(pieces)):
        return ()
    return (90, 270, 180) if _is_tall(pieces) else (180,)


def _rank(reading: tuple[Sequence[Piece], Any]) -> tuple[bool, float]:
    """Return the sort key of one reading of a page; the best reading has the highest."""
    pieces, _ = reading
    return bool(pieces) and not _is_tall(pieces), _confidence(pieces)


def _is_tall(pieces: Sequence[Piece]) -> bool:
    """Return True if most of the text does not run from left to right."""
    long = [piece for piece in pieces if len(piece.text) > 2]
    tall = sum(piece.height > 1.5 * math.dist(piece.left, piece.right) for piece in long)
    return tall * 2 > len(long)


def _runs(pieces: Sequence[Piece], points: float) -> list[Run]:
    """Return pieces as runs, with coordinates in points."""
    runs = []
    for order, piece in enumerate(pieces):
        x0, x1 = piece.left[0] * points, piece.right[0] * points
        middle = (piece.left[1] + piece.right[1]) / 2
        top, bottom = (middle - piece.height / 2) * points, (middle + piece.height / 2) * points
        words = list(_words(piece.text, x0, x1))
        # The height of a line depends on its letters, so it does not indicate a heading.
        runs.append(Run(words, x0, top, x1, bottom, 0, order))
    return runs


def _words(text: str, x0: float, x1: float) -> Iterator[tuple[str, float, float]]:
    """Yield the words of a line; their edges are estimated from the number of letters."""
    wide = (x1 - x0) / max(len(text), 1)
    place = 0
    for word in text.split():
        place = text.index(word, place)
        yield word, x0 + place * wide, x0 + (place + len(word)) * wide
        place += len(word)


def recognition_of(
    read: Readable, pages: Sequence[Page], settings: OcrSettings, unread: Sequence[str] = ()
) -> Readable:
    """Return a document with metadata about recognition, and with notes on badly read pages.

    The metadata has the recognized pages, such as "1-3, 7", and their mean confidence.
    """
    sure = {n: page.confidence for n, page in enumerate(pages, 1) if page.confidence is not None}
    badly = [number for number, value in sure.items() if value < settings.min_confidence]
    notes = [f"page {ranges(badly)} in part (recognized with little confidence)"] if badly else []
    metadata = {
        "recognized_pages": ranges(list(sure)),
        "recognition_confidence": round(statistics.fmean(sure.values()), 3),
    } if sure else {}  # fmt: skip
    return replace(read, unread=(*read.unread, *unread, *notes), metadata=metadata)


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges, such as "1-3, 7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
