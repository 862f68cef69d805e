"""A value of a workbook reads as its cell shows it."""

from __future__ import annotations

import datetime
import io
import random
from decimal import ROUND_HALF_UP, Decimal

import openpyxl
import pytest

from corral.providers.ingestion.read.detecting import XLSX
from corral.providers.ingestion.read.formats.number_formats import shown
from corral.providers.ingestion.read.parsing import parse

from .test_hostile_files import repacked

ACCOUNTING = '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)'


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (0.07000000000000001, "0%", "7%"), (0.19, "0.0%", "19.0%"), (1.005, "0.00", "1.01"),
        (1234.5, "#,##0.00", "1,234.50"), (1234.5, '"$"#,##0.00', "$1,234.50"),
        (1234.5, "#,##0.00\\ [$€-407]", "1,234.50 €"), (-5, "#,##0", "-5"), (5, "[Red]0.0", "5.0"),
        (-5, "#,##0;(#,##0)", "(5)"), (5, "000", "005"), (1_500_000, '0.0,,"M"', "1.5M"),
        (2.5, "0.0#", "2.5"), (2, "0.##", "2"), (-0.001, "0.00", "0.00"), (3, '0 "kg"', "3 kg"),
        (1234.5, ACCOUNTING, "$1,234.50"), (0, ACCOUNTING, "$-"), (7, '#,##0 "a;b"', "7 a;b"),
    ],
)  # fmt: skip
def test_a_number_reads_as_it_is_shown(value: float, code: str, text: str) -> None:
    """Percent, decimals, thousands, currencies, units, signs and scales; computed by hand.

    If this fails: a rate of 7% is stored as 0.07, and is not found.
    """
    assert shown(value, code) == text


@pytest.mark.parametrize(
    "code",
    ["", "General", "@", "yyyy-mm-dd", "[h]:mm", "# ?/?", "0.00E+00", ";;;", '"unclosed', "0%%%",
     "0 0"],
)  # fmt: skip
def test_other_formats_leave_the_number(code: str) -> None:
    """Dates, fractions, powers of ten and broken formats."""
    assert shown(5, code) is None
    assert shown(1e300, "0") is None


def test_long_formats_end() -> None:
    """Of 30 decimals at most, whatever the format asks for."""
    assert shown(5, "0." + "0" * 250) == f"5.{'0' * 30}"
    assert shown(5, "0" + "," * 250) == "0"
    assert shown(5, '"' * 255) is None


def workbook() -> bytes:
    """Return a workbook whose first cell is C3, with formats."""
    book = openpyxl.Workbook()
    first, second = book.active, book.create_sheet("Prices")
    assert first is not None
    for row, (kind, rate, code) in enumerate(
        [("Flour", 0.07, "0%"), ("Bran", 0.19, "0.0%"), ("Oats", 0.5, "General")], 3
    ):
        first.cell(row, 3, kind)
        first.cell(row, 4, rate).number_format = code
        first.cell(row, 5, datetime.date(2026, 1, row)).number_format = "yyyy-mm-dd"
    second["A1"], second["B1"], second["A2"] = "Kind", "Price", "Flour"
    second["B2"] = 1234.5
    second["B2"].number_format = '#,##0.00 "EUR"'
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def test_cells_of_a_workbook_read_as_they_are_shown() -> None:
    """Each by its own format, on each sheet, where the first cell is not A1.

    If this fails: the format of one cell is applied to another.
    """
    assert parse(workbook(), XLSX).text.splitlines() == [
        "## Sheet", "", "| Flour | 7% | 2026-01-03 |", "| --- | --- | --- |",
        "| Bran | 19.0% | 2026-01-04 |", "| Oats | 0.5 | 2026-01-05 |", "",
        "## Prices", "", "| Kind | Price |", "| --- | --- |", "| Flour | 1,234.50 EUR |",
    ]  # fmt: skip


@pytest.mark.parametrize("place", [b"", b' ph="1"', b' r="B2" ph="1"', b'\n\tr="B2"\n\t'])
def test_cells_without_names_are_in_order(place: bytes) -> None:
    """The places of rows and cells may be left out of the file, or other attributes given."""
    bare = repacked(
        workbook(),
        lambda name, data: data.replace(b' r="B2"', place) if "sheet2" in name else data,
    )
    assert "1,234.50 EUR" in parse(bare, XLSX).text


def test_broken_formats_lose_no_value() -> None:
    """If styles cannot be read, the numbers come without them.

    If this fails: a workbook that was read before is refused.
    """
    broken = repacked(
        workbook(),
        lambda name, data: data.replace(b"formatCode=", b"x=") if "styles" in name else data,
    )
    assert "| Flour | 0.07 |" in parse(broken, XLSX).text


@pytest.mark.parametrize(
    ("code", "places", "factor"), [("0.00", 2, 1), ("0.0%", 1, 100), ("0", 0, 1)]
)
def test_numbers_are_rounded_as_written(code: str, places: int, factor: int) -> None:
    """Half up, on the digits that the number is written with, also near the middle.

    If this fails: the quick way to format a float gives another digit than the exact one.
    """
    chosen = random.Random(7)
    numbers = [round(chosen.uniform(-3000, 3000), chosen.randint(0, 9)) for _ in range(3000)]
    for number in [*numbers, 0.0, 1.005, 2.675, -0.005, 0.5, 1.5, 1e9 + 0.5, -0.004]:
        exact = (Decimal(repr(number)) * factor).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        text = f"{abs(exact) if exact == 0 else exact:f}{'%' * (factor > 1)}"
        assert shown(number, code) == text, number
