"""Names of documents. Every answer names a document by the first of these that exists:

1. its title, followed by its file in parentheses, because the title may be a first heading, which
readers rarely know; a title that only repeats the file's name without the suffix is skipped;
2. its file name;
3. its source: a web address, or the path of a file within its folder;
4. its document id, or the chunk's id if the chunk belongs to no document.

An absolute path is cut to its last part: the folders of a machine are private.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from corral.api.chunks import Chunk, ChunkMetadata

UNKNOWN = "unknown"
"""Names a document without a name in the line of a citation."""

PLACE = (
    "page", "page_end", "line_start", "line_end", "row_start", "row_end", "cell_start", "cell_end",
    "heading_path",
)  # fmt: skip
"""Fields of a chunk's record, and of a citation, that say where in its document it is."""

_FILE_URL = re.compile(r"file:", re.IGNORECASE)
_ABSOLUTE = re.compile(r"[/\\]|~\w*[/\\]|[A-Za-z]:[/\\]")
"""Start of an absolute path: on POSIX systems, on Windows, in a home folder."""


def title_of(chunk: Chunk) -> str:
    """Return the name of a chunk's document by the rules above."""
    return _name(chunk) or chunk.chunk_id


def file_of(chunk: Chunk) -> str | None:
    """Return the file name of a chunk's document, else its source; None if it has neither."""
    return _file(chunk.metadata, chunk.chunk_metadata)


def filename_of(chunk: Chunk) -> str:
    """Return the file or address of a chunk's document; if it has neither, its name."""
    return file_of(chunk) or title_of(chunk)


def cited_name(chunk: Chunk) -> str:
    """Return the name of a document and its web address, for the line of a citation."""
    name, file = _name(chunk) or UNKNOWN, file_of(chunk) or ""
    return f"{name} ({file})" if _is_address(file) and file != name else name


def source_of(chunk: Chunk) -> str | None:
    """Return the source of a chunk's document as `public_source` shows it; None if unknown."""
    return _source(chunk.metadata, chunk.chunk_metadata)


def name_in(metadata: Mapping[str, Any], record: ChunkMetadata | None = None) -> str | None:
    """Return the name of a document from its metadata; None if there is none.

    Args:
        metadata: Metadata of the document or of one of its chunks.
        record: The chunk's record.
    """
    title, file = _text(metadata, "title"), _file(metadata, record)
    if title is None or file is None:
        return title or file
    if PurePosixPath(file).stem == title:
        return file
    return title if title == file or _is_address(file) else f"{title} ({file})"


def web_address(chunk: Chunk) -> str | None:
    """Return the web address of a chunk's document; None if it has none."""
    recorded = chunk.chunk_metadata.source if chunk.chunk_metadata else None
    for each in (_text(chunk.metadata, "url"), _text(chunk.metadata, "source"), recorded):
        if each and _is_address(each):
            return each
    return None


def public_source(source: str | None) -> str | None:
    """Return a source; for an absolute path or a `file:` URL, return only the last part."""
    if source and _FILE_URL.match(source):
        source = "/" + unquote(source[len("file:") :])
    if source and _ABSOLUTE.match(source):
        source = re.split(r"[/\\]", source.rstrip("/\\"))[-1]
    return source or None


def shown_place(place: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """Return a place in a document as readable text, such as "page 3, Farm > Hay"; "" for none.

    Args:
        place: Can have the fields of `PLACE`. `heading_path` is the time of a subtitle and the
            sheet of a workbook, too.
        shown: Prepares the headings.
    """
    parts = [
        _range("page", place.get("page"), place.get("page_end")),
        _range("line", place.get("line_start"), place.get("line_end")),
        shown(" > ".join(place.get("heading_path") or ())),
        _range("row", place.get("row_start"), place.get("row_end")),
        _range("cell", place.get("cell_start"), place.get("cell_end")),
    ]
    return ", ".join(filter(None, parts))


def end_of(begins: ChunkMetadata, ends: ChunkMetadata) -> dict[str, int | None]:
    """Return the end of a passage in lines, rows or cells; rows of the sheet in which it begins.

    Args:
        begins, ends: The records of its first and its last chunk.
    """
    is_one_sheet = ends.heading_path == begins.heading_path
    return {
        "line_end": ends.line_end,
        "row_end": ends.row_end if is_one_sheet else begins.row_end,
        "cell_end": ends.cell_end,
    }


def _range(what: str, first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f"{what} {first}" if last in (None, first) else f"{what}s {first}-{last}"


def _is_address(source: str) -> bool:
    return source.lower().startswith(("https://", "http://"))


def _name(chunk: Chunk) -> str | None:
    return name_in(chunk.metadata, chunk.chunk_metadata) or chunk.document_id


def _file(metadata: Mapping[str, Any], record: ChunkMetadata | None) -> str | None:
    recorded = record.filename if record else None
    return public_source(_text(metadata, "filename") or recorded) or _source(metadata, record)


def _source(metadata: Mapping[str, Any], record: ChunkMetadata | None) -> str | None:
    recorded = record.source if record else None
    return public_source(recorded or _text(metadata, "source"))


def _text(metadata: Mapping[str, Any], name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) and value else None
