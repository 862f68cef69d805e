"""Convert documents to text. This module fetches nothing.

A string is always text, even if it looks like a URL: `RAGDocument` has already separated addresses
from texts. Bytes come from an uploaded file, a `data:` URI or an allowed URL (`fetching.py`), and
their type is detected (`detecting.py`). Text is UTF-8 unless its sender names another charset.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read import compression, formats
from corral.providers.ingestion.read.detecting import (
    BINARY,
    CSV,
    DOCX,
    EPUB,
    HTML,
    JSON,
    MAIL,
    MARKDOWN,
    MSG,
    NOTEBOOK,
    ODP,
    ODS,
    ODT,
    PDF,
    PICTURES,
    PPTX,
    RTF,
    SUBTITLES,
    TEXT,
    TSV,
    XLS,
    XLSX,
    ZIP,
    detected,
    unsupported,
)
from corral.providers.ingestion.read.encodings import declared_in
from corral.providers.ingestion.read.formats import (
    code,
    front_matter,
    html,
    mail,
    markup,
    notebook,
    rows,
    subtitles,
)
from corral.providers.ingestion.read.formats.common import ESCAPES, Readable
from corral.providers.ingestion.read.mime_types import (
    chosen_type,
    decode,
    decode_data_uri,
    is_textual,
    split_mime_type,
)
from corral.providers.ingestion.split.headings import Heading, markdown_headings

MAX_TITLE_LENGTH = 255
_DEFAULT_LIMITS = DocumentLimits()
_DEFAULT_OCR = OcrSettings()
_PAGE_BREAK = "\n\n"
_BLANKS = re.compile(r"\n{3,}")

# Modules in `formats`, imported at their first use: servers start sooner, and read these formats in
# processes of their own.
_OF_BYTES = {
    XLSX: "sheets", ODS: "sheets", XLS: "sheets", ODT: "opendocument", ODP: "opendocument",
    RTF: "rtf", EPUB: "book", MSG: "outlook", ZIP: "zipped",
}  # fmt: skip
_WITH_PICTURES = {
    PDF: "pdf",
    DOCX: "word",
    PPTX: "slides",
    **dict.fromkeys(PICTURES, "pdf.pictures"),
}


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document's text.

    Attributes:
        text: The text, without invisible characters and trailing white space; never blank. Unless
            `has_lines` is True, it has at most one blank line in a row.
        markdown: True if the text is Markdown, which includes converted HTML.
        title: The title that the document declares, or else its first heading of level 1.
        page_starts: Start of each page in the text, in characters, ascending; empty if pages are
            not known. A page without text starts where the next page does.
        unread: Parts that were not read, such as "2 pictures" or "comments".
        has_lines: True if the lines of the text are the lines of the document.
        metadata: Values from the front matter, and the numbers of recognized pages.
        parts: Names of the documents in a container, such as the attachments of a mail; None for
            other documents.
        numbered: What `numbers` counts: "row" of a sheet or "cell" of a notebook; "" if nothing.
        numbers: For each line of the text, the number of its row or cell, from 1; 0 for others.
    """

    text: str
    markdown: bool = False
    title: str | None = None
    page_starts: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()
    has_lines: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] | None = None
    numbered: str = ""
    numbers: tuple[int, ...] = ()

    def page(self, position: int) -> int | None:
        """Return the page of a character, from 1; None if pages are not known."""
        return bisect_right(self.page_starts, position) or None


def parse(
    content: str | bytes,
    mime_type: str | None = None,
    limits: DocumentLimits = _DEFAULT_LIMITS,
    ocr: OcrSettings = _DEFAULT_OCR,
) -> ParsedDocument:
    """Return the text of a document.

    It has no time limit and is not thread-safe, so `reading.py` runs it in other processes.

    Args:
        content: Text, or the bytes of a file.
        mime_type: The declared type, possibly with a charset; None for text, or for a type to be
            detected. A type detected from the bytes wins. A compressed file (gzip, bzip2, xz,
            Zstandard) is unpacked once, and the type is its content's. `text/*`, XML, YAML and
            similar types are taken unchanged; HTML, mail, tables, source code, PDF, EPUB and Office
            files are converted.
        limits: Limits of pages, paragraphs and characters.
        ocr: Settings for recognizing text in scanned pages and pictures.

    Raises:
        InvalidRequest: The type is unsupported (`field` is then "mime_type"), a binary file came as
            text, the bytes are not valid in their charset, or the file is broken, exceeds a limit,
            or has no text.
        MissingDependency: The package that reads this type is not installed.
    """
    named, charset = split_mime_type(mime_type)
    if isinstance(content, bytes):
        if compression.is_compressed(content):
            content = compression.unpacked(content)
            named = "" if named in compression.MIME_TYPES else named
        kind = detected(content, named, charset)
        if kind in _OF_BYTES:
            return document_of(_reader(_OF_BYTES[kind])(content, limits), limits)
        if kind in _WITH_PICTURES:
            return document_of(_reader(_WITH_PICTURES[kind])(content, limits, ocr), limits)
    else:
        kind = named or TEXT
        if kind in BINARY:
            raise _text_for(kind)
    if kind == MAIL:
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        return document_of(mail.read(data), limits)
    if not is_textual(kind):
        raise unsupported(f"The MIME type {kind!r} is not supported")
    if isinstance(content, bytes):
        content = decode(content, charset or _declared(content, kind))
    return _textual(content, kind, limits)


def _declared(data: bytes, kind: str) -> str | None:
    """Return the charset that a page or XML names, unless its bytes are UTF-8."""
    declared = declared_in(data, kind)
    if declared:
        with suppress(UnicodeDecodeError):
            data.decode()
            return None
    return declared


def parse_data_uri(
    uri: str, mime_type: str | None, limits: DocumentLimits, ocr: OcrSettings = _DEFAULT_OCR
) -> ParsedDocument:
    """Return the text of the document in a `data:` URI, as `parse` does.

    Args:
        uri: The `data:` URI.
        mime_type: The type that the sender declares; it wins over the type in the URI.
        limits: As for `parse`.
        ocr: As for `parse`.

    Raises:
        InvalidRequest: The URI is malformed, or see `parse`.
        MissingDependency: The package that reads this type is not installed.
    """
    data, found = decode_data_uri(uri)
    return parse(data, chosen_type(mime_type, found), limits, ocr)


def parse_file(
    path: str, mime_type: str | None, limits: DocumentLimits, ocr: OcrSettings = _DEFAULT_OCR
) -> ParsedDocument:
    """Return the text of a file on disk, as `parse` does; its name is ignored.

    Raises:
        InvalidRequest: The file cannot be read from disk, or see `parse`.
        MissingDependency: The package that reads this type is not installed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"The file cannot be read: {error.strerror}.") from None
    return parse(data, mime_type, limits, ocr)


def _reader(name: str) -> Callable[..., Readable]:
    """Return the reader of a format."""
    read: Callable[..., Readable] = import_module(f"{formats.__name__}.{name}").read
    return read


def _textual(text: str, kind: str, limits: DocumentLimits) -> ParsedDocument:
    if kind == HTML:
        return document_of(html.read(text), limits)
    if kind == NOTEBOOK:
        return document_of(notebook.read(text), limits)
    if kind in {CSV, TSV}:
        return document_of(rows.read_csv(_trimmed(text), limits), limits)
    text = _checked(_trimmed(rows.read_json(text) if kind == JSON else text), limits)
    if kind in SUBTITLES:
        words, times = subtitles.read(text)
        return ParsedDocument(_checked(words, limits), headings=times)
    return _lined(text, kind)


def _lined(text: str, kind: str) -> ParsedDocument:
    """Return a document with its text unchanged, and with its headings."""
    if kind in code.LANGUAGES:
        return ParsedDocument(text, headings=code.symbols(text, kind), has_lines=True)
    if kind != MARKDOWN:
        titles = markup.headings(text, kind)
        return ParsedDocument(text, title=_title(None, titles), headings=titles, has_lines=True)
    headings, front = tuple(markdown_headings(text)), front_matter.read(text)
    title = _title(str(front.pop("title", "")), headings)
    return ParsedDocument(text, True, title, (), (), headings, True, front)


def document_of(read: Readable, limits: DocumentLimits) -> ParsedDocument:
    """Return the document for the result of a format's reader.

    Raises:
        InvalidRequest: The document has too many characters, or no text.
    """
    parts = [*map(_tidy, read.pages)]
    text = _checked(_PAGE_BREAK.join(filter(None, parts)), limits)
    headings = tuple(markdown_headings(text)) if read.markdown else ()
    pages = tuple(_starts(parts)) if read.paged else ()
    title = _title(read.title, headings)
    numbers = _cell_numbers(parts) if read.are_cells else read.rows
    if len(numbers) != text.count("\n") + 1:
        numbers = ()  # a line of invisible characters is left out of the text
    return ParsedDocument(
        text,
        read.markdown,
        title,
        pages,
        read.unread,
        headings,
        metadata=dict(read.metadata),
        parts=read.parts,
        numbered="" if not numbers else "cell" if read.are_cells else "row",
        numbers=tuple(numbers),
    )


def _cell_numbers(cells: Sequence[str]) -> Sequence[int]:
    """Return the number of the cell of each line; 0 for the blank line between two cells."""
    numbers = array("L")
    for number, cell in enumerate(cells, 1):
        if cell:
            numbers.extend([0] if numbers else [])
            numbers.extend([number] * (cell.count("\n") + 1))
    return numbers


def _title(said: str | None, headings: Sequence[Heading]) -> str | None:
    """Return the declared title of a document, or else its first heading of level 1."""
    first = next((heading.text for heading in headings if heading.level == 1), None)
    return clean_text(said)[:MAX_TITLE_LENGTH] if said else first


def _checked(text: str, limits: DocumentLimits) -> str:
    if len(text) > limits.max_characters:
        raise limits.exceeded("characters", "max_characters")
    if not text.strip():
        raise InvalidRequest(
            "The document has no text.",
            hint="If it holds pictures of text, see rag.ocr.",
            field="content",
        )
    return text


def _text_for(kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"The content is text, but the MIME type says {kind!r}.",
        hint=f'Send the file as {{"uri": "data:{kind};base64,..."}}, or its text as text/plain.',
        field="mime_type",
    )


def _starts(pages: Sequence[str]) -> Iterator[int]:
    """Yield the start of each page in the joined text."""
    length = 0
    for page in pages:
        yield length
        if page:
            length += len(page) + len(_PAGE_BREAK)


def _tidy(text: str) -> str:
    return _BLANKS.sub("\n\n", _trimmed(text)).strip("\n")


def _trimmed(text: str) -> str:
    """Return the same lines without colors, invisible characters and trailing white space."""
    text = ESCAPES.sub("", text) if "\x1b" in text else text
    return "\n".join(map(str.rstrip, clean_text(text).split("\n"))).rstrip("\n")
