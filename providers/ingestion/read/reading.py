"""Read documents in processes of their own, which end when one takes too long.

A PDF of 2 KB can keep PDFium busy for hours, in one call that no thread can interrupt; other
readers hold the interpreter's lock, and a broken file can crash any of them. So each document that
is not a short text is read in a child process. A watchdog in it ends it when a document's time is
over (also when this process is gone), and the system bounds its memory. A child reads one document
at a time, as PDFium demands, and is started when the first one comes.

What goes through the pipes is a line of JSON and then the document or its text: nothing that a
document could make of a reader can run code in this process.
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
"""Characters of plain text, or bytes of a file of it, that this process reads itself.

It takes a few milliseconds, where a process takes 0.1 s to start.
"""

PARTS_TIME = 20
"""The documents of one container may take this many times the time of one document."""

_PROCESS = "corral.providers.ingestion.read.reading_process"

_ERRORS: dict[str, type[CorralError]] = {
    kind.__name__: kind for kind in (InvalidRequest, MissingDependency)
}

T = TypeVar("T")


class Reader:
    """Reads documents, so many at a time, in threads and processes that do nothing else.

    Args:
        settings: How many at a time, and the limits of each.
        external: Readers of `providers.reader`, for the types that they are configured for.
    """

    def __init__(self, settings: RagSettings, external: Sequence[ExternalReader] = ()) -> None:
        self._external = external
        self._limits, self._ocr = settings.document_limits, settings.ocr
        self._threads = ThreadPool("reading", None, max_threads=settings.max_concurrent_readings)
        self._idle: deque[_Child] = deque()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` in one of the threads and return what it returns."""
        return await self._threads.run(work, *arguments)

    async def read(self, content: str | bytes, mime_type: str | None) -> ParsedDocument:
        """Return the text of a document.

        Raises:
            InvalidRequest: As `parse`, or it takes more time or memory than the limits allow.
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
        """Return the text of a file on disk, as `read` does; this process never holds a large one.

        Args:
            path: Where it is.
            filename: Its name: a hint for what its bytes leave open.
            charset: Of its text; "" for what its bytes say.
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
        """Return the rows of a file on disk as `records` does.

        Raises:
            InvalidRequest: It is no table, broken, or has too many rows.
            MissingDependency: The package that reads this type is not installed.
        """
        named = f"{type_of(filename) or ''};charset={charset}" if charset else type_of(filename)
        request = {"mime_type": named, "form": "rows", "columns": asdict(columns), "name": filename}
        _, text = await self.run(self._call, str(path), request)
        return [
            (place, row if isinstance(row, str) else Record(**row))
            for place, row in await self.run(json.loads, text)
        ]

    async def parts(
        self, content: str | bytes | Path | URL, mime_type: str | None
    ) -> AsyncIterator[tuple[str, ParsedDocument | CorralError]]:
        """Yield the documents in a mail or an archive: each path below it, and the text or error.

        All documents in one container have `PARTS_TIME` times the time of one document.

        Args:
            content: A text, the bytes of a file, a `data:` URI or a file on disk.
            mime_type: Its type, as for `read`.

        Raises:
            InvalidRequest: The container is broken, or holds more documents or bytes than allowed.
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
        """Return the reader of a file; a file too large for every reader is not loaded.

        Raises:
            TooLarge: Its name has a type that only a reader takes, which refuses its size.
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
        """Return the answer of a process.

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
        """Return a process that has nothing to do."""
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
        # -P: a folder named corral where the server happens to be started is not imported.
        command = [sys.executable, "-P", "-m", _PROCESS]
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread takes memory
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may quote the document
            env={**os.environ, **quiet},
        )
        self._end = weakref.finalize(self, _end, self._process)

    def lives(self) -> bool:
        """Return True if the process has not ended."""
        return self._process.poll() is None

    def call(
        self, content: str | bytes, request: dict[str, Any]
    ) -> tuple[dict[str, Any], str | bytes]:
        """Return the answer of the process: its head, and the text.

        Raises:
            EOFError, OSError, ValueError: The process ended.
        """
        questions, answers = _pipes(self._process)
        self._started = time.monotonic()
        limits, ocr = asdict(self._limits), asdict(self._ocr)
        send(questions, {**request, "limits": limits, "ocr": ocr}, content)
        return receive(answers)

    def cause_of_death(self) -> InvalidRequest:
        """Return why the process ended, after its end."""
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
    """Return an error of the other process, whatever its class is made from."""
    error = _ERRORS[kind].__new__(_ERRORS[kind])
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error
