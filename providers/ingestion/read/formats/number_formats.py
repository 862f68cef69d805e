"""Numbers as the cells of a workbook show them. ECMA-376, part 1, section 18.8.30 and 18.8.31."""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import NamedTuple
from xml.parsers import expat

from corral.providers.ingestion.read.formats.archive import main_part, parse_xml, relations

_BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%",
    37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)",
}  # fmt: skip
"""Formats that no file spells out; those of currencies depend on the reader's country."""

MAX_CODE_LENGTH = 255
_MAX_NUMBER = 1e15
_MAX_DECIMALS = 30
_MAX_PERCENT_SIGNS = 2
_CONTEXT = Context(prec=100)
_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|([0#?][0#?.,]*|\.[0#?]+)|(.)',
    re.DOTALL,
)
_PIECE = re.compile(r'"[^"]*"|\\.|.', re.DOTALL)
_PLAIN = set("%$€£¥+-() ")
"""Characters that a format may show without quotes; others are fields of dates and fractions."""

_BROKEN = (LookupError, ValueError, StopIteration, OSError, zlib.error, expat.ExpatError)
_MAX_COLUMNS = 1 << 14

Formats = dict[int, str]
"""A format by the cell's number: its row times `1 << 14` and its column, both from 0. A pair of
numbers would take twice the memory."""


def cell_number(row: int, column: int) -> int:
    """Return the key of a cell in `Formats`."""
    return row * _MAX_COLUMNS + column


def formats_of(archive: zipfile.ZipFile) -> dict[str, Formats]:
    """Return the number formats of the cells of each sheet that has some, by the sheet's name.

    If the styles of a workbook cannot be read, it has none.
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
        if name == "sheet":  # its own id is `sheetId`
            kind, part = parts[attributes["id"]]
            if kind == "worksheet":
                sheets[attributes["name"]] = part

    parse_xml(archive, main, start)
    return sheets


def _of_sheet(archive: zipfile.ZipFile, part: str, codes: dict[str, str]) -> Formats:
    formats: Formats = {}
    row = column = -1

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal row, column
        if name == "row":
            row, column = int(attributes.get("r", row + 2)) - 1, -1
        elif name == "c":
            column = _column(attributes["r"]) if "r" in attributes else column + 1
            if code := codes.get(attributes.get("s", "")):
                formats[cell_number(row, column)] = code

    parse_xml(archive, part, start)
    return formats


def _codes(archive: zipfile.ZipFile, part: str) -> dict[str, str]:
    """Return the number formats that show something else than the number, by number of style."""
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


def _column(place: str) -> int:
    """Return the column of a cell such as `AB7`, from 0."""
    number = 0
    for letter in place.rstrip("0123456789"):
        number = number * 26 + ord(letter.upper()) - 64
    return number - 1


def shown(value: float, code: str) -> str | None:
    """Return a number as a format shows it; None for a date, a fraction or no format."""
    sections = _sections(code)
    which = 1 if value < 0 and len(sections) > 1 else 0
    which = 2 if value == 0 and len(sections) > 2 else which
    section = sections[which]
    if section is None or abs(value) >= _MAX_NUMBER:
        return None
    digits = _digits(abs(Decimal(repr(float(value)))).scaleb(2 * section.percents), section.pattern)
    sign = "-" if value < 0 and which == 0 and digits.strip("0.,") else ""
    return f"{sign}{section.before}{digits}{section.after}".strip()


class _Section(NamedTuple):
    """A part of a format: the pattern of its digits, what surrounds it, and its percent signs."""

    before: str
    pattern: str
    after: str
    percents: int


@lru_cache(maxsize=1024)
def _sections(code: str) -> list[_Section | None]:
    """Return the parts of a format for positive and negative numbers, zero and text."""
    parts = [""]
    for piece in _PIECE.findall(code):
        parts = [*parts, ""] if piece == ";" else [*parts[:-1], parts[-1] + piece]
    return list(map(_section, parts))


def _section(text: str) -> _Section | None:
    """Return a part of a format; None if it shows no number or more than a number."""
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
