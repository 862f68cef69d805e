"""The child process that reads documents for `reading.py`, and the messages between the two.

Startup takes most of the time of the first document, so this module imports only the parsers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from corral.api.errors import CorralError, InvalidRequest, MissingDependency
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.ingestion.read import compression, deadline
from corral.providers.ingestion.read.containers import Part, unpack
from corral.providers.ingestion.read.detecting import type_of_table
from corral.providers.ingestion.read.mime_types import (
    chosen_type,
    decode,
    decode_data_uri,
    split_mime_type,
)
from corral.providers.ingestion.read.parsing import (
    ParsedDocument,
    parse,
    parse_data_uri,
    parse_file,
)
from corral.providers.ingestion.read.records import (
    Columns,
    is_table_of_bytes,
    records,
    table_of,
)

MIB = 1 << 20

_PDF = b"%PDF-"

_FORMS: dict[str, Callable[..., ParsedDocument]] = {
    "content": parse,
    "data_uri": parse_data_uri,
    "file": parse_file,
}
"""Functions that read a document, by the form in which it is sent."""


def send(pipe: IO[bytes], head: dict[str, Any], body: str | bytes) -> None:
    """Send a line of JSON, followed by a document or its text."""
    is_text = isinstance(body, str)
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    pipe.write(json.dumps({**head, "size": len(data), "is_text": is_text}).encode() + b"\n")
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[dict[str, Any], str | bytes]:
    """Return the next message of `send`; raise EOFError if the other side has ended."""
    line = pipe.readline()
    if not line:
        raise EOFError
    head = json.loads(line)
    data = pipe.read(head["size"])
    if len(data) < head["size"]:
        raise EOFError
    return head, data.decode("utf-8", "surrogatepass") if head["is_text"] else data


def serve() -> None:
    """Answer requests from standard input on standard output until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent process handles Ctrl-C.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Output that packages print must not mix with the answers.
    bounded = False
    with contextlib.suppress(EOFError):
        while True:
            asked, content = receive(sys.stdin.buffer)
            limits, ocr = DocumentLimits(**asked["limits"]), OcrSettings(**asked["ocr"])
            bounded = bounded or _bound_memory(limits, ocr)
            deadline.start(limits.max_seconds)
            head, body = _answer(content, asked, limits, ocr)
            deadline.stop()
            send(answers, head, body)


def _answer(
    content: str | bytes, asked: dict[str, Any], limits: DocumentLimits, ocr: OcrSettings
) -> tuple[dict[str, Any], str | bytes]:
    """Return the answer's head and the document's text, or another body as its form says."""
    try:
        if asked.get("folder"):
            parts = _unpacked(content, asked, limits)
            return {"parts": [asdict(part) for part in parts]}, ""
        if asked["form"] == "rows":
            return {}, json.dumps(_rows(str(content), asked, limits))
        if asked["form"] == "page":
            return _page(str(content), asked)
        if asked["form"] == "colors":
            return {}, json.dumps(_colored(str(content), asked["name"]))
        parsed = _FORMS[asked["form"]](content, asked["mime_type"], limits, ocr)
    except MemoryError:
        error: CorralError = limits.exceeded("MiB to read", "max_memory_mib")
    except (InvalidRequest, MissingDependency) as refusal:
        error = refusal
    else:
        document = asdict(replace(parsed, text="", numbers=()))  # it would copy each number
        return {"document": {**document, "numbers": parsed.numbers}}, parsed.text
    return {"error": type(error).__name__, "state": vars(error)}, ""


def _unpacked(content: str | bytes, request: dict[str, Any], limits: DocumentLimits) -> list[Part]:
    mime_type = request["mime_type"]
    if request["form"] == "file":
        content = Path(str(content)).read_bytes()
    elif request["form"] == "data_uri":
        content, stated = decode_data_uri(str(content))
        mime_type = chosen_type(mime_type, stated)
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return unpack(data, *split_mime_type(mime_type), limits, Path(request["folder"]))


def _page(path: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return a page of a PDF as a picture, or the areas of a passage on it."""
    from corral.providers.ingestion.read.formats.pdf.pages import (  # noqa: PLC0415 - only people need them, and importing takes a tenth of a second
        areas,
        picture,
    )

    data = compression.unpacked(Path(path).read_bytes())
    if _PDF not in data[:1024]:
        raise InvalidRequest("The file is not a PDF.", field="document_id")
    number = request["page"]
    if "width" in request:
        return {}, picture(data, number, request["width"])
    passage, is_whole = request["passage"], request["is_whole"]
    marks, count = areas(data, number, passage, is_whole=is_whole)
    return {"areas": marks, "pages": count}, b""


def _colored(texts: str, name: str | None) -> object:
    from corral.providers.ingestion.read import coloring  # noqa: PLC0415 - as for pages

    given = json.loads(texts)
    return coloring.colored_blocks(given) if name is None else coloring.colored(given, name)


def _rows(path: str, request: dict[str, Any], limits: DocumentLimits) -> list[tuple[str, Any]]:
    """Return the rows of a table: the place of each, and its record or the reason for an error."""
    kind, charset = split_mime_type(request["mime_type"])
    data = compression.unpacked(Path(path).read_bytes())
    kind = type_of_table(data, kind)
    content = data if is_table_of_bytes(kind) else decode(data, charset)
    table, columns = table_of(content, kind), Columns(**request["columns"])
    rows = [*islice(records(table, columns, request["name"]), limits.max_rows + 1)]
    if len(rows) > limits.max_rows:
        raise limits.exceeded("rows", "max_rows")
    return [(place, row if isinstance(row, str) else asdict(row)) for place, row in rows]


def _bound_memory(limits: DocumentLimits, ocr: OcrSettings) -> bool:
    """Limit the memory of this process; text recognition may raise the limit later."""
    try:
        import resource  # noqa: PLC0415 - not available on every system
    except ImportError:
        return True
    most = limits.max_memory_mib * MIB
    with contextlib.suppress(ValueError, OSError):  # There is a lower limit already.
        resource.setrlimit(resource.RLIMIT_AS, (most, max(most, ocr.max_memory_mib * MIB)))
    return True


if __name__ == "__main__":
    serve()
