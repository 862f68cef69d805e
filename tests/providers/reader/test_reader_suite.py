"""The suite of readers: the built-in readers pass it, and broken readers fail it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from docx import Document
from reportlab.pdfgen.canvas import Canvas

from corral.api.errors import InvalidRequest
from corral.api.provider import Health, ReaderProvider
from corral.api.reader import Readable
from corral.api.testing import ReaderConformance, Sample
from corral.api.testing.readers import Reading
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.detecting import CSV, DOCX, HTML, MARKDOWN, PDF
from corral.providers.ingestion.read.reading import Reader


class BuiltIn(ReaderProvider):
    """The built-in readers, as a provider."""

    def __init__(self) -> None:
        super().__init__("built-in")
        self._reader = Reader(RagSettings())

    async def health(self) -> Health:
        return Health("OK")

    async def read(self, data: bytes, mime_type: str) -> Readable:
        parsed = await self._reader.read(data, mime_type)
        starts = [*parsed.page_starts, len(parsed.text)]
        pages = [parsed.text[a:b] for a, b in pairwise(starts)] or [parsed.text]
        return Readable(pages, bool(parsed.page_starts), parsed.markdown, parsed.title)


def _words(name: str) -> tuple[str, ...]:
    return tuple(f"{name}{number}" for number in range(3))


def _document() -> bytes:
    document = Document()
    for each in _words("word"):
        document.add_paragraph(each)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _pdf() -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file, invariant=True)
    for each in _words("portable"):
        canvas.drawString(72, 720, each)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


class TestBuiltIn(ReaderConformance):
    samples = (
        Sample(PDF, _pdf(), _words("portable"), 3),
        Sample(DOCX, _document(), _words("word")),
        Sample(
            HTML, b"<title>T</title><p>page0<table><tr><td>page1<td>page2</table>", _words("page")
        ),
        Sample("text/plain", b"plain0 plain1\nplain2", _words("plain")),
        Sample(CSV, b"a,b\ncell0,cell1\ncell2,x\n", _words("cell")),
        Sample(MARKDOWN, b"# Birds\n\nmark0 mark1\n\n- mark2\n", _words("mark"), title="Birds"),
    )

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        yield BuiltIn()


# --- readers that are broken in one way, and the test that must say so --------------------------


class Toy(ReaderProvider):
    """Reads UTF-8, pages apart by form feeds."""

    async def health(self) -> Health:
        return Health("OK")

    async def read(self, data: bytes, mime_type: str) -> Readable:
        return Readable(self.text(data).split("\f"), paged=True)

    def text(self, data: bytes) -> str:
        if not data.endswith(b"."):
            raise InvalidRequest("The file is damaged.")
        return data.decode().removesuffix(".")


class Reversed(Toy):
    def text(self, data: bytes) -> str:
        return "\f".join(reversed(super().text(data).split("\f")))


class OnePage(Toy):
    def text(self, data: bytes) -> str:
        return super().text(data).replace("\f", "\n")


class Builtin(Toy):
    def text(self, data: bytes) -> str:
        if not data.endswith(b"."):
            raise ValueError("truncated")
        return super().text(data)


class Shared(Toy):
    async def read(self, data: bytes, mime_type: str) -> Readable:
        self.data = data
        await asyncio.sleep(0.01)
        return Readable(self.text(self.data).split("\f"), paged=True)


class Counting(Toy):
    calls = 0

    def text(self, data: bytes) -> str:
        self.calls += 1
        return f"{super().text(data)} {self.calls}"


class Sick(Toy):
    async def health(self) -> Health:
        return Health("Error", "always")


class ToySuite(ReaderConformance):
    samples = (
        Sample("text/x-toy", b"lion\fzebra.", ("lion", "zebra"), 2),
        Sample("text/x-toy", b"maple\foak.", ("maple", "oak"), 2),
    )

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        yield Toy("toy")


def _failures(reader: ReaderProvider) -> set[str]:
    """Return the names of the standard tests that a reader fails."""
    failed = set()
    suite = ToySuite()
    with asyncio.Runner() as runner:
        for name in (name for name in dir(suite) if name.startswith("test_")):
            try:
                getattr(suite, name)(Reading(reader, runner))
            except (AssertionError, ValueError):
                failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("toy", "test"),
    [
        (Reversed, "test_the_words_of_a_file_come_in_order"),
        (OnePage, "test_pages_are_the_files_own"),
        (Builtin, "test_damaged_files_are_refused_or_read"),
        (Shared, "test_files_that_are_read_at_once_do_not_mix"),
        (Counting, "test_the_same_file_has_the_same_text"),
        (Sick, "test_health_is_an_answer"),
    ],
)
def test_the_suite_catches_broken_readers(toy: type[Toy], test: str) -> None:
    """Each defect fails the test for it, and a correct reader passes all.

    If this fails: the suite has lost a check.
    """
    assert _failures(Toy("toy")) == set()
    assert test in _failures(toy("toy"))
