"""Read documents in child processes with a time limit.

A PDF of 2 KB can keep PDFium busy for hours, in one call that no thread can interrupt. Other
readers hold the global interpreter lock, and a broken file can crash any of them. So each document
that is not a short text is read in a child process. A watchdog in the child ends it when the time
of a document is over, even if this process has ended, and the system limits its memory. A child
reads one document at a time, as PDFium requires. Children are started on demand.

Messages through the pipes are a line of JSON, and then the document or its text. A child that a
document has taken over can therefore not run code in this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from corral.api.errors import CorralError, InvalidRequest, MissingDependency
from corral.api.rag import URL
from corral.providers.base.config import RagSettings
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.concurrency import ThreadPool
from corral.providers.ingestion.read.compression import is_compressed
from corral.providers.ingestion.read.containers import Part
from corral.providers.ingestion.read.detecting import detected, type_of
from corral.providers.ingestion.read.external import (
    MIB,
    Chosen,
    ExternalReader,
    chosen,
    named_type,
    reader_for,
)
from corral.providers.ingestion.read.formats.pdf.pages import Area
from corral.providers.ingestion.read.mime_types import (
    chosen_type,
    decode_data_uri,
    is_plain_text,
    split_mime_type,
)
from corral.providers.ingestion.read.parsing import ParsedDocument, document_of, parse
from corral.providers.ingestion.read.reading_process import receive, send
from corral.providers.ingestion.read.records import Columns, Record
from corral.providers.ingestion.split.headings import Heading

SHORT_TEXT = 1 << 18
"""Maximum size of plain text that is read in this process, in characters or in bytes of a file.

This takes a few milliseconds, while a process takes 0.1 s to start.
"""

PARTS_TIME = 20
"""Time limit for the documents of one container, as a multiple of that for one document."""

_PROCESS = "corral.providers.ingestion.read.reading_process"

_ERRORS: dict[str, type[CorralError]] = {
    kind.__name__: kind for kind in (InvalidRequest, MissingDependency)
}

T = TypeVar("T")


class Reader:
    """Reads documents in its own threads and child processes.

    Args:
        settings: Maximum number of concurrent readings, and the limits of each.
        external: Configured readers (`providers.reader`), each for certain types.
    """

    def __init__(self, settings: RagSettings, external: Sequence[ExternalReader] = ()) -> None:
        self._external = external
        self._limits, self._ocr = settings.document_limits, settings.ocr
        self._threads = ThreadPool("reading", None, max_threads=settings.max_concurrent_readings)
        self._idle: deque[_Child] = deque()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` in one of the threads and return its result."""
        return await self._threads.run(work, *arguments)

    async def read(self, content: str | bytes, mime_type: str | None) -> ParsedDocument:
        """Return the text of a document.

        Raises:
            InvalidRequest: See `parse`; or the document takes too much time or memory.
            MissingDependency: The package that reads this type is not installed.
            ProviderError: A configured reader failed.
        """
        if self._external:
            choice = await self.run(chosen, self._external, content, mime_type)
            if choice:
                return await self._read_externally(choice)
        if isinstance(content, str) and len(content) <= SHORT_TEXT and is_plain_text(mime_type):
            return await self.run(parse, content, mime_type, self._limits)
        return await self.run(self._in_child, content, mime_type)

    async def read_data_uri(self, uri: str, mime_type: str | None) -> ParsedDocument:
        """Return the text of the document in a `data:` URI, as `read` does."""
        if self._external:
            data, stated = await self.run(decode_data_uri, uri)
            choice = await self.run(chosen, self._external, data, chosen_type(mime_type, stated))
            if choice:
                return await self._read_externally(choice)
        return await self.run(self._in_child, uri, mime_type, "data_uri")

    async def read_file(self, path: Path, filename: str, charset: str = "") -> ParsedDocument:
        """Return the text of a file on disk, as `read` does.

        Large files are not loaded into this process unless a configured reader accepts them.

        Args:
            path: Path of the file.
            filename: Name of the file; it decides if the bytes leave the type open.
            charset: Charset of its text; "" to detect it.
        """
        if self._external:
            choice = await self.run(self._chosen_for_file, path, named_type(filename))
            if choice:
                return await self._read_externally(choice)
        named = type_of(filename) or ""
        return await self.run(
            self._read_file, path, f"{named};charset={charset}" if charset else named
        )

    async def read_rows(
        self, path: Path, filename: str, charset: str, columns: Columns
    ) -> list[tuple[str, Record | str]]:
        """Return the rows of a file on disk, as `records` does.

        Raises:
            InvalidRequest: The file is not a table, is broken, or has too many rows.
            MissingDependency: The package that reads this type is not installed.
        """
        named = f"{type_of(filename) or ''};charset={charset}" if charset else type_of(filename)
        request = {"mime_type": named, "form": "rows", "columns": asdict(columns), "name": filename}
        _, text = await self.run(self._call, str(path), request)
        return [
            (place, row if isinstance(row, str) else Record(**row))
            for place, row in await self.run(json.loads, text)
        ]

    async def page_picture(self, path: Path, page: int, width: int) -> bytes:
        """Return a page of a PDF on disk as a PNG; see `pages.picture`.

        Raises:
            InvalidRequest: It is not a PDF, or is broken, or takes more than the limits allow.
            MissingDependency: pypdfium2 is not installed.
        """
        request = {"mime_type": None, "form": "page", "page": page, "width": width}
        _, body = await self.run(self._call, str(path), request)
        return cast("bytes", body)

    async def page_areas(
        self, path: Path, page: int, passage: str, *, is_whole: bool
    ) -> tuple[list[Area], int]:
        """Return the areas of a passage on a page, and the number of pages; see `pages.areas`.

        Raises:
            InvalidRequest, MissingDependency: As for `page_picture`.
        """
        request = {"mime_type": None, "form": "page", "page": page, "passage": passage}
        head, _ = await self.run(self._call, str(path), {**request, "is_whole": is_whole})
        return [Area(*each) for each in head["areas"]], head["pages"]

    async def colored(self, texts: Sequence[str], filename: str) -> list[list[list[str]]] | None:
        """Return texts of code as pairs of class and text; see `coloring.colored`.

        Raises:
            InvalidRequest: They take more time or memory than the limits allow.
        """
        return cast("list[list[list[str]]] | None", await self._colors(texts, filename))

    async def colored_blocks(self, texts: Sequence[str]) -> list[list[list[list[str]]]] | None:
        """Return the code blocks of Markdown texts; see `coloring.colored_blocks`.

        Raises:
            InvalidRequest: As for `colored`.
        """
        if not any("```" in text or "~~~" in text for text in texts):
            return None
        return cast("list[list[list[list[str]]]] | None", await self._colors(texts, None))

    async def _colors(self, texts: Sequence[str], filename: str | None) -> object:
        request = {"mime_type": None, "form": "colors", "name": filename}
        _, body = await self.run(self._call, json.dumps(texts), request)
        return json.loads(body)

    async def parts(
        self, content: str | bytes | Path | URL, mime_type: str | None
    ) -> AsyncIterator[tuple[str, ParsedDocument | CorralError]]:
        """Yield the documents in a mail or an archive: the path of each, and its text or error.

        Together the documents have `PARTS_TIME` times the time limit of one document.

        Args:
            content: A text, the bytes of a file, a `data:` URI or a file on disk.
            mime_type: The type of the container, as for `read`.

        Raises:
            InvalidRequest: The container is broken, or has too many documents or bytes.
        """
        form, source = "content", content
        if isinstance(source, Path):
            form, source = "file", str(source)
        elif isinstance(source, URL):
            form, source = "data_uri", source.uri
        end = time.monotonic() + PARTS_TIME * self._limits.max_seconds
        with tempfile.TemporaryDirectory(prefix="corral-") as folder:
            for part in await self.run(self._unpack, source, mime_type, form, folder):
                yield part.name, await self._part(part, Path(folder), end)

    async def _part(self, part: Part, folder: Path, end: float) -> ParsedDocument | CorralError:
        if part.reason:
            return InvalidRequest(part.reason)
        if time.monotonic() > end:
            return InvalidRequest("The container takes too long to read.")
        try:
            return await self.read_file(folder / part.file, part.name)
        except (InvalidRequest, MissingDependency) as error:
            return error

    def _unpack(
        self, content: str | bytes, mime_type: str | None, form: str, folder: str
    ) -> list[Part]:
        head, _ = self._call(content, {"mime_type": mime_type, "form": form, "folder": folder})
        return [Part(**each) for each in head["parts"]]

    def _read_file(self, path: Path, named: str) -> ParsedDocument:
        if is_plain_text(named) and path.stat().st_size <= SHORT_TEXT:
            content = path.read_bytes()
            if not is_compressed(content) and is_plain_text(
                detected(content, *split_mime_type(named))
            ):
                return parse(content, named, self._limits)
        return self._in_child(str(path), named, "file")

    async def _read_externally(self, choice: Chosen) -> ParsedDocument:
        answer = await choice.reader.read(choice.data, choice.mime_type, self._limits)
        return await self.run(document_of, answer, self._limits)

    def _chosen_for_file(self, path: Path, named: str) -> Chosen | None:
        """Return the reader for a file, without loading a file that is too large for all readers.

        Raises:
            TooLarge: The name of the file has a type with a configured reader, and the file is too
                large for it.
        """
        if path.stat().st_size > max(each.config.max_mib for each in self._external) * MIB:
            if reader := reader_for(self._external, named):
                raise reader.too_large()
            return None
        return chosen(self._external, path.read_bytes(), named)

    def _in_child(
        self, content: str | bytes, mime_type: str | None, form: str = "content"
    ) -> ParsedDocument:
        head, text = self._call(content, {"mime_type": mime_type, "form": form})
        return _document(head["document"], str(text))

    def _call(
        self, content: str | bytes, request: dict[str, Any]
    ) -> tuple[dict[str, Any], str | bytes]:
        """Send a request to a child process and return the answer.

        Raises:
            InvalidRequest, MissingDependency: The document cannot be read.
        """
        child = self._child()
        try:
            head, text = child.call(content, request)
        except (EOFError, OSError, ValueError):
            raise child.cause_of_death() from None
        self._idle.append(child)
        if "error" in head:
            raise _error(head["error"], head["state"])
        return head, text

    def _child(self) -> _Child:
        """Return an idle child process, or start one."""
        with contextlib.suppress(IndexError):
            while True:
                child = self._idle.pop()
                if child.lives():
                    return child
        return _Child(self._limits, self._ocr)


class _Child:
    """A process that reads documents."""

    def __init__(self, limits: DocumentLimits, ocr: OcrSettings) -> None:
        self._limits, self._ocr = limits, ocr
        self._started = 0.0
        # -P prevents importing a folder named corral in the server's working directory.
        command = [sys.executable, "-P", "-m", _PROCESS]
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # Each thread takes memory.
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Its messages may quote the document.
            env={**os.environ, **quiet},
        )
        self._end = weakref.finalize(self, _end, self._process)

    def lives(self) -> bool:
        """Return True if the process is running."""
        return self._process.poll() is None

    def call(
        self, content: str | bytes, request: dict[str, Any]
    ) -> tuple[dict[str, Any], str | bytes]:
        """Send a request to the process and return the answer: a head, and the text.

        Raises:
            EOFError, OSError, ValueError: The process ended.
        """
        questions, answers = _pipes(self._process)
        self._started = time.monotonic()
        limits, ocr = asdict(self._limits), asdict(self._ocr)
        send(questions, {**request, "limits": limits, "ocr": ocr}, content)
        return receive(answers)

    def cause_of_death(self) -> InvalidRequest:
        """Clean up after the process has ended, and return the reason as an error."""
        took = time.monotonic() - self._started
        self._end()
        if took >= self._limits.max_seconds:
            return self._limits.exceeded("seconds to read", "max_seconds")
        return InvalidRequest(
            "The file cannot be read: its reader crashed.",
            hint="It is broken, or takes more memory than rag.document_limits.max_memory_mib, or "
            "rag.ocr.max_memory_mib for scanned pages.",
            field="content",
        )


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    return cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in _pipes(process):
        with contextlib.suppress(OSError):
            pipe.close()


def _document(said: dict[str, Any], text: str) -> ParsedDocument:
    lists = {name: tuple(said[name]) for name in ("page_starts", "unread", "numbers")}
    headings = tuple(Heading(*each) for each in said["headings"])
    parts = None if said["parts"] is None else tuple(said["parts"])
    return ParsedDocument(**{**said, **lists, "text": text, "headings": headings, "parts": parts})


def _error(kind: str, state: dict[str, Any]) -> CorralError:
    """Rebuild an error of the child process without calling the constructor of its class."""
    error = _ERRORS[kind].__new__(_ERRORS[kind])
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error
