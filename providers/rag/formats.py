"""Text out of HTML, PDF and Word files, by packages of the extra `documents`.

Each is imported when the first such file arrives. Parsers of other people's formats raise anything
on a broken file, which is the sender's to mend: every failure becomes an InvalidRequest.
"""

from __future__ import annotations

import importlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from corral.api.errors import InvalidRequest, MissingDependency

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""Largest Word file once unpacked; 1 MB of zeros in a zip unpacks to 1 GB."""

INSTALL = "pip install 'corral-rag[documents]'"

_T = TypeVar("_T")
_PDFIUM_LOCK = threading.Lock()  # PDFium is not safe for threads


def html_text(html: str) -> str:
    """Return the main content of a page as Markdown, or all its text where none stands out.

    Navigation, scripts, styles, comments and hidden elements are left out.

    Raises:
        MissingDependency: trafilatura is not installed.
        InvalidRequest: The page cannot be read.
    """
    trafilatura = _package("trafilatura", "trafilatura", "HTML")
    lxml = _package("lxml.html", "lxml", "HTML")
    return _reading("HTML", lambda: _main_text(trafilatura, html) or _all_text(lxml, html))


def pdf_pages(data: bytes) -> list[str]:
    """Return the text of each page of a PDF; "" for scanned pages.

    Raises:
        MissingDependency: pypdfium2 is not installed.
        InvalidRequest: The file is broken or asks for a password.
    """
    pdfium = _package("pypdfium2", "pypdfium2", "PDF")
    with _PDFIUM_LOCK:
        return _reading("PDF", lambda: list(_pages(pdfium, data)))


def docx_text(data: bytes) -> str:
    """Return the paragraphs and tables of a Word file in their order.

    Raises:
        MissingDependency: python-docx is not installed.
        InvalidRequest: The file is broken, or larger than 256 MiB once unpacked.
    """
    docx = _package("docx", "python-docx", "Word")
    return _reading("Word", lambda: "\n\n".join(_blocks(docx, data)))


def _package(module: str, distribution: str, kind: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingDependency(f"Reading {kind} files", distribution, INSTALL) from None


def _reading(kind: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except InvalidRequest:
        raise
    except Exception as error:  # parsers raise anything on broken files
        raise InvalidRequest(
            f"The {kind} file cannot be read ({type(error).__name__}).",
            hint="Check that it opens elsewhere and needs no password, or send its text.",
            field="content",
        ) from error


def _main_text(trafilatura: Any, html: str) -> str:
    return trafilatura.extract(html, output_format="markdown", include_comments=False) or ""


def _all_text(lxml: Any, html: str) -> str:
    page = lxml.document_fromstring(html.encode(), parser=lxml.HTMLParser(encoding="utf-8"))
    for element in page.xpath("//head | //script | //style | //template"):
        element.drop_tree()
    return "\n".join(text.strip() for text in page.itertext() if text.strip())


def _pages(pdfium: Any, data: bytes) -> Iterator[str]:
    document = pdfium.PdfDocument(data)
    try:
        for page in document:
            text = page.get_textpage()
            yield text.get_text_bounded()
            text.close()
            page.close()
    finally:
        document.close()


def _blocks(docx: Any, data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MAX_UNPACKED_BYTES:
        raise InvalidRequest(
            f"The Word file unpacks to {unpacked} bytes.",
            hint=f"At most {MAX_UNPACKED_BYTES} are read; split it.",
            field="content",
        )
    for block in docx.Document(io.BytesIO(data)).iter_inner_content():
        if hasattr(block, "rows"):
            rows = (" | ".join(cell.text for cell in row.cells) for row in block.rows)
            yield "\n".join(rows)
        else:
            yield block.text
