"""Read workbooks of Excel and LibreOffice: a heading and a table for each sheet."""

from __future__ import annotations

import datetime
import io
from array import array
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any
from zipfile import ZipFile

from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.archive import opened
from corral.providers.ingestion.read.formats.common import (
    Readable,
    is_blank,
    locked,
    package,
    reading,
    table,
    table_rows,
)
from corral.providers.ingestion.read.formats.number_formats import Formats, formats_of

_MAX_WHOLE = 1e15
_MIDNIGHT = datetime.time()


def read(data: bytes, limits: DocumentLimits) -> Readable:
    """Return the sheets of a workbook with values as displayed, and the results of formulas.

    Raises:
        MissingDependency: python-calamine is not installed.
        InvalidRequest: The file is broken, needs a password, is larger than 256 MiB once unpacked,
            or has too many characters.
    """
    calamine = package("python_calamine", "python-calamine", "Excel")
    return reading("Excel", lambda: _read(calamine, data, limits))


def first_sheet(data: bytes) -> list[list[Any]]:
    """Return the cell values of a workbook's first sheet, by row.

    Raises:
        MissingDependency: python-calamine is not installed.
        InvalidRequest: The file is broken, needs a password, or is larger than 256 MiB once
            unpacked.
    """
    calamine = package("python_calamine", "python-calamine", "Excel")

    def rows() -> list[list[Any]]:
        book, _ = _book(calamine, data, lambda _: {})
        sheet = book.get_sheet_by_index(0)
        return [[_whole(value) for value in row] for row in sheet.iter_rows()]

    return reading("Excel", rows)


def _read(calamine: Any, data: bytes, limits: DocumentLimits) -> Readable:
    book, formats = _book(calamine, data, formats_of)
    room = limits.max_characters
    texts: list[str] = []
    lines = array("L")
    for sheet in book.sheets_metadata:
        if sheet.typ != calamine.SheetTypeEnum.WorkSheet:
            continue
        cell_formats = formats.pop(sheet.name, {})
        numbers = array("L")
        rows = list(_rows(book.get_sheet_by_name(sheet.name), cell_formats, limits, room, numbers))
        room -= sum(sum(map(len, row)) for row in rows)
        text = table(rows)
        if text:
            lines.extend((0, 0, 0) if texts else (0, 0))
            lines.extend(table_rows(text, numbers))
            texts.append(f"## {' '.join(sheet.name.split())}\n\n{text}")
    unread = tuple(
        f"the {str(sheet.typ).rpartition('.')[2]} {sheet.name!r}"
        for sheet in book.sheets_metadata
        if sheet.typ != calamine.SheetTypeEnum.WorkSheet
    )
    return Readable(["\n\n".join(texts)], unread=unread, rows=lines)


def _book(
    calamine: Any, data: bytes, formats_of: Callable[[ZipFile], dict[str, Formats]]
) -> tuple[Any, dict[str, Formats]]:
    """Open a workbook; return it with the number formats of its sheets."""
    formats: dict[str, Formats] = {}
    if data.startswith(b"PK"):
        with opened(data, "Excel") as archive:
            formats = formats_of(archive)
    elif "EncryptedPackage".encode("utf-16-le") in data:
        raise locked("Excel")
    return calamine.CalamineWorkbook.from_filelike(io.BytesIO(data)), formats


def _rows(
    sheet: Any, formats: Formats, limits: DocumentLimits, room: int, numbers: array[int]
) -> Iterator[list[str]]:
    """Yield the rows that are not blank, and append their numbers, from 1."""
    first = sheet.start[1] if sheet.start else 0  # rows begin at the first, columns do not
    for number, values in enumerate(sheet.iter_rows()):
        layout = formats.get(number, ())
        row = [
            value
            if (kind := type(value)) is str
            else (shower and kind is float and shower(value)) or _plain(value)
            for value, shower in zip(values, chain(layout[first:], repeat(None)), strict=False)
        ]
        if not is_blank(row):
            room -= sum(map(len, row))
            if room < 0:
                raise limits.exceeded("characters", "max_characters")
            numbers.append(number + 1)
            yield row


def _whole(value: Any) -> Any:
    """Return a whole number as an int; a workbook stores all numbers as floats."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE:
        return int(value)
    return value


def _plain(value: Any) -> str:
    if type(value) is float:
        return str(_whole(value))
    if isinstance(value, datetime.datetime) and value.time() == _MIDNIGHT:
        return value.date().isoformat()
    return str(value)
