"""The compared PDF readers: each returns a text, and tables if it detects them."""

from __future__ import annotations

import importlib
import io
import itertools
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec

import pdfplumber
import pypdfium2

from corral.providers.ingestion.read.detecting import PDF
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.tables import bars, find_tables

Rows = list[list[str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A PDF's content according to one reader."""

    text: str
    tables: list[Rows]


def corral(data: bytes) -> Reading:
    """Read with Corral: text and tables."""
    text = parse(data, PDF).text
    return Reading(text, markdown_tables(text))


def plain(data: bytes) -> Reading:
    """Read PDFium's plain text, which Corral used before."""
    document = pypdfium2.PdfDocument(data)
    pages = [page.get_textpage().get_text_bounded() for page in document]
    return Reading("\n\n".join(pages).replace("\r\n", "\n"), [])


def plumber(data: bytes) -> Reading:
    """Read text and tables with pdfplumber, by word positions if there are no rules."""
    texts, tables = [], []
    with pdfplumber.open(io.BytesIO(data)) as document:
        for page in document.pages:
            texts.append(page.extract_text() or "")
            by_words = {"vertical_strategy": "text", "horizontal_strategy": "text"}
            drawn = page.extract_tables() or page.extract_tables(by_words)
            tables += [[[cell or "" for cell in row] for row in table] for table in drawn]
    return Reading("\n\n".join(texts), tables)


def mupdf(data: bytes) -> Reading:
    """Read with pymupdf4llm, without the markup that it puts into words and cells."""
    with redirect_stdout(io.StringIO()):  # it reports how it reads
        pymupdf, writer = map(importlib.import_module, ("pymupdf", "pymupdf4llm"))
        text: str = writer.to_markdown(pymupdf.open(stream=data, filetype="pdf"))
    text = text.replace("<br>", " ").replace("**", "")
    return Reading(text, markdown_tables(text))


def markdown_tables(text: str) -> list[Rows]:
    """Return the tables of a Markdown text."""
    return [
        [_cells(line) for line in [text[table.start :].split("\n", 1)[0],
                                   *text[table.body : table.end].split("\n")]]
        for table in find_tables(text)
    ]  # fmt: skip


def _cells(line: str) -> list[str]:
    places = [*bars(line, 0, len(line))]
    cells = itertools.pairwise(places)
    return [line[a + 1 : b].strip().replace("\\|", "|") for a, b in cells]


READERS: dict[str, Callable[[bytes], Reading]] = {
    "corral": corral,
    "pypdfium2 plain": plain,
    "pdfplumber": plumber,
}
OPTIONAL = "pymupdf4llm"
"""Compared if it is installed. The project does not declare it, because its license is the AGPL."""

if find_spec(OPTIONAL):
    READERS[OPTIONAL] = mupdf
