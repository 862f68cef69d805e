"""Convert RTF to plain text, with a line for each paragraph and for each row of a table."""

from __future__ import annotations

from typing import Any

from corral.providers.ingestion.read.formats.common import Readable, package, reading


def read(data: bytes, limits: object) -> Readable:
    """Return the text of an RTF file, without pictures, anchors of comments, and styles.

    Raises:
        MissingDependency: striprtf is not installed.
        InvalidRequest: The file is broken.
    """
    striprtf = package("striprtf.striprtf", "striprtf", "RTF")
    return reading("RTF", lambda: _read(striprtf, data))


def _read(striprtf: Any, data: bytes) -> Readable:
    text = striprtf.rtf_to_text(data.decode("windows-1252", "replace"), errors="replace")
    # striprtf returns characters beyond 16 bits as two surrogates.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Readable([whole], markdown=False)
