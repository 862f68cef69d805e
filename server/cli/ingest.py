"""From files to jobs: read them, submit them in batches, follow them until they are stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from corral.server.cli.client import Client
from corral.server.cli.display import counted
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.files import (
    DEFAULT_OPTIONS,
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    read_document,
)
from corral.server.cli.jobs import LOOK_EVERY_SECONDS
from corral.server.cli.progress import IngestProgress

BATCH_BYTES = 1024 * 1024
BATCH_DOCUMENTS = 64
"""A batch ends at either bound."""
AHEAD_BYTES = 8 * 1024 * 1024
AHEAD_DOCUMENTS = 512
"""How much is queued ahead of the workers: an interruption leaves no more than that behind."""
SERVER_ERRORS = 3
"""Documents that fail one after the other by no fault of theirs before the run ends."""

_ABOUT_ONE_DOCUMENT = {400, 409, 413, 415, 422, 500}
"""Statuses after which a batch is sent again document by document, to find the one to blame."""


async def ingest(
    client: Client,
    vector_db: JSON,
    files: Sequence[SourceFile],
    report: Report,
    bars: IngestProgress,
    options: ReadOptions = DEFAULT_OPTIONS,
) -> Report:
    """Put files into a vector DB and return the report, completed.

    One bad file is reported and the rest goes on. The same files again change nothing.

    Args:
        client: An open client.
        vector_db: The registration as the server returned it.
        files: What `collect` found.
        report: What `collect` passed over.
        bars: Where the progress is shown.
        options: How files are read.

    Raises:
        CommandError: The server or its backend failed; files that were stored stay stored.
        CancelledError: It was interrupted; the same holds, and the report says how many.
    """
    started = time.monotonic()
    following = _Following(client, vector_db["identifier"], report, bars, options)
    try:
        for batch in _batches(files):
            await following.until(AHEAD_DOCUMENTS, AHEAD_BYTES)
            documents = await asyncio.to_thread(_read_batch, batch, report, options, bars)
            await following.submit(documents)
        await following.until(0, 0)
    except CommandError as error:
        stored = f"Stored before that: {counted(report.documents, 'document')}."
        error.hint = f"{error.hint} {stored}".strip()
        raise
    finally:
        report.seconds = time.monotonic() - started
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
    batch: Sequence[SourceFile], report: Report, options: ReadOptions, bars: IngestProgress
) -> list[tuple[SourceFile, JSON]]:
    documents = []
    for file in batch:
        try:
            documents.append((file, read_document(file, options, report)))
            continue
        except SkippedFileError as reason:
            report.skipped.append((file.source, str(reason)))
        except BadFileError as reason:
            report.failed.append((file.source, str(reason)))
        bars.done(file.source, file.size)
    return documents


@dataclass(slots=True)
class _Following:
    """Submits documents to one vector DB, follows their jobs, and keeps the report."""

    client: Client
    vector_db_id: str
    report: Report
    bars: IngestProgress
    options: ReadOptions
    batch_id: str | None = None
    version: int = -1
    waiting: dict[str, SourceFile] = field(default_factory=dict)
    server_errors: int = 0

    async def submit(self, documents: Sequence[tuple[SourceFile, JSON]]) -> None:
        """Submit a batch; where it is refused, each document by itself."""
        if not documents:
            return
        bodies = [document for _, document in documents]
        try:
            reply = await self.client.submit(
                self.vector_db_id,
                bodies,
                self.batch_id,
                replace_others=self.options.replace,
                chunk_size=self.options.chunk_size,
                overlap=self.options.overlap,
            )
        except CommandError as error:
            if error.status not in _ABOUT_ONE_DOCUMENT:
                raise
            if len(documents) > 1:
                for document in documents:
                    await self.submit([document])
                return
            self._failed(documents[0][0], _reason(error))
            return
        self._count(documents, reply)

    async def until(self, documents: int, size: int) -> None:
        """Wait until at most so many documents and bytes are not finished."""
        while len(self.waiting) > documents or self._size() > size:
            await self._look()
            if len(self.waiting) > documents or self._size() > size:
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _size(self) -> int:
        return sum(file.size for file in self.waiting.values())

    def _count(self, documents: Sequence[tuple[SourceFile, JSON]], reply: JSON) -> None:
        by_id = {file.document_id: file for file, _ in documents}
        for document_id in reply.get("unchanged") or ():
            file = by_id.pop(document_id)
            self.report.unchanged += 1
            self.bars.done(file.source, file.size)
        self.batch_id = reply.get("batch_id") or self.batch_id
        for job in reply.get("jobs") or ():
            self.waiting[job["job_id"]] = by_id[job["document_id"]]

    async def _look(self) -> None:
        """Take notice of what has become of the jobs since the last look."""
        more = self.batch_id is not None
        while more:
            page = await self.client.changed_jobs(str(self.batch_id), self.version)
            for job in page["data"]:
                self.version = max(self.version, job["version"])
                await self._take_notice(job)
            more = page["has_more"]

    async def _take_notice(self, job: JSON) -> None:
        file = self.waiting.get(job["job_id"])
        if file is None:
            return
        if job["status"] in ("queued", "running"):
            if job["status"] == "running":
                self.bars.at_work(file.source, file.size, job["progress"])
            return
        del self.waiting[job["job_id"]]
        if job["status"] == "completed":
            self.server_errors = 0
            self.report.documents += 1
            self.report.size += file.size
            self.report.notes += [f"{file.source}: {note}" for note in job["notes"]]
            self.bars.done(file.source, file.size, job["progress"]["embedded"])
        else:
            self._failed(file, job["error_message"] or "cancelled")
            await self._stop_if_all_fail(job)

    def _failed(self, file: SourceFile, reason: str) -> None:
        self.report.failed.append((file.source, reason))
        self.bars.done(file.source, file.size)

    async def _stop_if_all_fail(self, job: JSON) -> None:
        """End the run where the server is to blame, and not a document."""
        self.server_errors += job["error_code"] == "server_error"
        none_went_in = not self.waiting and not self.report.documents
        if self.server_errors >= SERVER_ERRORS or (self.server_errors and none_went_in):
            await self.client.call("POST", "/v1/jobs/cancel", {"batch_id": self.batch_id})
            raise CommandError(str(job["error_message"]))


def _reason(error: CommandError) -> str:
    """Return why a document was refused; of one from another folder what to do about it here."""
    if error.status == 409 and "from another place" in error.message:
        return (
            f"{error.message} Name the folder that holds both, and each gets an id of its own; "
            "or replace the other one with --replace."
        )
    return f"{error.message} {error.hint}".strip()
