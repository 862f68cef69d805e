"""Documents with known contents are read as well as the issue's bounds ask, on a seeded part."""

from __future__ import annotations

import random

import pytest

from lab.documents import fpdf2_pdfs, measures, reportlab_pdfs
from lab.documents.__main__ import layouts, scan_errors
from lab.documents.content import Grid
from lab.documents.scans import scan


def test_layouts_are_read_within_the_bounds() -> None:
    """Cells of ruled tables 95 % right, of bare ones 80 %; columns in order; no running lines.

    Plain text knows no table. If this fails: `python -m lab.documents layouts --details` names the
    kind of PDF.
    """
    pdfs = [*reportlab_pdfs.pdfs(11)[3:], *fpdf2_pdfs.pdfs(61)[4:]]
    figures = layouts(pdfs)
    assert figures["corral"]["ruled cells"] >= 0.95
    assert figures["corral"]["unruled cells"] >= 0.8
    assert figures["corral"]["order"] >= 0.98
    assert figures["corral"]["running lines dropped"] == 1
    assert figures["corral"]["whole words"] == 1
    assert figures["pypdfium2 plain"]["ruled cells"] == 0
    assert figures["pypdfium2 plain"]["order"] < figures["corral"]["order"]


@pytest.mark.parametrize("dpi", [150, 300])
def test_scans_are_read_within_the_bounds(dpi: int) -> None:
    """Fewer than 2 % of the letters are wrong at 300 dots per inch."""
    ((_, error, _),) = scan_errors([scan(random.Random(dpi), dpi, lines=6)])
    assert error < (0.02 if dpi == 300 else 0.05)


def test_a_cell_in_the_wrong_column_is_wrong() -> None:
    """If this fails: the figures say nothing."""
    grid = Grid([["Crop", "Ash", "Sugar"], ["Rye", "1", "2"]], True)
    assert measures.cells(grid, [[["Crop", "Ash", "Sugar"], ["Rye", "1", "2"]]]) == (3, 3)
    assert measures.cells(grid, [[["Crop", "Ash", "Sugar"], ["Rye", "2", "1"]]]) == (1, 3)
    assert measures.cells(grid, []) == (0, 3)
