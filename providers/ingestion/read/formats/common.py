"""Shared by the readers of file formats: imports, errors, and Markdown for lines and tables."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from corral.api.errors import InvalidRequest, MissingDependency
from corral.api.reader import Readable as Readable  # noqa: PLC0414 - readers import it from here

INSTALL = "pip install 'corral-rag[documents]'"

T = TypeVar("T")

ESCAPES = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
"""Matches the control sequences of terminals, such as colors (ECMA-48, section 5.4)."""

_STRUCTURE = re.compile(r"^( {0,3})(?=#{1,6}(?:\s|$)|(?:=+|-+)\s*$|`{3}|~{3})", re.MULTILINE)

_NO_TITLE = re.compile(
    r"(?:untitled|unknown|document\d*|title|\(?anonymous\)?|microsoft .{0,20} - .*|.*\.\w{2,5})",
    re.IGNORECASE,
)
"""What programs write where the author gave no title."""


def package(module: str, distribution: str, kind: str) -> Any:
    """Import and return a module of the extra `documents`.

    Raises:
        MissingDependency: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingDependency(f"Reading {kind} files", distribution, INSTALL) from None


def reading(kind: str, read: Callable[[], T]) -> T:
    """Call `read` and return its result.

    Raises:
        InvalidRequest: `read` raised an unexpected exception, so the file is broken.
    """
    try:
        return read()
    except (InvalidRequest, MissingDependency, MemoryError):
        raise
    except Exception as error:  # Parsers may raise any exception for a broken file.
        raise InvalidRequest(
            f"The {kind} file cannot be read ({type(error).__name__}).",
            hint="It is damaged or has another format: check that it opens elsewhere.",
            field="content",
        ) from error


def locked(kind: str, more: str = "") -> InvalidRequest:
    """Return the error for a file that needs a password."""
    return InvalidRequest(
        f"The {kind} file is locked with a password.",
        hint=f"Save it without one, or send its text. {more}".strip(),
        field="content",
    )


def declared_title(title: str) -> str | None:
    """Return the title that a file declares, None if a program made it up."""
    title = " ".join(title.split())
    return title if title and not _NO_TITLE.fullmatch(title) else None


def escaped(text: str) -> str:
    """Escape plain text for Markdown, so that no line becomes a heading, a rule or a fence."""
    return _STRUCTURE.sub(r"\1\\", text)


def joined(blocks: Sequence[str]) -> str:
    """Join blocks with blank lines between them, except between items of a list."""
    parts: list[str] = []
    for block in filter(str.strip, blocks):
        tight = parts and parts[-1].startswith("- ") and block.startswith("- ")
        parts += ["\n" if tight else "\n\n", block] if parts else [block]
    return "".join(parts)


def is_blank(row: Sequence[str]) -> bool:
    """Return True if a table leaves a row out, because its cells are empty."""
    return not any(map(str.strip, row))


def table_rows(text: str, numbers: Sequence[int]) -> Iterator[int]:
    """Yield, for each line of a table, the number of its row; 0 for the line below the header.

    Args:
        text: From `table`.
        numbers: Of its rows that are not blank.
    """
    has_header = text.count("\n") == len(numbers)
    for place, number in enumerate(numbers):
        if has_header and place == 1:
            yield 0
        yield number


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table with the first row as header; "" if all are empty.

    Empty rows and empty trailing columns are dropped, and line breaks in cells become spaces. A
    single row or column becomes plain text instead of a table.
    """
    lines = [line for line in map(_cells, rows) if any(line)]
    width = max(map(_width, lines), default=0)
    if not lines:
        return ""
    filled = [line if len(line) == width else [*line, *[""] * width][:width] for line in lines]
    if width == 1 or len(filled) == 1:
        return "\n".join(" | ".join(line) for line in filled)
    made = [f"| {' | '.join(line)} |" for line in filled]
    return "\n".join([made[0], "|" + " --- |" * width, *made[1:]])


def _cells(row: Sequence[str]) -> Sequence[str]:
    """Return the cells of a row with single spaces and escaped bars."""
    text = f"|{'|'.join(row)}|"
    is_clean = text.isprintable() and text.count("|") == len(row) + 1
    if is_clean and not any(spaces in text for spaces in ("  ", " |", "| ")):
        return row
    return [" ".join(cell.split()).replace("|", r"\|") for cell in row]


def _width(line: Sequence[str]) -> int:
    """Return the number of cells up to the last one that is not empty."""
    if line[-1]:
        return len(line)
    return max(number for number, cell in enumerate(line, 1) if cell)
