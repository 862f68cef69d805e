"""Pages of PDFs as pictures, and the areas of passages on them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reportlab.pdfgen.canvas import Canvas

from corral.api.errors import InvalidRequest
from corral.providers.base.config import RagSettings
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.pdf.pages import MAX_PIXELS, Area, areas, picture
from corral.providers.ingestion.read.reading import Reader

pytest.importorskip("pypdfium2")

SIZE = (400, 600)
LINES = [
    "The fence keeps the sheep in, and it is checked",
    "each spring before the lambs go out to the pas-",
    "ture with the ewes. The wire lasts 20 years.",
]
PASSAGE = " ".join(LINES).replace("pas- ture", "pasture")


def pdf(draw: Callable[[Canvas], Any], *, size: tuple[float, float] = SIZE) -> bytes:
    """Return a PDF that `draw` has drawn."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=size)
    draw(canvas)
    canvas.save()
    return file.getvalue()


def written(canvas: Canvas, lines: list[str], left: float, top: float) -> None:
    """Write lines of 10 points, 20 apart, from a place below the top of the page."""
    canvas.setFont("Helvetica", 10)
    for number, line in enumerate(lines):
        canvas.drawString(left, SIZE[1] - top - 20 * number, line)


def page(canvas: Canvas) -> None:
    """Draw a page with a heading, a passage and other lines around it."""
    written(canvas, ["Report of the farm", "The hay is dry and in the barn."], 40, 60)
    written(canvas, LINES, 40, 300)
    written(canvas, ["In winter they eat oats."], 40, 500)


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG whose pixels can be unpacked."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(png[at : at + 4]) for at in (16, 20))
    start = png.index(b"IDAT") + 4
    length = int.from_bytes(png[start - 8 : start - 4])
    assert len(zlib.decompress(png[start : start + length])) == height * (3 * width + 1)
    return width, height


def test_a_passage_is_marked_line_by_line() -> None:
    """An area a line, where the lines were drawn; a word divided at a line's end is found.

    If this fails: people look at a page and do not find what an answer cites.
    """
    marks, count = areas(pdf(page), 1, PASSAGE, is_whole=True)
    assert (len(marks), count) == (3, 1)
    for number, mark in enumerate(marks):
        baseline = (300 + 20 * number) / SIZE[1] * 100
        assert mark.left == pytest.approx(40 / SIZE[0] * 100, abs=1)
        assert mark.top < baseline < mark.top + mark.height
        assert mark.height < 4
    assert 45 < marks[0].width < 60


@pytest.mark.parametrize(
    "passage", ["", "...", "The dog obeys a whistle, and comes home at night."]
)
def test_what_is_not_on_the_page_has_no_areas(passage: str) -> None:
    """A text of other words, or of none, marks nothing."""
    assert areas(pdf(page), 1, passage, is_whole=True)[0] == []


def test_a_passage_that_goes_on_marks_its_part_of_each_page() -> None:
    """Of a chunk over two pages, each page shows its own lines."""

    def both(canvas: Canvas) -> None:
        page(canvas)
        canvas.showPage()
        written(canvas, ["The dog brings the sheep home in the evening."], 40, 60)

    data = pdf(both)
    over = f"{PASSAGE} The dog brings the sheep home in the evening."
    assert len(areas(data, 1, over, is_whole=False)[0]) == 3
    assert len(areas(data, 2, over, is_whole=False)[0]) == 1


def test_the_words_of_a_changed_text_are_found_around_the_change() -> None:
    """A footnote's number in the page's text, or a word that the reader dropped, changes little."""
    changed = PASSAGE.replace("checked each", "checked 7 each").replace("before the", "before")
    assert len(areas(pdf(page), 1, changed, is_whole=True)[0]) == 3


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_areas_follow_a_turned_page(turn: int) -> None:
    """On a page that is shown turned, the areas are where its picture has the words."""

    def turned(canvas: Canvas) -> None:
        canvas.setPageRotation(turn)
        written(canvas, [LINES[0]], 40, 60)

    size = SIZE if turn == 180 else SIZE[::-1]  # reportlab writes that of the turned page
    data = pdf(turned, size=size)
    [mark] = areas(data, 1, LINES[0], is_whole=True)[0]
    upright = Area(10, 8, 52, 2)
    expected = {
        90: (100 - upright.top - upright.height, upright.left),
        180: (100 - upright.left - upright.width, 100 - upright.top - upright.height),
        270: (upright.top, 100 - upright.left - upright.width),
    }[turn]
    assert (mark.left, mark.top) == pytest.approx(expected, abs=3)
    wide, high = size_of(picture(data, 1, 300))
    assert (wide > high) == (turn != 180)


@pytest.mark.parametrize(
    ("size", "width"), [((400, 600), 300), ((14_400, 14_400), 2000), ((3, 14_400), 2000)]
)
def test_a_picture_is_bounded(size: tuple[float, float], width: int) -> None:
    """Neither a width nor the pixels are exceeded, however large the page says that it is."""
    wide, high = size_of(picture(pdf(lambda canvas: canvas.showPage(), size=size), 1, width))
    assert wide <= width + 1
    assert wide * high <= MAX_PIXELS * 1.01


@pytest.mark.parametrize("number", [0, 2])
def test_a_page_that_is_not_there_is_refused(number: int) -> None:
    """The refusal says which pages there are."""
    with pytest.raises(InvalidRequest, match="from 1 to 1"):
        picture(pdf(page), number, 300)


async def test_pages_are_read_in_a_process_with_limits(tmp_path: Path) -> None:
    """The same comes from the reader's process; other files are refused, and slow ones end.

    If this fails: a hostile PDF can keep or kill the server when a person opens it.
    """
    path = tmp_path / "farm.pdf"
    path.write_bytes(pdf(page))
    reader = Reader(RagSettings())
    assert size_of(await reader.page_picture(path, 1, 300)) == (300, 450)
    assert len((await reader.page_areas(path, 1, PASSAGE, is_whole=True))[0]) == 3
    for wrong in (b"GIF89a", b"%PDF-1.7\nbroken"):
        path.write_bytes(wrong)
        with pytest.raises(InvalidRequest):
            await reader.page_picture(path, 1, 300)
    path.write_bytes(pdf(slow))
    limited = Reader(RagSettings(document_limits=DocumentLimits(max_seconds=1)))
    with pytest.raises(InvalidRequest, match="seconds to read"):
        await limited.page_picture(path, 1, 2000)


def slow(canvas: Canvas) -> None:
    """Draw a page of forms within forms, which PDFium draws 10 to the power of 8 times."""
    canvas.beginForm("f0")
    canvas.circle(100, 100, 90, fill=1)
    canvas.endForm()
    for level in range(1, 9):
        canvas.beginForm(f"f{level}")
        for _ in range(10):
            canvas.doForm(f"f{level - 1}")
        canvas.endForm()
    canvas.doForm("f8")
