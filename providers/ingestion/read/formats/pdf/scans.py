"""Straighten pictures of pages, and find the ruled lines on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.providers.ingestion.read.formats.pdf.elements import Rule

_SMALL = 700
"""Longer side, in pixels, of the thumbnail that the angle of a scan is measured on."""

_MAX_ANGLE = 6.0
_MIN_ANGLE = 0.2
_DARK = 140
_LINE_POINTS = 30.0
"""Minimum length of a ruled line; strokes of letters are shorter."""

_THICK_POINTS = 3.5
_MAX_LINES = 600

_Ink = npt.NDArray[np.bool_]


def leveled(picture: Any) -> Any:
    """Return a Pillow image, rotated so that its lines are level."""
    gray = picture.convert("L")
    gray.thumbnail((_SMALL, _SMALL))
    best, score = 0.0, _levelness(gray, 0.0)
    for angles in (np.arange(-_MAX_ANGLE, _MAX_ANGLE + 1), np.arange(-0.8, 0.9, 0.2)):
        center = best
        for angle in center + angles:
            other = _levelness(gray, float(angle))
            if other > score * 1.01:
                best, score = float(angle), other
    if abs(best) < _MIN_ANGLE:
        return picture
    return picture.rotate(best, resample=2, expand=True, fillcolor="white")


def _levelness(gray: Any, angle: float) -> float:
    """Return the sharpness of the edges between rows of ink and rows of paper."""
    turned = gray.rotate(angle, resample=2, fillcolor=255) if angle else gray
    rows = 255.0 - np.asarray(turned, dtype=np.float32).mean(axis=1)
    return float(np.square(np.diff(rows)).sum())


def ruled_lines(picture: Any, points: float) -> list[Rule]:
    """Return the ruled lines of a level picture, in points.

    Args:
        picture: A Pillow image.
        points: Points per pixel.
    """
    dark = np.asarray(picture.convert("L")) < _DARK
    length = max(round(_LINE_POINTS / points), 8)
    across = [
        Rule(x0 * points, y * points, x1 * points, y * points)
        for x0, x1, y in _lines(dark, length, points)
    ]
    down = [
        Rule(x * points, y0 * points, x * points, y1 * points)
        for y0, y1, x in _lines(dark.T, length, points)
    ]
    return across + down if len(across) + len(down) <= _MAX_LINES else []


def _lines(dark: _Ink, length: int, points: float) -> Iterator[tuple[int, int, float]]:
    """Yield the start, end and position of lines along the rows of a picture.

    A pixel is in a line if nine tenths of the pixels around it in the row are dark. A line that is
    not quite level continues in adjacent rows.
    """
    if dark.shape[1] <= length:
        return
    wide = dark.copy()
    wide[1:] |= dark[:-1]
    sums = np.cumsum(wide, axis=1, dtype=np.int32)
    counts = sums[:, length:] - sums[:, :-length]
    full = counts >= 0.9 * length
    thick = max(round(_THICK_POINTS / points), 3)
    open_lines: list[list[int]] = []  # Start, end, first row and last row of each line.
    for row in np.flatnonzero(full.any(axis=1)):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], full[row].astype(np.int8), [0]))))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            line = [int(start) + 1, int(end) + length - 1, int(row), int(row)]
            for other in open_lines:
                if row - other[3] <= 2 and other[0] <= line[1] and other[1] >= line[0]:
                    other[0], other[1] = min(other[0], line[0]), max(other[1], line[1])
                    other[3] = line[3]
                    break
            else:
                open_lines.append(line)
        done = [line for line in open_lines if row - line[3] > 2]
        open_lines = [line for line in open_lines if row - line[3] <= 2]
        yield from _thin(done, thick)
        if len(open_lines) > _MAX_LINES:
            return
    yield from _thin(open_lines, thick)


def _thin(lines: list[list[int]], thick: int) -> Iterator[tuple[int, int, float]]:
    for start, end, first, last in lines:
        if last - first <= thick + (end - start) // 200:
            yield start, end, (first + last) / 2
