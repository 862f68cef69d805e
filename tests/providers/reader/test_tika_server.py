"""remote::tika on a real Tika server, which is fetched by `make .venv/.tika`."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docx
import pytest
from reportlab.pdfgen.canvas import Canvas

from corral.api.provider import Api, ReaderProvider
from corral.api.reader import Readable
from corral.api.testing import ReaderConformance, Sample
from corral.providers.base.config import ProviderEntry
from corral.providers.ingestion.read.detecting import DOCX, PDF, RTF
from corral.providers.stack.registry import build_provider

from ..vector_io.real_server import started
from .tika_server import MISSING, TikaServer

DOC = "application/msword"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the address of a Tika server."""
    if address := TikaServer.running():
        yield address
    elif TikaServer.found():
        with started(TikaServer) as server:
            yield server.config["url"]
    else:
        pytest.skip(MISSING)


def pdf(title: str, *pages: str) -> bytes:
    """Return a PDF with a text on each page."""
    out = io.BytesIO()
    canvas = Canvas(out)
    if title:
        canvas.setTitle(title)
    for page in pages:
        canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def rtf(text: str) -> bytes:
    """Return a text in RTF."""
    return rb"{\rtf1\ansi\deff0 {\fonttbl {\f0 Times;}}\f0 " + text.encode() + rb"\par}"


def word(title: str, *texts: str) -> bytes:
    """Return a Word file with a heading, a paragraph and a table of one row."""
    document = docx.Document()
    document.core_properties.title = title
    heading, paragraph, *cells = texts
    document.add_heading(heading, 1)
    document.add_paragraph(paragraph)
    table = document.add_table(2, len(cells))
    for number, cell in enumerate(cells):
        table.rows[0].cells[number].text = f"column {number}"
        table.rows[1].cells[number].text = cell
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


class TestTikaServer(ReaderConformance):
    samples = (
        Sample(PDF, pdf("Animals", "lion zebra", "okapi", "heron"),
               ("lion", "zebra", "okapi", "heron"), 3, "Animals"),
        Sample(DOCX, word("Trees", "maple", "birch", "oak", "elm"),
               ("maple", "birch", "oak", "elm"), title="Trees"),
        Sample(RTF, rtf("barley wheat"), ("barley", "wheat")),
    )  # fmt: skip
    url: str

    @pytest.fixture(autouse=True)
    def _server(self, url: str) -> None:
        self.url = url

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        yield reader_of(self.url)


def reader_of(url: str) -> ReaderProvider:
    """Return a reader on a server."""
    config = {"base_url": url, "mime_types": [PDF, DOCX, RTF, DOC]}
    entry = ProviderEntry(provider_id="mine", provider_type="remote::tika", config=config)
    provider = build_provider(Api.READER, entry, Path())
    assert isinstance(provider, ReaderProvider)
    return provider


def read(url: str, data: bytes, mime_type: str) -> Readable:
    """Return the answer of a reader that is closed again."""

    async def answer() -> Readable:
        reader = reader_of(url)
        try:
            return await reader.read(data, mime_type)
        finally:
            await reader.close()

    return asyncio.run(answer())


def test_headings_and_tables_are_markdown(url: str) -> None:
    """Tika's XHTML keeps the structure of a file.

    If this fails: another version of Tika writes other elements.
    """
    [text] = read(url, word("", "maple", "birch", "oak", "elm"), DOCX).pages
    assert text.split("\n\n") == [
        "# maple", "birch", "| column 0 | column 1 |\n| --- | --- |\n| oak | elm |",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "kind"), [(word("", "a", "b", "c", "d"), DOCX), (pdf("", "a"), PDF)]
)
def test_a_file_without_a_title_has_none(url: str, data: bytes, kind: str) -> None:
    """Tika writes U+0000 for a title that is missing, and reportlab "(anonymous)" or "untitled".

    If this fails: citations show a name that nobody gave the document.
    """
    assert read(url, data, kind).title is None


def test_a_format_that_corral_does_not_read_itself(url: str) -> None:
    """An archive of tar comes as the text of its files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("animals.txt")
        entry.size = len(b"lion zebra okapi")
        archive.addfile(entry, io.BytesIO(b"lion zebra okapi"))
    [text] = read(url, out.getvalue(), "application/x-tar").pages
    assert "lion zebra okapi" in text
