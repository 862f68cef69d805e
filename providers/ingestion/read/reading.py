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
import os
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from corral.api.errors import CorralError, InvalidRequest, MissingDependency
from corral.providers.base.config import RagSettings
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.base.ocr_settings import OcrSettings
from corral.providers.concurrency import ThreadPool
from corral.providers.ingestion.read.compression import is_compressed
from corral.providers.ingestion.read.detecting import detected, type_of
from corral.providers.ingestion.read.mime_types import is_plain_text, split_mime_type
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.read.reading_process import receive, send
from corral.providers.ingestion.split.headings import Heading

SHORT_TEXT = 1 << 18
"""Characters of plain text, or bytes of a file of it, that this process reads itself.

It takes a few milliseconds, where a process takes 0.1 s to start.
"""

_PROCESS = "corral.providers.ingestion.read.reading_process"

_ERRORS: dict[str, type[CorralError]] = {
    kind.__name__: kind for kind in (InvalidRequest, MissingDependency)
}

T = TypeVar("T")


class Reader:
    """Reads documents, so many at a time, in threads and processes that do nothing else.

    Args:
        settings: How many at a time, and the limits of each.
    """

    def __init__(self, settings: RagSettings) -> None:
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
        """
        if isinstance(content, str) and len(content) <= SHORT_TEXT and is_plain_text(mime_type):
            return await self.run(parse, content, mime_type, self._limits)
        return await self.run(self._in_child, content, mime_type)

    async def read_data_uri(self, uri: str, mime_type: str | None) -> ParsedDocument:
        """Return the text of the document in a `data:` URI, as `read` does."""
        return await self.run(self._in_child, uri, mime_type, "data_uri")

    async def read_file(self, path: Path, filename: str, charset: str = "") -> ParsedDocument:
        """Return the text of a file on disk, as `read` does; this process never holds a large one.

        Args:
            path: Where it is.
            filename: Its name: a hint for what its bytes leave open.
            charset: Of its text; "" for what its bytes say.
        """
        named = type_of(filename) or ""
        return await self.run(
            self._read_file, path, f"{named};charset={charset}" if charset else named
        )

    def _read_file(self, path: Path, named: str) -> ParsedDocument:
        if is_plain_text(named) and path.stat().st_size <= SHORT_TEXT:
            content = path.read_bytes()
            if not is_compressed(content) and is_plain_text(
                detected(content, *split_mime_type(named))
            ):
                return parse(content, named, self._limits)
        return self._in_child(str(path), named, "file")

    def _in_child(
        self, content: str | bytes, mime_type: str | None, form: str = "content"
    ) -> ParsedDocument:
        child = self._child()
        try:
            answer = child.call(content, mime_type, form)
        except (EOFError, OSError, ValueError):
            raise child.cause_of_death() from None
        self._idle.append(child)
        if isinstance(answer, CorralError):
            raise answer
        return answer

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
        self, content: str | bytes, mime_type: str | None, form: str
    ) -> ParsedDocument | CorralError:
        """Return what the process made of a document.

        Raises:
            EOFError, OSError, ValueError: The process ended.
        """
        questions, answers = _pipes(self._process)
        self._started = time.monotonic()
        limits, ocr = asdict(self._limits), asdict(self._ocr)
        asked = {"mime_type": mime_type, "form": form, "limits": limits, "ocr": ocr}
        send(questions, asked, content)
        said, text = receive(answers)
        if "error" in said:
            return _error(said["error"], said["state"])
        return _document(said["document"], str(text))

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
    lists = {name: tuple(said[name]) for name in ("page_starts", "unread")}
    headings = tuple(Heading(*each) for each in said["headings"])
    return ParsedDocument(**{**said, **lists, "text": text, "headings": headings})


def _error(kind: str, state: dict[str, Any]) -> CorralError:
    """Return an error of the other process, whatever its class is made from."""
    error = _ERRORS[kind].__new__(_ERRORS[kind])
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error
