"""Convert Jupyter notebooks to Markdown: text, code and printed output of the cells.

The format is JSON (https://nbformat.readthedocs.io) in version 4, or in version 3, which has the
cells in worksheets. The package `nbformat` has many dependencies, and reading only takes a loop.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.common import (
    ESCAPES,
    Readable,
    escaped,
    joined,
    reading,
)

MAX_OUTPUT = 2_000
"""Maximum number of characters per output; longer ones are logs or data that hide the cells."""

_TICKS = re.compile(r"^ *(`{3,})", re.MULTILINE)


def read(text: str) -> Readable:
    """Return a notebook as Markdown: texts unchanged, code and outputs in fences.

    Pictures, attachments and the ends of outputs longer than `MAX_OUTPUT` are counted as unread.

    Raises:
        InvalidRequest: The notebook is not JSON, or has no list of cells.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise _malformed(f"it is not valid JSON{place}") from None
    return reading("notebook", lambda: _Reader(found).read())


def _malformed(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"The notebook cannot be read: {what}.",
        hint="Open it in Jupyter and save it again, or send its text.",
        field="content",
    )


class _Reader:
    """Reads one notebook.

    Args:
        found: The parsed JSON of the notebook.
    """

    def __init__(self, found: Any) -> None:
        self._cells = list(_cells(found))
        about = found.get("metadata") or {}
        info = about.get("language_info") or about.get("kernelspec") or {}
        self._language = str(info.get("language") or info.get("name") or "")
        self._unread: Counter[str] = Counter()

    def read(self) -> Readable:
        """Return its text."""
        cells = [joined(list(self._blocks(cell))) for cell in self._cells]
        unread = tuple(f"{count} {what}" for what, count in self._unread.items())
        return Readable(cells, unread=unread, are_cells=True)

    def _blocks(self, cell: dict[str, Any]) -> Iterator[str]:
        kind, source = cell.get("cell_type"), _text(cell.get("source", cell.get("input")))
        self._unread.update(["attachments"] * len(cell.get("attachments") or ()))
        if kind == "code":
            if source.strip():
                yield _fenced(source, str(cell.get("language") or self._language))
            for output in cell.get("outputs") or ():
                yield from self._output(output)
        elif kind == "heading":
            yield f"{'#' * int(cell.get('level', 1))} {' '.join(source.split())}"
        else:
            yield source if kind == "markdown" else escaped(source)

    def _output(self, output: dict[str, Any]) -> Iterator[str]:
        kind, data = output.get("output_type"), output.get("data", output)
        if kind in ("error", "pyerr"):
            yield from self._printed(f"{output.get('ename')}: {output.get('evalue')}")
        elif kind == "stream":
            yield from self._printed(_text(output.get("text")))
        elif markdown := _text(data.get("text/markdown")):
            yield from self._bounded(markdown)
        elif plain := _text(data.get("text/plain", data.get("text"))):
            yield from self._printed(plain)
        pictures = any(name.startswith("image/") or name in ("png", "jpeg", "svg") for name in data)
        self._unread.update(["pictures"] if pictures else [])

    def _printed(self, text: str) -> Iterator[str]:
        lines = (line.rpartition("\r")[2] for line in ESCAPES.sub("", text).split("\n"))
        for part in self._bounded("\n".join(lines).strip("\n")):
            yield _fenced(part, "")

    def _bounded(self, text: str) -> Iterator[str]:
        if len(text) > MAX_OUTPUT:
            self._unread.update(["ends of long outputs"])
        if text.strip():
            yield text[:MAX_OUTPUT]


def _cells(found: Any) -> Iterator[dict[str, Any]]:
    sheets = found.get("worksheets") if isinstance(found, dict) else None
    parts = sheets if isinstance(sheets, list) else [found]
    for part in parts:
        cells = part.get("cells") if isinstance(part, dict) else None
        if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
            raise _malformed("it has no list of cells")
        yield from cells


def _text(source: Any) -> str:
    """Return a text as a string; a notebook may store it as a list of lines."""
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _fenced(text: str, language: str) -> str:
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
