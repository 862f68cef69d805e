"""From files to the RAG tool: read them, send them in batches, find the one to blame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from corral.server.command_line.client import JSON, Client, CommandError
from corral.server.command_line.files import (
    DEFAULT_OPTIONS,
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    read_document,
)

BATCH_BYTES = 64 * 1024
BATCH_DOCUMENTS = 16
"""A batch ends at either bound: a second or two of embedding on a laptop, so progress is seen."""

_ABOUT_ONE_DOCUMENT = {400, 409, 413, 415, 422, 500}
"""Statuses after which a batch is sent again document by document, to find the one to blame."""

Advance = Callable[[int, int], None]
"""Called with the documents and the bytes that are done with, stored or not."""


async def ingest(
    client: Client,
    vector_db: JSON,
    files: Sequence[SourceFile],
    report: Report,
    advance: Advance = lambda documents, size: None,
    *,
    options: ReadOptions = DEFAULT_OPTIONS,
    replace: bool = False,
) -> Report:
    """Send files to a vector DB and return the report, completed.

    One bad file is reported and the rest goes on. The same files again change nothing.

    Args:
        client: An open client.
        vector_db: The registration as the server returned it.
        files: What `collect` found.
        report: What `collect` passed over.
        advance: Called after each batch.
        options: How files are read.
        replace: Whether documents of the same ids from other places are replaced.

    Raises:
        CommandError: The server or its backend failed; files that were stored stay stored.
        CancelledError: It was interrupted; the same holds, and the report says how many.
    """
    started = time.monotonic()
    sending = _Sending(client, vector_db, report, replace=replace)
    for batch in _batches(files):
        documents = _read_batch(batch, report, options)
        try:
            await sending.send(documents)
        except CommandError as error:
            error.hint = f"{error.hint} Stored before that: {report.documents} documents.".strip()
            raise
        finally:
            report.seconds = time.monotonic() - started
        advance(len(batch), sum(file.size for file in batch))
    return report


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


def _read_batch(
    batch: Sequence[SourceFile], report: Report, options: ReadOptions
) -> list[tuple[SourceFile, JSON]]:
    documents = []
    for file in batch:
        try:
            documents.append((file, read_document(file, options, report)))
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
    return documents


class _Sending:
    """Sends documents to one vector DB and keeps the report."""

    def __init__(self, client: Client, vector_db: JSON, report: Report, *, replace: bool) -> None:
        self._client = client
        self._vector_db_id = vector_db["identifier"]
        self._report = report
        self._replace = replace

    async def send(self, documents: Sequence[tuple[SourceFile, JSON]]) -> None:
        """Send a batch; where it is refused, each document by itself."""
        if not documents:
            return
        bodies = [document for _, document in documents]
        try:
            reply = await self._client.insert(
                self._vector_db_id, bodies, replace_others=self._replace
            )
        except CommandError as error:
            if not _may_be_one_documents_fault(error, bodies):
                raise
            if len(documents) > 1:
                for document in documents:
                    await self.send([document])
                return
            self._report.failed.append((documents[0][0].source, _reason(error)))
            return
        self._count(documents, reply)

    def _count(self, documents: Sequence[tuple[SourceFile, JSON]], reply: JSON) -> None:
        self._report.notes += reply.get("notes") or []
        unchanged, unread = set(reply.get("unchanged") or ()), reply.get("unread") or {}
        for file, _ in documents:
            if file.document_id in unchanged:
                self._report.unchanged += 1
                continue
            self._report.documents += 1
            self._report.size += file.size
            if unread.get(file.document_id):
                left = ", ".join(unread[file.document_id])
                self._report.notes.append(f"{file.source}: not read: {left}")


def _reason(error: CommandError) -> str:
    """Return why a document was refused; a conflict with what to do about it here."""
    if error.status == 409:
        return (
            f"{error.message} Name the folder that holds both, and each gets an id of its own; "
            "or replace the other one with --replace."
        )
    return f"{error.message} {error.hint}".strip()


def _may_be_one_documents_fault(error: CommandError, documents: Sequence[JSON]) -> bool:
    """Return True if other documents may still go in: a missing reader stops only its type."""
    needs_reader = any(isinstance(document["content"], dict) for document in documents)
    return error.status in _ABOUT_ONE_DOCUMENT or (error.status == 424 and needs_reader)
