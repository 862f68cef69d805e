"""From files on disk to the RAG tool: find them, read them, send them in batches."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral.server.command_line.client import BAD_INPUT, JSON, Client, CommandError

TEXT_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".rst": "text/x-rst",
    ".html": "text/html",
}
BINARY_TYPES = {
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
"""MIME type by suffix. Binary formats travel as `data:` URIs, which the server parses."""

_TITLED = {".md", ".markdown", ".html"}
"""Formats with headings: the server takes the title from there. Others get their file's name."""

BATCH_BYTES = 64 * 1024
BATCH_DOCUMENTS = 16
"""A batch ends at either bound: a second or two of embedding on a laptop, so progress is seen."""

_ABOUT_ONE_DOCUMENT = {400, 413, 415, 422, 500}
"""Statuses after which a batch is sent again document by document, to find the one to blame."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest.

    Attributes:
        path: Where it is.
        document_id: Its path relative to the folder that was named, in POSIX form: the same
            tomorrow and on another machine, so that a second run replaces instead of adding.
        source: Its path as it was named.
        size: Bytes.
    """

    path: Path
    document_id: str
    source: str
    size: int


@dataclass(slots=True)
class Report:
    """What an ingest did: documents stored, and (file, reason) of those skipped and failed.

    `notes` are the server's, such as that chunks are longer than the model reads.
    """

    documents: int = 0
    size: int = 0
    seconds: float = 0.0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class SkippedFileError(Exception):
    """A file that is passed over by intention; the message says why."""


class BadFileError(Exception):
    """A file that should have gone in and cannot; the message says why."""


Advance = Callable[[int, int], None]
"""Called with the documents and the bytes that are done with, stored or not."""


def collect(paths: Sequence[Path], report: Report) -> list[SourceFile]:
    """Return the files under some paths, by document id; what is passed over goes to the report.

    Folders are searched recursively, without hidden files and without other types of file. A
    file that is named itself is taken even when it is hidden.

    Raises:
        CommandError: A path does not exist, or two files would get the same document id.
    """
    found: dict[str, SourceFile] = {}
    for given in paths:
        for file in _files_of(given, report):
            other = found.setdefault(file.document_id, file)
            if os.path.realpath(other.path) != os.path.realpath(file.path):
                raise CommandError(
                    f"{other.source} and {file.source} would both be document "
                    f"{file.document_id!r}.",
                    hint="Name the folder that holds both.",
                    exit_code=BAD_INPUT,
                )
    return sorted(found.values(), key=lambda file: file.document_id)


def read_document(file: SourceFile) -> JSON:
    """Return a file as the wire's RAGDocument.

    Raises:
        SkippedFileError: It is empty, or binary in spite of its name.
        BadFileError: It cannot be read or is not UTF-8.
    """
    suffix = file.path.suffix.lower()
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}") from None
    if not data.strip():
        raise SkippedFileError("empty")
    metadata = {"source": file.source}
    if suffix not in _TITLED:
        metadata["title"] = file.path.stem
    if suffix in BINARY_TYPES:
        mime_type = BINARY_TYPES[suffix]
        encoded = base64.b64encode(data).decode("ascii")
        content: str | JSON = {"uri": f"data:{mime_type};base64,{encoded}"}
    else:
        mime_type, content = TEXT_TYPES[suffix], _decode(data)
    return {
        "document_id": file.document_id,
        "content": content,
        "mime_type": mime_type,
        "metadata": metadata,
    }


async def ingest(
    client: Client,
    vector_db: JSON,
    files: Sequence[SourceFile],
    report: Report,
    advance: Advance = lambda documents, size: None,
) -> Report:
    """Send files to a vector DB and return the report, completed.

    One bad file is reported and the rest goes on. The same files again change nothing.

    Args:
        client: An open client.
        vector_db: The registration as the server returned it; its chunk size is used.
        files: What `collect` found.
        report: What `collect` passed over.
        advance: Called after each batch.

    Raises:
        CommandError: The server or its backend failed; files that were stored stay stored.
    """
    started = time.monotonic()
    for batch in _batches(files):
        documents = _read_batch(batch, report)
        try:
            await _send(client, vector_db, documents, report)
        except CommandError as error:
            error.hint = f"{error.hint} Stored before that: {report.documents} documents.".strip()
            raise
        advance(len(batch), sum(file.size for file in batch))
    report.seconds = time.monotonic() - started
    return report


def _files_of(given: Path, report: Report) -> Iterator[SourceFile]:
    if not given.exists():
        raise CommandError(f"There is no file or folder {given}.", exit_code=BAD_INPUT)
    if given.is_file():
        yield from _wanted(given, given.name, report, named=True)
        return

    def unreadable(error: OSError) -> None:
        report.failed.append((str(error.filename), f"cannot be read: {error.strerror}"))

    for folder, subfolders, names in os.walk(given, onerror=unreadable):
        here = Path(folder)
        for name in [name for name in subfolders if name.startswith(".")]:
            subfolders.remove(name)
            report.skipped.append(((here / name).as_posix() + "/", "hidden"))
        for name in names:
            path = here / name
            yield from _wanted(path, path.relative_to(given).as_posix(), report, named=False)


def _wanted(path: Path, document_id: str, report: Report, *, named: bool) -> Iterator[SourceFile]:
    """Yield the file if it is to be ingested, else say in the report why not."""
    known = path.suffix.lower() in TEXT_TYPES or path.suffix.lower() in BINARY_TYPES
    if path.name.startswith(".") and not named:
        report.skipped.append((path.as_posix(), "hidden"))
    elif known and not path.is_file():  # a broken link, a pipe
        report.failed.append((path.as_posix(), "is no file"))
    elif known:
        yield SourceFile(path, document_id, path.as_posix(), path.stat().st_size)
    elif named:
        types = " ".join([*TEXT_TYPES, *BINARY_TYPES])
        report.failed.append((path.as_posix(), f"unknown type; known: {types}"))
    else:
        report.skipped.append((path.as_posix(), f"type {path.suffix or 'without suffix'}"))


def _batches(files: Sequence[SourceFile]) -> Iterator[list[SourceFile]]:
    batch: list[SourceFile] = []
    for file in files:
        full = len(batch) == BATCH_DOCUMENTS or sum(f.size for f in batch) + file.size > BATCH_BYTES
        if batch and full:
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def _read_batch(batch: Sequence[SourceFile], report: Report) -> list[tuple[SourceFile, JSON]]:
    documents = []
    for file in batch:
        try:
            documents.append((file, read_document(file)))
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
    return documents


async def _send(
    client: Client, vector_db: JSON, documents: Sequence[tuple[SourceFile, JSON]], report: Report
) -> None:
    """Send a batch; where it is refused, each document by itself."""
    if not documents:
        return
    bodies = [document for _, document in documents]
    try:
        report.notes += await client.insert(vector_db["identifier"], bodies)
    except CommandError as error:
        if not _may_be_one_documents_fault(error, bodies):
            raise
        if len(documents) > 1:
            for document in documents:
                await _send(client, vector_db, [document], report)
            return
        report.failed.append((documents[0][0].source, f"{error.message} {error.hint}".strip()))
        return
    report.documents += len(documents)
    report.size += sum(file.size for file, _ in documents)


def _may_be_one_documents_fault(error: CommandError, documents: Sequence[JSON]) -> bool:
    """Say whether other documents may still go in: a reader that is missing stops only its type."""
    needs_reader = any(isinstance(document["content"], dict) for document in documents)
    return error.status in _ABOUT_ONE_DOCUMENT or (error.status == 424 and needs_reader)


def _decode(data: bytes) -> str:
    if b"\0" in data:
        raise SkippedFileError("binary")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFileError(f"not UTF-8 text (byte {error.start})") from None
