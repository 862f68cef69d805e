"""Documents to text: by MIME type, and nothing is fetched here.

A string is text, even one that looks like a URL: `RAGDocument` has told addresses from texts. Bytes
come from a `data:` URI or from an allowed URL (`fetching.py`). All text is UTF-8, or in the charset
that its sender names.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes, urlsplit

from corral.api.errors import InvalidRequest
from corral.providers.config import DocumentLimits
from corral.providers.ingestion.formats import docx_text, html_text, pdf_pages
from corral.providers.ingestion.headings import Heading, markdown_headings
from corral.providers.ranking.text import clean_text

MARKDOWN = "text/markdown"
HTML = "text/html"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

SUFFIXES: dict[str, str] = {
    ".txt": "text/plain", ".text": "text/plain", ".log": "text/plain", ".rst": "text/x-rst",
    ".md": MARKDOWN, ".markdown": MARKDOWN, ".html": HTML, ".htm": HTML, ".pdf": PDF, ".docx": DOCX,
    ".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json",
    ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
}  # fmt: skip
"""File name suffix -> MIME type, for files and URLs."""

MAX_TITLE_LENGTH = 255
_DEFAULT_LIMITS = DocumentLimits()

_PAGE_BREAK = "\n\n"
_ALIASES = {"text/x-markdown": MARKDOWN, "application/xhtml+xml": HTML}
_TEXT_TYPES = frozenset(
    f"application/{name}"
    for name in ("json", "jsonl", "x-ndjson", "xml", "yaml", "x-yaml", "toml", "javascript", "sql")
)
_VAGUE = frozenset({"", "text/plain", "application/octet-stream"})
_BINARY = (PDF, DOCX)
# Those in use; Python knows others that do not decode text, or decode it very slowly.
_CHARSETS = frozenset(
    codecs.lookup(name).name
    for name in (
        "utf-8", "us-ascii", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-2",
        "iso-8859-15", "windows-1250", "windows-1251", "windows-1252", "koi8-r", "shift_jis",
        "euc-jp", "euc-kr", "gbk", "gb18030", "big5",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document's text.

    Attributes:
        text: Without invisible characters and white space at line ends; never blank. Where its
            lines are not the document's, at most one blank line in a row.
        markdown: Whether it is Markdown (as HTML becomes, too).
        title: Its first heading of level 1, where it is Markdown and has one; else what an HTML
            page says that its title is.
        page_starts: Where each page begins in the text, in characters, never decreasing; empty
            where pages are not known. A page without text begins where the next one does.
        unread: What the document holds that was not read: "2 pictures", "comments".
        headings: In their order.
        has_lines: Whether the lines of the text are those of the document.
    """

    text: str
    markdown: bool = False
    title: str | None = None
    page_starts: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()
    has_lines: bool = False

    def page(self, position: int) -> int | None:
        """Return the page, from 1, that a character is on; None where pages are not known."""
        return bisect_right(self.page_starts, position) or None


def parse(
    content: str | bytes, mime_type: str | None = None, limits: DocumentLimits = _DEFAULT_LIMITS
) -> ParsedDocument:
    """Return the text of a document.

    Not bounded in time, and not safe for several threads: `reading.py` runs it in processes.

    Args:
        content: Text, or the bytes of a file.
        mime_type: What it is, perhaps with a charset; None means `text/plain`. `text/*`, JSON, XML,
            YAML and the like are taken as they are, HTML, PDF and Word are read.
        limits: How many pages, paragraphs and characters it may have.

    Raises:
        InvalidRequest: The type is unsupported, a PDF or Word file came as text, the bytes are not
            in their charset, the file is broken, goes beyond a limit, or holds no text.
        MissingDependency: The package that reads this type is not installed.
    """
    kind, charset = split_mime_type(mime_type)
    kind = kind or "text/plain"
    starts: list[int] = []
    unread: tuple[str, ...] = ()
    named: str | None = None
    if kind == PDF:
        text, starts = _paged(pdf_pages(_binary(content, kind), limits))
    elif kind == DOCX:
        text, unread = docx_text(_binary(content, kind), limits)
        text = _tidy(text)
    elif _is_textual(kind):
        text = content if isinstance(content, str) else decode(content, charset)
        if kind == HTML:
            text, named = html_text(text)
        text = _tidy(text) if kind == HTML else _trimmed(text)
    else:
        known = ", ".join(["text/*", "application/json", *_BINARY])
        raise InvalidRequest(
            f"The MIME type {kind!r} is not supported.",
            hint=f"Supported: {known}. Or send the text itself.",
            field="mime_type",
        )
    if len(text) > limits.max_characters:
        raise limits.exceeded("characters", "max_characters")
    if not text.strip():
        raise InvalidRequest(
            "The document has no text.",
            hint="Scanned pages need text recognition first.",
            field="content",
        )
    markdown = kind in {MARKDOWN, HTML}
    headings = tuple(markdown_headings(text)) if markdown else ()
    title = next((each.text for each in headings if each.level == 1), None)
    title = title or (clean_text(named)[:MAX_TITLE_LENGTH] if named else None)
    has_lines = _is_textual(kind) and kind != HTML
    return ParsedDocument(text, markdown, title, tuple(starts), unread, headings, has_lines)


def parse_data_uri(uri: str, mime_type: str | None, limits: DocumentLimits) -> ParsedDocument:
    """Return the text of the document in a `data:` URI, as `parse` does.

    Args:
        uri: It.
        mime_type: What its sender says that it is; this and not the URI decides.
        limits: As `parse` has them.

    Raises:
        InvalidRequest: The URI is malformed, or as `parse` says.
        MissingDependency: The package that reads this type is not installed.
    """
    data, found = decode_data_uri(uri)
    return parse(data, chosen_type(mime_type, found), limits)


def decode_data_uri(uri: str) -> tuple[bytes, str]:
    """Return the bytes of a `data:` URI and its MIME type, `text/plain` by default (RFC 2397).

    Raises:
        InvalidRequest: It is malformed.
    """
    head, comma, body = uri.partition(",")
    kind, *parameters = head[len("data:") :].split(";")
    raw = unquote_to_bytes(body)
    encoded = bool(parameters) and parameters[-1].strip().lower() == "base64"
    try:
        data = base64.b64decode(raw, validate=True) if encoded else raw
    except binascii.Error:
        comma = ""
    if not comma:
        raise InvalidRequest(
            "The data: URI is malformed.",
            hint="Its form is data:MIME/TYPE;base64,DATA.",
            field="content.uri",
        )
    parameters = parameters[:-1] if encoded else parameters
    return data, ";".join([kind or "text/plain", *parameters])


def is_plain_text(mime_type: str | None) -> bool:
    """Return True if a type is taken as it is: what holds it needs no package to be read."""
    kind = split_mime_type(mime_type)[0] or "text/plain"
    return kind != HTML and _is_textual(kind)


def split_mime_type(mime_type: str | None) -> tuple[str, str | None]:
    """Return a MIME type in its one form, "" for None, and the charset that it names, or None."""
    kind, *parameters = (mime_type or "").lower().split(";")
    kind = kind.strip()
    named = (parameter.partition("=") for parameter in parameters)
    charsets = [value.strip().strip("\"'") for name, _, value in named if name.strip() == "charset"]
    return _ALIASES.get(kind, kind), charsets[0] if charsets else None


def served_type(url: str, content_type: str | None) -> str:
    """Return the MIME type of what a URL answered: by its header, or its suffix if that is vague.

    Many servers send Markdown as `text/plain` and anything as `application/octet-stream`.
    """
    kind, charset = split_mime_type(content_type)
    by_suffix = SUFFIXES.get(PurePosixPath(urlsplit(url).path).suffix.lower())
    if kind in _VAGUE and by_suffix:
        return f"{by_suffix};charset={charset}" if charset else by_suffix
    return content_type or "text/plain"


def chosen_type(given: str | None, found: str | None) -> str | None:
    """Return the MIME type that a document's sender gives, else the one found with its bytes.

    The charset is the sender's, too, or else the one that was found.
    """
    _, charset = split_mime_type(found)
    if not given or not charset or split_mime_type(given)[1]:
        return given or found
    return f"{given};charset={charset}"


def decode(data: bytes, charset: str | None = None) -> str:
    """Return the text of bytes, without a byte order mark.

    Args:
        data: Encoded text.
        charset: Its name; UTF-8 where absent.

    Raises:
        InvalidRequest: The charset is unknown, or the bytes are not in it.
    """
    try:
        codec = codecs.lookup(charset or "utf-8").name
        if codec not in _CHARSETS:
            raise LookupError(codec)
        return data.decode(codec).removeprefix("\ufeff")
    except (LookupError, ValueError):
        raise InvalidRequest(
            f"The text is not in {charset or 'UTF-8'}, or that charset is not supported.",
            hint="Send UTF-8, or name the charset: mime_type 'text/plain; charset=windows-1252'.",
            field="content",
        ) from None


def _is_textual(kind: str) -> bool:
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def _binary(content: str | bytes, kind: str) -> bytes:
    if isinstance(content, bytes):
        return content
    raise InvalidRequest(
        f"The content is text, but the MIME type says {kind!r}.",
        hint=f'Send the file as {{"uri": "data:{kind};base64,..."}}, or its text as text/plain.',
        field="mime_type",
    )


def _paged(pages: Sequence[str]) -> tuple[str, list[int]]:
    """Return the text of pages, a blank line between them, and where each of them begins."""
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for page in map(_tidy, pages):
        starts.append(length)
        if page:
            parts.append(page)
            length += len(page) + len(_PAGE_BREAK)
    return _PAGE_BREAK.join(parts), starts


def _tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", _trimmed(text)).strip("\n")


def _trimmed(text: str) -> str:
    """Return the same lines without invisible characters and white space at their ends."""
    return "\n".join(line.rstrip() for line in clean_text(text).split("\n")).rstrip("\n")
