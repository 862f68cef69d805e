"""Scanned pages and pictures are read, within bounds, and say how well."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path
from typing import Any

import docx
import pptx
import pytest
from PIL import Image, ImageDraw, ImageFont
from pypdfium2 import PdfDocument
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.base.config import RagSettings
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read.detecting import DOCX, JPEG, PDF, PNG, PPTX, TIFF, WEBP
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.read.reading import Reader

LINES = ("Hay is dry and smells of June", "Wool is sold by weight")
TEXT = "\n".join(LINES)


def picture(lines: tuple[str, ...] = LINES) -> Image.Image:
    """Return a picture of lines of text."""
    made = Image.new("RGB", (700, 60 + 60 * len(lines)), "white")
    font = ImageFont.load_default(34)
    for number, line in enumerate(lines):
        ImageDraw.Draw(made).text((40, 30 + 60 * number), line, "black", font)
    return made


def data(image: Image.Image, form: str, **options: Any) -> bytes:
    """Return a picture as a file."""
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def pdf(*pages: Image.Image | str) -> bytes:
    """Return a PDF whose pages are a picture or a text."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(350, 100))
    for page in pages:
        if isinstance(page, str):
            canvas.drawString(20, 60, page)
        else:
            canvas.drawImage(ImageReader(page), 0, 0, 350, 90)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def read(content: bytes, kind: str, **settings: Any) -> ParsedDocument:
    """Return a document as it is read with some settings."""
    return parse(content, kind, DocumentLimits(), OcrSettings(**settings))


@pytest.mark.parametrize(
    ("form", "kind"), [("PNG", PNG), ("JPEG", JPEG), ("TIFF", TIFF), ("WEBP", WEBP)]
)
def test_text_in_pictures_is_read(form: str, kind: str) -> None:
    """In each format, known by its first bytes."""
    parsed = read(data(picture(), form), "")
    assert parsed.text == TEXT
    assert parsed.metadata["recognized_pages"] == "1"
    assert parsed.metadata["recognition_confidence"] > 0.9
    assert read(data(picture(), form), kind).text == TEXT


def test_pages_of_a_tiff_are_pages() -> None:
    """A fax of two pages has two."""
    second = picture(("The second page",))
    content = data(picture(), "TIFF", save_all=True, append_images=[second])
    parsed = read(content, TIFF)
    assert parsed.page(parsed.text.index("second")) == 2
    assert parsed.metadata["recognized_pages"] == "1-2"


def test_only_pages_without_text_are_recognized() -> None:
    """The document says which ones, and the pages stay in their order."""
    parsed = read(pdf("Text of its own", picture(), "More text", picture(("Again a scan",))), PDF)
    assert parsed.text.split("\n\n") == ["Text of its own", TEXT, "More text", "Again a scan"]
    assert parsed.metadata["recognized_pages"] == "2, 4"
    assert parsed.unread == ()
    assert read(pdf("Text of its own"), PDF).metadata == {}


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_page_that_lies_on_its_side_is_turned(turn: int) -> None:
    """If this fails: pages that were fed sideways are noise."""
    assert read(data(picture().rotate(turn, expand=True), "PNG"), PNG).text == TEXT


def test_a_scan_that_is_askew_is_level() -> None:
    """Its lines are lines, and its table a table."""
    made = Image.new("RGB", (900, 400), "white")
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(30)
    table = [("Region", "Units", "Price"), ("North", "12", "2.50"), ("South", "17", "3.75")]
    for i, row in enumerate(table):
        for j, cell in enumerate(row):
            draw.rectangle(
                (60 + 250 * j, 60 + 70 * i, 310 + 250 * j, 130 + 70 * i), None, "black", 2
            )
            draw.text((80 + 250 * j, 75 + 70 * i), cell, "black", font)
    text = read(data(made.rotate(2.5, expand=True, fillcolor="white"), "PNG"), PNG).text
    assert text.split("\n") == [
        "| Region | Units | Price |", "| --- | --- | --- |", "| North | 12 | 2.50 |",
        "| South | 17 | 3.75 |",
    ]  # fmt: skip


def test_a_page_that_is_read_badly_says_so() -> None:
    """The note names it; a page with text is in none."""
    parsed = read(pdf("Text of its own", picture()), PDF, min_confidence=1)
    assert parsed.unread == ("page 2 in part (recognized with little confidence)",)


def test_pages_beyond_the_bound_are_named() -> None:
    """The others are read, and nothing is left out in silence."""
    parsed = read(pdf(picture(), picture(), "text", picture()), PDF, max_pages=1)
    assert parsed.metadata["recognized_pages"] == "1"
    assert parsed.unread == ("scanned pages 2, 4 (more than 1 pages (rag.ocr.max_pages))",)
    parsed = read(pdf(picture(), picture()), PDF, max_seconds=0.001)
    assert "rag.ocr.max_seconds" in parsed.unread[0]


def test_a_picture_of_too_many_pixels_is_refused() -> None:
    """Before it is unpacked; the error names the setting. A page is drawn smaller."""
    with pytest.raises(InvalidRequest, match="pixels") as caught:
        read(data(picture(), "PNG"), PNG, max_pixels=20_000)
    assert "rag.ocr.max_pixels" in caught.value.hint
    assert "Hay" in read(pdf(picture()), PDF, max_pixels=200_000).text


def test_recognition_can_be_switched_off() -> None:
    """A PDF of scans alone is an error, one with text names the pages that were not read."""
    for content, kind in ((data(picture(), "PNG"), PNG), (pdf(picture()), PDF)):
        with pytest.raises(InvalidRequest) as caught:
            read(content, kind, engine="none")
        assert "rag.ocr.engine" in caught.value.hint
    parsed = read(pdf("Text", picture()), PDF, engine="none")
    assert parsed.unread == ("scanned pages 2",)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails: a user with a scan does not know what to install."""
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    command = "pip install 'corral-rag[ocr]'"
    with pytest.raises(InvalidRequest) as refused:
        read(pdf(picture()), PDF, dpi=201)  # an engine is kept for each settings
    assert command in refused.value.hint
    with pytest.raises(MissingDependency) as missing:
        read(data(picture(), "PNG"), PNG, dpi=201)
    assert command in str(vars(missing.value))
    with pytest.raises(MissingDependency):
        read(pdf(picture()), PDF, engine="rapidocr")


FAKE = """#!{python}
import sys
assert sys.argv[1:] == ["stdin", "stdout", "-l", "deu+eng", "tsv"], sys.argv
assert sys.stdin.buffer.read(4) == b"\\x89PNG"
names = "level page_num block_num par_num line_num word_num left top width height conf text"
print(*names.split(), sep="\\t")
line = (4, 40, 30, 300, 30, -1, "")
hay, is_ = (5, 40, 30, 80, 30, 96.5, "Hay"), (5, 130, 32, 40, 28, 91, "is")
for level, *rest in (line, hay, is_, (5, 180, 30, 60, 30, 88, 'dry"')):
    print(level, 1, 1, 1, 1, 1, *rest, sep="\\t")
"""


def test_tesseract_reads_its_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its program; its words become lines, its confidence is kept."""
    program = tmp_path / "tesseract"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = {"engine": "tesseract", "languages": "deu+eng", "dpi": 150}
    parsed = read(data(picture(), "PNG"), PNG, **settings)
    assert parsed.text == 'Hay is dry"'
    assert 0.88 < parsed.metadata["recognition_confidence"] < 0.965
    with pytest.raises(InvalidRequest, match="tesseract cannot read"):
        read(data(picture(), "PNG"), PNG, engine="tesseract", languages="xyz", dpi=150)
    program.unlink()
    with pytest.raises(MissingDependency, match="tesseract"):
        read(data(picture(), "PNG"), PNG, engine="tesseract", dpi=151)


def office(form: str) -> bytes:
    """Return a Word or PowerPoint file with a picture."""
    content, out = io.BytesIO(data(picture(), "PNG")), io.BytesIO()
    if form == DOCX:
        document = docx.Document()
        document.add_paragraph("Above it")
        document.add_picture(content)
        document.add_paragraph("Below it")
        document.save(out)
    else:
        deck = pptx.Presentation()
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = "Above it"
        slide.shapes.add_picture(content, 0, 0)
        deck.save(out)
    return out.getvalue()


@pytest.mark.parametrize("form", [DOCX, PPTX])
def test_pictures_in_office_files_are_read_if_set(form: str) -> None:
    """In their place; else they are named as not read."""
    parsed = read(office(form), form)
    assert parsed.unread == ("1 pictures",)
    assert "Hay" not in parsed.text
    parsed = read(office(form), form, office_pictures=True)
    assert parsed.unread == ()
    text = " ".join(parsed.text.split())
    assert text.index("Above") < text.index(LINES[0]) < text.index(LINES[1])


async def test_recognition_fits_into_a_reading_process() -> None:
    """Its memory and its time are bounded there, and the bounds suffice."""
    parsed = await Reader(RagSettings()).read(pdf(picture()), PDF)
    assert parsed.text == TEXT
    assert parsed.metadata["recognized_pages"] == "1"


def test_pdfium_draws_what_is_recognized() -> None:
    """The pages of these tests have no text of their own."""
    assert not PdfDocument(pdf(picture()))[0].get_textpage().get_text_bounded()
