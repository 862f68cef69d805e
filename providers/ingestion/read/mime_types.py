"""MIME types, charsets and `data:` URIs, as senders of documents declare them."""

from __future__ import annotations

import base64
import binascii
import codecs
from urllib.parse import unquote_to_bytes, urlsplit

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import (
    HTML,
    MARKDOWN,
    NOTEBOOK,
    RTF,
    SRT,
    TEXT,
    ZIP,
    type_of,
)
from corral.providers.ingestion.read.formats import code

_ALIASES = {
    "text/x-markdown": MARKDOWN, "application/xhtml+xml": HTML, "application/x-zip-compressed": ZIP,
    "application/x-zip": ZIP, "application/csv": "text/csv",
    "application/x-subrip": SRT, "text/srt": SRT, "text/x-asciidoc": "text/asciidoc",
    "application/x-tex": "text/x-tex", "application/x-latex": "text/x-tex",
    "text/x-latex": "text/x-tex", "text/rst": "text/x-rst", "text/x-org": "text/org",
    "text/rtf": RTF, "text/richtext": RTF, "application/x-rtf": RTF,
    "application/x-ndjson": "application/jsonl", "application/ipynb+json": NOTEBOOK,
    "application/javascript": "text/javascript", "application/x-javascript": "text/javascript",
    "text/x-script.python": "text/x-python", "application/typescript": "text/x-typescript",
    "text/x-golang": "text/x-go", "text/x-rustsrc": "text/x-rust", "text/x-csrc": "text/x-c",
    "text/x-chdr": "text/x-c", "text/x-c++src": "text/x-c++", "text/x-c++hdr": "text/x-c++",
    "application/x-sh": "text/x-shellscript", "application/x-httpd-php": "text/x-php",
}  # fmt: skip
_TEXT_TYPES = frozenset(
    f"application/{name}" for name in ("json", "jsonl", "xml", "yaml", "x-yaml", "toml", "sql")
)
_VAGUE = frozenset({"", TEXT, "application/octet-stream", *compression.MIME_TYPES})
# Charsets in use. Python has others that do not decode text, or decode it very slowly.
_CHARSETS = frozenset(
    codecs.lookup(name).name
    for name in (
        "utf-8", "us-ascii", "utf-16", "utf-16-le", "utf-16-be", "koi8-r", "koi8-u", "shift_jis",
        "cp932", "euc-jp", "iso-2022-jp", "euc-kr", "cp949", "gb2312", "gbk", "gb18030", "big5",
        "tis-620", *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
        *(f"windows-{page}" for page in range(1250, 1259)),
    )
)  # fmt: skip


def split_mime_type(mime_type: str | None) -> tuple[str, str | None]:
    """Return a MIME type in canonical form ("" for None), and its charset, or None."""
    kind, *parameters = (mime_type or "").lower().split(";")
    kind = kind.strip()
    named = (parameter.partition("=") for parameter in parameters)
    charsets = [value.strip().strip("\"'") for name, _, value in named if name.strip() == "charset"]
    return _ALIASES.get(kind, kind), charsets[0] if charsets else None


def is_plain_text(mime_type: str | None) -> bool:
    """Return True if files of a type are stored unchanged, so no package is needed to read them."""
    kind = split_mime_type(mime_type)[0] or "text/plain"
    return is_textual(kind) and kind not in {HTML, *code.LANGUAGES}


def is_textual(kind: str) -> bool:
    """Return True if a type, in canonical form, is text that can be decoded."""
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def served_type(url: str, content_type: str | None) -> str:
    """Return the MIME type of a response, by its header, or by the URL's suffix if that is vague.

    Many servers send Markdown as `text/plain`, and other files as `application/octet-stream`.
    """
    kind, charset = split_mime_type(content_type)
    by_suffix = type_of(urlsplit(url).path)
    if kind in _VAGUE and by_suffix:
        return f"{by_suffix};charset={charset}" if charset else by_suffix
    return content_type or "text/plain"


def chosen_type(given: str | None, found: str | None) -> str | None:
    """Return the MIME type that the sender declares, or else the one that came with the bytes.

    The same holds for the charset.
    """
    _, charset = split_mime_type(found)
    if not given or not charset or split_mime_type(given)[1]:
        return given or found
    return f"{given};charset={charset}"


def decode(data: bytes, charset: str | None = None) -> str:
    """Return the text of bytes, without a byte order mark.

    Args:
        data: Encoded text.
        charset: Name of the charset; None for UTF-16 if there is its byte order mark, or else
            UTF-8.

    Raises:
        InvalidRequest: The charset is unknown, or the bytes are not valid in it.
    """
    try:
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        codec = codecs.lookup(charset or ("utf-16" if wide else "utf-8")).name
        if codec not in _CHARSETS:
            raise LookupError(codec)
        return data.decode(codec).removeprefix("\ufeff")
    except (LookupError, ValueError):
        raise InvalidRequest(
            f"The text is not in {charset or 'UTF-8'}, or that charset is not supported.",
            hint="Send UTF-8, or name the charset: mime_type 'text/plain; charset=windows-1252'.",
            field="content",
        ) from None


def decode_data_uri(uri: str) -> tuple[bytes, str]:
    """Return the bytes of a `data:` URI and its MIME type, `text/plain` by default (RFC 2397).

    Raises:
        InvalidRequest: The URI is malformed.
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
            hint="Write it as data:MIME/TYPE;base64,DATA.",
            field="content.uri",
        )
    parameters = parameters[:-1] if encoded else parameters
    return data, ";".join([kind or "text/plain", *parameters])
