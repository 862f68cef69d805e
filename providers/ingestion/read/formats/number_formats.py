"""Format numbers as workbook cells show them (ECMA-376, part 1, sections 18.8.30 and 18.8.31)."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from xml.parsers import expat

from corral.providers.ingestion.read.formats.archive import main_part, parse_xml, relations

_BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%",
    37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)",
}  # fmt: skip
"""Built-in formats that files do not define. Currencies are missing: they vary by locale."""

MAX_CODE_LENGTH = 255
_MAX_NUMBER = 1e15
_MAX_DECIMALS = 30
_MAX_PERCENT_SIGNS = 2
_CONTEXT = Context(prec=100)
_MAX_QUICK = 1e9
_BELOW_HALF, _ABOVE_HALF = 0.5 - 1e-5, 0.5 + 1e-5
_SIMPLE = re.compile(r"(0|#,##0|#+0)(?:\.(0{1,9}))?")
"""Matches patterns without optional decimals and without scaling by thousands."""
_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|([0#?][0#?.,]*|\.[0#?]+)|(.)',
    re.DOTALL,
)
_PIECE = re.compile(r'"[^"]*"|\\.|.', re.DOTALL)
_PLAIN = set("%$€£¥+-() ")
"""Characters that a format may contain without quotes.

Other characters are fields of dates or fractions."""

_MAX_COLUMNS = 1 << 14
_BROKEN = (LookupError, ValueError, StopIteration, OSError, zlib.error, expat.ExpatError)
_MAX_ROW_BYTES = 1 << 22
_PIECE_BYTES = 1 << 20
_ROW = re.compile(rb"<(?:\w++:)?row(?=[\s/>])")
_ROW_NUMBER = re.compile(rb'(?:\s++(?:r="(\d{1,7}+)"|[\w:]++="[^"]*+"))*+')
_CELL = re.compile(
    rb'<(?:\w++:)?c(?=[\s/>])(?:\s++r="([A-Za-z]{1,3}+)\d++")?+'
    rb'(?:\s++(?!s=)[\w:]++="[^"]*+")*+(?:\s++s="(\d++)")?+'
)
"""Matches the tag of a cell, with its column and style.

An XML parser would take longer than reading the rest of the workbook."""

_STYLE = b's="'
_STYLED_CELL = re.compile(rb'<c r="([A-Z]++)\d++"(?: t="\w++")?+ s="(\d++)"')
"""The tag of a cell with a style, as almost every program writes it; found in a third of the time.
"""

Shower = Callable[[float], str | None]
"""Formats a number; returns None for a date, a fraction or an unknown format."""

Formats = dict[int, Sequence[Shower | None]]
"""The number formats of cells, by row from 0 and then in the order of columns.

Rows with equal formats share one sequence."""


def formats_of(archive: zipfile.ZipFile) -> dict[str, Formats]:
    """Return the number formats of all sheets, by name of the sheet.

    If the styles of the workbook cannot be read, the result is empty.
    """
    with suppress(*_BROKEN):
        main = main_part(archive)
        parts = relations(archive, main)
        styles = next(name for kind, name in parts.values() if kind == "styles")
        codes = _codes(archive, styles)
        sheets = _sheets(archive, main, parts) if codes else {}
        return {name: _of_sheet(archive, part, codes) for name, part in sheets.items()}
    return {}


def _sheets(
    archive: zipfile.ZipFile, main: str, parts: dict[str, tuple[str, str]]
) -> dict[str, str]:
    sheets: dict[str, str] = {}

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "sheet":  # Here `id` is the relationship; the sheet's own id is `sheetId`.
            kind, part = parts[attributes["id"]]
            if kind == "worksheet":
                sheets[attributes["name"]] = part

    parse_xml(archive, main, start)
    return sheets


def _of_sheet(archive: zipfile.ZipFile, part: str, codes: dict[str, str]) -> Formats:
    formats: Formats = {}
    layouts: dict[tuple[Any, ...], Sequence[Shower | None]] = {}
    number = -1
    for row in _row_tags(archive, part):
        number += 1
        if not row.startswith(b' r="%d"' % (number + 1)):
            given = _ROW_NUMBER.match(row)
            number = int(given[1]) - 1 if given and given[1] else number
        cells = tuple(_STYLED_CELL.findall(row))
        if len(cells) != row.count(_STYLE, row.find(b">")):
            cells = tuple(_CELL.findall(row))
        layout = layouts.get(cells)
        if layout is None:
            layout = layouts[cells] = _layout(cells, codes)
        if layout:
            formats[number] = layout
    return formats


def _row_tags(archive: zipfile.ZipFile, part: str) -> Iterator[bytes]:
    """Yield the XML of each row of a sheet, without the leading `<row`."""
    rest, tag = b"", b""
    with archive.open(part) as file:
        for piece in iter(lambda: file.read(_PIECE_BYTES), b""):
            rest += piece
            if not tag and (first := _ROW.search(rest)):
                tag, rest = first[0], rest[first.end() :]
            if tag:
                *rows, rest = rest.split(tag)
                yield from rows
            if len(rest) > _MAX_ROW_BYTES:
                raise ValueError("a row of a sheet is too long")
    yield rest


def _layout(cells: Sequence[tuple[bytes, bytes]], codes: dict[str, str]) -> Sequence[Shower | None]:
    """Return the functions that format the numbers of a row, in the order of columns."""
    layout: dict[int, Shower] = {}
    column = -1
    for place, style in cells:
        column = min(_column(place), _MAX_COLUMNS) if place else column + 1
        if code := codes.get(style.decode()):
            layout[column] = shower(code)
    return [layout.get(each) for each in range(max(layout, default=-1) + 1)]


def _codes(archive: zipfile.ZipFile, part: str) -> dict[str, str]:
    """Return the number formats that change how a number is shown, by number of the style."""
    named = {str(number): code for number, code in _BUILT_IN.items()}
    codes: dict[str, str] = {}
    path: list[str] = []
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        path.append(name)
        if path[-2:] == ["numFmts", "numFmt"]:
            named[attributes["numFmtId"]] = attributes["formatCode"][:MAX_CODE_LENGTH]
        elif path[-2:] == ["cellXfs", "xf"]:
            code = named.get(attributes.get("numFmtId", ""), "")
            if shown(1234.5, code) is not None:
                codes[str(count)] = code
            count += 1

    def end(name: str) -> None:
        path.pop()

    parse_xml(archive, part, start, end)
    return codes


def _column(letters: bytes) -> int:
    """Return the column, from 0, for the letters of a cell reference such as `AB7`."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number - 1


def shown(value: float, code: str) -> str | None:
    """Format a number; return None for a date, a fraction or an unknown format."""
    return shower(code)(value)


@lru_cache(maxsize=1024)
def shower(code: str) -> Shower:
    """Return a function that formats numbers.

    Formatting a float takes a fifth of the time of a decimal, but may round the wrong way if the
    number is near the middle between two results.
    """
    sections = _sections(code)
    first = sections[0]
    simple = first and _SIMPLE.fullmatch(first.pattern)

    def exact(value: float) -> str | None:
        which = 1 if value < 0 and len(sections) > 1 else 0
        which = 2 if value == 0 and len(sections) > 2 else which
        return _exact(value, sections[which], "-" if value < 0 and which == 0 else "")

    if first is None or not simple:
        return exact
    decimals = len(simple[2] or "")
    factor = 100.0**first.percents
    last_place = factor * 10.0**decimals
    text = _text(first, decimals, has_thousands="," in simple[1])
    zero = exact(0.0)
    has_one = len(sections) == 1

    def show(value: float) -> str | None:
        scaled = value * last_place
        if 0.5 < scaled < _MAX_QUICK and not _BELOW_HALF < scaled % 1 < _ABOVE_HALF:
            return text(value * factor)
        if has_one and -_MAX_QUICK < scaled < -0.5 and not _BELOW_HALF < scaled % 1 < _ABOVE_HALF:
            return f"-{text(-value * factor)}"
        return exact(value) if value else zero

    return show


def _text(section: _Section, decimals: int, *, has_thousands: bool) -> Callable[[float], str]:
    before, after = section.before.lstrip(), section.after.rstrip()
    if has_thousands:
        before, after = (each.replace("{", "{{").replace("}", "}}") for each in (before, after))
        return f"{before}{{:,.{decimals}f}}{after}".format
    before, after = before.replace("%", "%%"), after.replace("%", "%%")
    return f"{before}%.{decimals}f{after}".__mod__  # This is the fastest way.


def _exact(value: float, section: _Section | None, sign: str) -> str | None:
    if section is None or abs(value) >= _MAX_NUMBER:
        return None
    digits = _digits(abs(Decimal(repr(float(value)))).scaleb(2 * section.percents), section.pattern)
    sign = sign if digits.strip("0.,") else ""
    return f"{sign}{section.before}{digits}{section.after}".strip()


class _Section(NamedTuple):
    """A section of a format: the text before its digits, their pattern, the text after them.

    Attributes:
        percents: Number of percent signs.
    """

    before: str
    pattern: str
    after: str
    percents: int


@lru_cache(maxsize=1024)
def _sections(code: str) -> list[_Section | None]:
    """Return the sections of a format: for positive numbers, negative numbers, zero and text."""
    parts = [""]
    for piece in _PIECE.findall(code):
        parts = [*parts, ""] if piece == ";" else [*parts[:-1], parts[-1] + piece]
    return list(map(_section, parts))


def _section(text: str) -> _Section | None:
    """Parse a section of a format; return None unless it shows exactly one number."""
    pattern, before, after = "", "", ""
    for quoted, escaped, currency, digits, other in _TOKEN.findall(text):
        if (digits and pattern) or (other and other not in _PLAIN):
            return None
        pattern = pattern or digits
        literal = quoted or escaped or currency or other
        before, after = (before, after + literal) if pattern else (before + literal, after)
    percents = (before + after).count("%")
    is_number = pattern and percents <= _MAX_PERCENT_SIGNS
    return _Section(before, pattern, after, percents) if is_number else None


def _digits(number: Decimal, pattern: str) -> str:
    whole, _, decimals = pattern.partition(".")
    thousands = len(pattern) - len(pattern.rstrip(","))
    decimals = decimals.replace(",", "")[:_MAX_DECIMALS]
    rounded = (number / 1000**thousands).quantize(
        Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP, _CONTEXT
    )
    integer, _, fraction = f"{rounded:f}".partition(".")
    grouped = f"{int(integer):,}" if "," in whole.rstrip(",") else integer
    integer = (grouped if int(integer) else "").rjust(whole.count("0"), "0")
    optional = len(decimals) - len(decimals.rstrip("#?"))
    places = fraction[: len(fraction) - optional] + fraction[len(fraction) - optional :].rstrip("0")
    return f"{integer}.{places}" if places else integer
