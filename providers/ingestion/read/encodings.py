"""Detect the encoding of text files that do not declare one."""

from __future__ import annotations

import re

from corral.providers.ingestion.read.detecting import HTML, unsupported

_MARKS = (("utf-8-sig", b"\xef\xbb\xbf"), ("utf-16", b"\xff\xfe"), ("utf-16", b"\xfe\xff"))
_DECLARED = re.compile(
    rb"(?:<meta[^>]{0,200}charset|<\?xml[^>]{0,100}encoding)\s*=\s*[\"']?([\w-]{1,40})",
    re.IGNORECASE,
)


def encoding_of(data: bytes, kind: str) -> tuple[str, bool]:
    """Return the encoding of a text, and True if it is certain.

    In this order: by its byte order mark, as UTF-16 if about half the bytes are zero, as UTF-8, as
    HTML or XML declares, and otherwise as Windows-1252, like browsers. Statistical detectors were
    tried and not used: they took a short Latin-1 text for Chinese, with too much confidence.

    Raises:
        InvalidRequest: The text has zero bytes and is not UTF-16.
    """
    for name, mark in _MARKS:
        if data.startswith(mark):
            return name, True
    if b"\0" in data:
        return _wide(data), False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        declared = declared_in(data, kind)
        return (declared, True) if declared else ("windows-1252", False)
    return "utf-8", True


def declared_in(data: bytes, kind: str) -> str | None:
    """Return the encoding that a web page or an XML file names in its text; None if it does not."""
    is_markup = kind == HTML or kind.endswith("xml")
    declared = _DECLARED.search(data[:2048]) if is_markup else None
    return declared[1].decode("ascii") if declared else None


def _wide(data: bytes) -> str:
    """Return the encoding of a UTF-16 text, with its byte order.

    Raises:
        InvalidRequest: The text is not UTF-16.
    """
    zeros = data[::2].count(0), data[1::2].count(0)
    if len(data) % 2 == 0 and min(zeros) == 0 and max(zeros) * 6 > len(data):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    raise unsupported("The file is not text: it holds zero bytes")
