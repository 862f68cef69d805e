"""Read a page with PDFium: text with its coordinates, ruled lines, and values of forms."""

from __future__ import annotations

import ctypes
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from corral.providers.ingestion.read.formats.pdf.elements import Page, Rule, Run, is_marker

WIDE_GAP = 0.8
"""Maximum gap between two words of a run, as a share of the font size."""

MAX_OBJECTS = 50_000
"""Maximum number of objects on a page that are searched for ruled lines."""

MAX_FIELDS = 1000
_MAX_NESTING = 8
_PASSWORD = 1 << 13
"""The flag of a password field (ISO 32000-1, table 228)."""
_THIN = 3.0
_HYPHENS = "\ufffe\x02"
"""Characters that PDFium returns for a hyphen at a line end; the next line follows directly."""

_WORD = re.compile(rf"[^\s\x00{_HYPHENS}]+[{_HYPHENS}]?|[{_HYPHENS}]")
_SPECIAL = re.compile(rf"[\ufb00-\ufb06{_HYPHENS}]")
_LIGATURES = str.maketrans(
    {"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl",
     "\ufb05": "st", "\ufb06": "st", "\ufffe": "-", "\x02": "-"}
)  # fmt: skip

_Float, _ref = ctypes.c_float, ctypes.byref
_Box = tuple[float, float, float, float]


def box_of(turn: int, left: float, bottom: float, right: float, top: float) -> _Box:
    """Convert a box in PDF coordinates (y grows upwards) to x0, top, x1, bottom of rotated text."""
    if turn == 1:
        return -top, -right, -bottom, -left
    if turn == 2:
        return -right, bottom, -left, top
    if turn == 3:
        return bottom, left, top, right
    return left, -top, right, -bottom


class Letters:
    """Groups the letters of one page into runs.

    Args:
        raw: The module `pypdfium2.raw`.
        text: PDFium's text page.
    """

    def __init__(self, raw: Any, text: Any) -> None:
        self._raw = raw
        self._page = text.raw
        self._place = raw.FPDFText_GetLooseCharBox
        self._text: str = text.get_text_range()
        self._rect = raw.FS_RECTF()
        self._reference = ctypes.byref(self._rect)
        self._sizes: dict[float, float] = {}
        self._offsets = [
            place for place, letter in enumerate(self._text) if letter > "\uffff"
        ] if max(self._text, default="") > "\uffff" else []  # fmt: skip
        self._is_plain = len(self._text) == text.count_chars() and not self._offsets
        self._is_spelled = _SPECIAL.search(self._text) is None
        self.runs: dict[int, list[Run]] = {}
        self._count = 0

    def read(self) -> dict[int, list[Run]]:
        """Return the runs by rotation in quarter turns, in the order in which they are drawn."""
        position = 0
        for line in self._text.split("\n"):
            self._line(position, line)
            position += len(line) + 1
        return self.runs

    def _index(self, place: int) -> int:
        """Return PDFium's index of a letter; PDFium counts UTF-16 code units."""
        if self._is_plain:
            return place
        place += bisect_left(self._offsets, place)
        index: int = self._raw.FPDFText_GetCharIndexFromTextIndex(self._page, place)
        return max(index, 0)

    def _line(self, position: int, line: str) -> None:
        """Add the words of one line as PDFium returns it.

        Most of the time is spent here, so the most common case comes first: a word next to the
        previous one.
        """
        turn, run, right, wide = -2, None, 0.0, 0.0
        place, page, reference = self._place, self._page, self._reference
        is_plain, rect = self._is_plain, self._rect
        for match in _WORD.finditer(line):
            text, start = match[0], position + match.start()
            length = len(text)
            is_divided = text[-1] in _HYPHENS
            if is_divided and length > 1:
                length -= 1
            first, last = start, start + length - 1
            if not is_plain:
                first, last = self._index(first), self._index(last)
            if turn == -2:
                turn = self._turn(first)
            if turn == 0:
                place(page, first, reference)
                x0, top, a1, bottom = rect.left, -rect.top, rect.right, -rect.bottom
                above = top
                if length > 1:
                    place(page, last, reference)
                    above, a1 = -rect.top, rect.right
            else:
                x0, top, _, bottom = self._box(turn, first)
                _, above, a1, _ = self._box(turn, last)
            height = bottom - top
            is_whole = abs(above - top) < 0.3 * height and x0 <= a1 <= x0 + 1.5 * height * length
            if (
                is_whole
                and run
                and abs(run.top - top) < 0.3 * height
                and -height < x0 - right <= wide
            ):
                word = text if self._is_spelled else text.translate(_LIGATURES)
                run.words.append((word, x0, a1))
                right = run.x1 = max(a1, run.x1)
                if abs(run.bottom - bottom) > 0.5:
                    run.top, run.bottom = min(run.top, top), max(run.bottom, bottom)
                    run.size = min(run.size, self._size(first, height)) or run.size
                continue
            for piece, box, at in self._pieces(turn, text, start, first, last, is_whole):
                run = self._add(turn, piece.translate(_LIGATURES), box, at)
            if run:
                right = run.words[-1][2]
                wide = WIDE_GAP * (run.size or (run.bottom - run.top) / 1.2)
            if is_divided:
                turn, run = -2, None  # The next line follows directly.

    def _turn(self, index: int) -> int:
        angle = self._raw.FPDFText_GetCharAngle(self._page, index)
        turns = angle / (math.pi / 2) if angle > 0 else 0.0
        nearest = round(turns)
        return nearest % 4 if abs(turns - nearest) < 0.15 else -1

    def _box(self, turn: int, index: int) -> _Box:
        self._place(self._page, index, self._reference)
        rect = self._rect
        return box_of(turn, rect.left, rect.bottom, rect.right, rect.top)

    def _pieces(
        self, turn: int, text: str, start: int, first: int, last: int, is_whole: bool
    ) -> Iterator[tuple[str, _Box, int]]:
        """Yield a word with its box; in parts if it continues on another line or after a gap."""
        box = self._box(turn, first)
        if is_whole or first == last:
            yield text, _around(box, self._box(turn, last)), first
            return
        begin, index = 0, first
        for number in range(1, len(text)):
            at = self._index(start + number)
            x0, top, x1, bottom = self._box(turn, at)
            height = box[3] - box[1]
            shared = min(box[3], bottom) - max(box[1], top)
            if shared < 0.3 * min(height, bottom - top) or x0 - box[2] > height or x1 < box[0]:
                yield text[begin:number], box, index
                begin, index, box = number, at, (x0, top, x1, bottom)
            else:
                box = _around(box, (x0, top, x1, bottom))
        yield text[begin:], box, index

    def _add(self, turn: int, text: str, box: _Box, index: int) -> Run:
        """Add a word to the previous run, or begin a new run; return the run."""
        x0, top, x1, bottom = box
        runs = self.runs.setdefault(turn, [])
        size = self._size(index, bottom - top)
        if runs:
            run = runs[-1]
            before, left, right = run.words[-1]
            height = run.bottom - run.top
            shared = min(run.bottom, bottom) - max(run.top, top)
            wide = WIDE_GAP * (run.size or height / 1.2)
            if len(run.words) == 1 and is_marker(before):
                wide *= 4
            if max(x0 - right, left - x1) <= wide and shared >= 0.5 * min(height, bottom - top):
                run.words.append((text, x0, x1))
                run.x0, run.top, run.x1, run.bottom = _around(
                    (run.x0, run.top, run.x1, run.bottom), box
                )
                run.size = min(run.size, size) or run.size
                return run
        runs.append(Run([(text, x0, x1)], x0, top, x1, bottom, size, self._count))
        self._count += 1
        return runs[-1]

    def _size(self, index: int, height: float) -> float:
        """Return the font size of a letter in points, cached by the height of the letter."""
        key = round(height, 1)
        if key not in self._sizes:
            matrix = self._raw.FS_MATRIX()
            self._raw.FPDFText_GetMatrix(self._page, index, matrix)
            size = self._raw.FPDFText_GetFontSize(self._page, index)
            self._sizes[key] = max(size, 0.0) * math.hypot(matrix.c, matrix.d)
        return self._sizes[key]


def _around(first: _Box, second: _Box) -> _Box:
    return (
        min(first[0], second[0]), min(first[1], second[1]),
        max(first[2], second[2]), max(first[3], second[3]),
    )  # fmt: skip


def add_drawings(raw: Any, page: Any, made: Page) -> None:
    """Add the ruled lines of a page and the area of its pictures; call it before reading the text.

    PDFium skips text with a box of no width, such as a single letter in a font that is not
    embedded. This function gives such text an outline, which has a width.
    """
    budget = [MAX_OBJECTS]
    count = raw.FPDFPage_CountObjects(page.raw)
    identity = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    for number in range(min(count, MAX_OBJECTS)):
        _add_object(raw, raw.FPDFPage_GetObject(page.raw, number), identity, made, budget, 0)


_Matrix = tuple[float, float, float, float, float, float]


def _widen(raw: Any, text: Any) -> None:
    left, _, right, _ = _bounds(raw, text)
    if right - left < 0.01:
        raw.FPDFTextObj_SetTextRenderMode(text, raw.FPDF_TEXTRENDERMODE_FILL_STROKE)
        raw.FPDFPageObj_Transform(text, 1, 0, 0, 1, 0, 0)  # Makes PDFium recompute the box.


def _add_object(
    raw: Any, thing: Any, outer: _Matrix, made: Page, budget: list[int], depth: int
) -> None:
    kind = raw.FPDFPageObj_GetType(thing)
    budget[0] -= 1
    if budget[0] < 0:
        return
    if kind == raw.FPDF_PAGEOBJ_TEXT:
        _widen(raw, thing)
    elif kind == raw.FPDF_PAGEOBJ_IMAGE:
        made.is_drawn = True
        (x0, bottom, x1, top) = _bounds(raw, thing)
        a, b, c, d, _, _ = outer
        made.picture_area += abs((x1 - x0) * (top - bottom) * (a * d - b * c))
    elif kind == raw.FPDF_PAGEOBJ_PATH:
        made.is_drawn = True
        _add_path(raw, thing, outer, made)
    elif kind == raw.FPDF_PAGEOBJ_FORM and depth < _MAX_NESTING:
        matrix = _product(_matrix(raw, thing), outer)
        for number in range(min(max(raw.FPDFFormObj_CountObjects(thing), 0), max(budget[0], 0))):
            inner = raw.FPDFFormObj_GetObject(thing, number)
            _add_object(raw, inner, matrix, made, budget, depth + 1)


def _bounds(raw: Any, thing: Any) -> _Box:
    """Return left, bottom, right and top of an object."""
    left, bottom, right, top = _Float(), _Float(), _Float(), _Float()
    raw.FPDFPageObj_GetBounds(thing, _ref(left), _ref(bottom), _ref(right), _ref(top))
    return left.value, bottom.value, right.value, top.value


def _matrix(raw: Any, thing: Any) -> _Matrix:
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(thing, matrix)
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _product(inner: _Matrix, outer: _Matrix) -> _Matrix:
    a, b, c, d, e, f = inner
    g, h, i, j, k, m = outer
    return (
        a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j,
        e * g + f * i + k, e * h + f * j + m,
    )  # fmt: skip


def _add_path(raw: Any, path: Any, outer: _Matrix, made: Page) -> None:
    """Add the straight lines of a path; a thin rectangle counts as one line, a wide one as four."""
    count = raw.FPDFPath_CountSegments(path)
    if not 0 < count <= 2000:
        return
    mode, stroked = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(path, ctypes.byref(mode), ctypes.byref(stroked))
    if not mode.value and not stroked.value:
        return
    a, b, c, d, e, f = _product(_matrix(raw, path), outer)
    x, y = ctypes.c_float(), ctypes.c_float()
    start = last = (0.0, 0.0)
    lines: list[Rule] = []
    for number in range(count):
        segment = raw.FPDFPath_GetPathSegment(path, number)
        raw.FPDFPathSegment_GetPoint(segment, ctypes.byref(x), ctypes.byref(y))
        point = a * x.value + c * y.value + e, b * x.value + d * y.value + f
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        elif kind == raw.FPDF_SEGMENT_LINETO:
            lines += _straight(last, point)
        else:
            return  # A curve, so the path is a drawing.
        if raw.FPDFPathSegment_GetClose(segment):
            lines += _straight(point, start)
        last = point
    made.rules += _collapsed(lines) if mode.value else lines


def _straight(first: tuple[float, float], second: tuple[float, float]) -> list[Rule]:
    (x0, y0), (x1, y1) = first, second
    if (abs(x0 - x1) < 1) == (abs(y0 - y1) < 1):
        return []
    return [Rule(min(x0, x1), -max(y0, y1), max(x0, x1), -min(y0, y1))]


def _collapsed(lines: list[Rule]) -> list[Rule]:
    """Return the edges of a filled shape, or its center line if the shape is thin."""
    if not lines:
        return []
    x0, x1 = min(line.x0 for line in lines), max(line.x1 for line in lines)
    top, bottom = min(line.top for line in lines), max(line.bottom for line in lines)
    if min(x1 - x0, bottom - top) > _THIN:
        return lines
    x, y = (x0 + x1) / 2, (top + bottom) / 2
    is_flat = x1 - x0 > bottom - top
    return [Rule(x0, y, x1, y) if is_flat else Rule(x, top, x, bottom)]


def add_values(raw: Any, document: Any, page: Any, made: Page) -> None:
    """Add the values of form fields at their positions."""
    form = document.formenv
    if form is None:
        return
    labels = made.runs.setdefault(0, [])
    values: list[Run] = []
    for number in range(min(raw.FPDFPage_GetAnnotCount(page.raw), MAX_FIELDS)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, number)
        try:
            text = _value(raw, form, annotation)
            if text:
                rect = raw.FS_RECTF()
                raw.FPDFAnnot_GetRect(annotation, ctypes.byref(rect))
                values += _field_runs(text, rect, labels)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    labels += values


def _value(raw: Any, form: Any, annotation: Any) -> str:
    if raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_FREETEXT:
        return _string(
            lambda buffer, size: raw.FPDFAnnot_GetStringValue(annotation, b"Contents", buffer, size)
        )
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if raw.FPDFAnnot_IsChecked(form, annotation) else "[ ]"
    is_secret = raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD
    if not is_secret and kind in (
        raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX
    ):  # fmt: skip
        return _string(
            lambda buffer, size: raw.FPDFAnnot_GetFormFieldValue(form, annotation, buffer, size)
        )
    return ""


def _string(call: Any) -> str:
    """Return a string that PDFium writes into a buffer as zero-terminated UTF-16."""
    size = call(None, 0)
    if size <= 2 or size > 1 << 22:
        return ""
    buffer = ctypes.create_string_buffer(size)
    call(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace")


def _field_runs(text: str, rect: Any, labels: list[Run]) -> Iterator[Run]:
    """Yield the lines of a value, ordered as if they were drawn after the label to the left."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    x0, top, x1, bottom = box_of(0, rect.left, rect.bottom, rect.right, rect.top)
    height = (bottom - top) / max(len(lines), 1)
    beside = [run for run in labels if run.x1 <= x0 and run.top < bottom and run.bottom > top]
    order = max(beside, key=lambda run: run.x1).order if beside else len(labels)
    margin = max(height - 14, 0) / 2 if len(lines) == 1 else 0
    for number, line in enumerate(lines):
        words = [(word, x0, x1) for word in line.split()]
        y = top + number * height
        yield Run(words, x0, y + margin, x1, y + height - margin, 0, order)
