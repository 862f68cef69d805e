"""Text out of HTML, PDF and Word files, by packages of the extra `documents`.

Each is imported when the first such file arrives. Parsers of other people's formats raise anything
on a broken file, which is the sender's to mend: every failure becomes an InvalidRequest.
"""

from __future__ import annotations

import importlib
import io
import itertools
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.config import DocumentLimits
from corral.providers.ingestion import word

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""Largest Word file once unpacked; 1 MB of zeros in a zip unpacks to 1 GB."""

INSTALL = "pip install 'corral-rag[documents]'"

_BLOCKS = "./*[self::p or self::div or self::ul or self::ol or self::table or self::dt or self::dd]"
_T = TypeVar("_T")
_PDFIUM_WANTS_A_PASSWORD = 4
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How an encrypted Word file begins, and one of Word 2003 and before."""


def html_text(html: str) -> tuple[str, str | None]:
    """Return the main content of a page as Markdown, or all its text where none stands out.

    Navigation, scripts, styles, comments and hidden elements are left out. What is preformatted
    keeps its lines, as a block of code. The second is what the page says that its title is.

    Raises:
        MissingDependency: trafilatura is not installed.
        InvalidRequest: The page cannot be read.
    """
    trafilatura = _package("trafilatura", "trafilatura", "HTML")
    lxml = _package("lxml.html", "lxml", "HTML")
    return _reading("HTML", lambda: _html(trafilatura, lxml, html))


def pdf_pages(data: bytes, limits: DocumentLimits) -> list[str]:
    """Return the text of each page of a PDF; "" for scanned pages.

    One thread at a time: PDFium is not safe for several.

    Raises:
        MissingDependency: pypdfium2 is not installed.
        InvalidRequest: The file is broken or asks for a password, or has too many pages or
            characters.
    """
    pdfium = _package("pypdfium2", "pypdfium2", "PDF")
    return _reading("PDF", lambda: list(_pages(pdfium, data, limits)))


def docx_text(data: bytes, limits: DocumentLimits) -> tuple[str, tuple[str, ...]]:
    """Return the text of a Word file with its changes accepted, and what in it was not read.

    Raises:
        InvalidRequest: The file is broken or asks for a password, is larger than 256 MiB once
            unpacked, or has too many paragraphs or characters.
    """
    if data.startswith(_COMPOUND_FILE):
        raise _locked("Word", "Or it is of Word 2003 or before: save it as .docx.")
    return _reading("Word", lambda: _docx(data, limits))


def _package(module: str, distribution: str, kind: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingDependency(f"Reading {kind} files", distribution, INSTALL) from None


def _reading(kind: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (InvalidRequest, MemoryError):
        raise
    except Exception as error:  # parsers raise anything on broken files
        raise InvalidRequest(
            f"The {kind} file cannot be read ({type(error).__name__}).",
            hint="It is broken or of another kind: check that it opens elsewhere.",
            field="content",
        ) from error


def _html(trafilatura: Any, lxml: Any, html: str) -> tuple[str, str | None]:
    page = lxml.document_fromstring(html.encode(), parser=lxml.HTMLParser(encoding="utf-8"))
    title = " ".join((page.findtext(".//title") or "").split()) or None
    name = next(n for n in map("preformatted{}n".format, itertools.count()) if n not in html)
    blocks = _set_aside(lxml, page, name)
    for element in page.xpath("//dl | //dt | //dd"):  # trafilatura drops terms at times
        element.tag = "div" if element.xpath(_BLOCKS) else "p"
    marked = lxml.tostring(page, encoding="unicode")
    text = _main_text(trafilatura, marked) or _all_text(lxml, marked)
    return re.sub(f"{name}([0-9]+)x", lambda match: blocks[int(match[1])], text), title


def _set_aside(lxml: Any, page: Any, name: str) -> list[str]:
    """Put a mark in the place of each preformatted element; return them as blocks of code."""
    blocks: list[str] = []
    for element in page.xpath("//pre[not(ancestor::pre)]"):
        for line_break in element.xpath(".//br"):
            line_break.tail = "\n" + (line_break.tail or "")
        code = element.text_content().strip("\n")
        fence = max(re.findall("`{3,}", code), default="``") + "`"
        mark = lxml.Element("p")
        mark.text, mark.tail = f"{name}{len(blocks)}x", element.tail
        element.getparent().replace(element, mark)
        blocks.append(f"{fence}\n{code}\n{fence}" if code.strip() else "")
    return blocks


def _main_text(trafilatura: Any, html: str) -> str:
    return trafilatura.extract(html, output_format="markdown", include_comments=False) or ""


def _all_text(lxml: Any, html: str) -> str:
    page = lxml.document_fromstring(html.encode(), parser=lxml.HTMLParser(encoding="utf-8"))
    for element in page.xpath("//head | //script | //style | //template"):
        element.drop_tree()
    return "\n".join(text.strip() for text in page.itertext() if text.strip())


def _pages(pdfium: Any, data: bytes, limits: DocumentLimits) -> Iterator[str]:
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code == _PDFIUM_WANTS_A_PASSWORD:
            raise _locked("PDF") from None
        raise
    try:
        if len(document) > limits.max_pages:
            raise limits.exceeded("pages", "max_pages")
        characters = 0
        for page in document:
            text = page.get_textpage()
            characters += text.count_chars()
            if characters > limits.max_characters:
                raise limits.exceeded("characters", "max_characters")
            yield text.get_text_bounded()
            text.close()
            page.close()
    finally:
        document.close()


def _docx(data: bytes, limits: DocumentLimits) -> tuple[str, tuple[str, ...]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_UNPACKED_BYTES:
            raise InvalidRequest(
                f"The Word file unpacks to {unpacked} bytes.",
                hint=f"At most {MAX_UNPACKED_BYTES} are read; split it.",
                field="content",
            )
        return word.read(archive, limits)


def _locked(kind: str, more: str = "") -> InvalidRequest:
    return InvalidRequest(
        f"The {kind} file is locked with a password.",
        hint=f"Save it without one, or send its text. {more}".strip(),
        field="content",
    )
