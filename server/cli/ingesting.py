"""The work of `corral ingest`: submit files in batches, follow their jobs, watch folders."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from corral.server.cli import display
from corral.server.cli.client import Client
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.files import (
    DEFAULT_OPTIONS,
    BadFileError,
    ReadOptions,
    Report,
    SkippedFileError,
    SourceFile,
    collect,
    origin_of,
    read_document,
    within_limits,
)
from corral.server.cli.jobs import LOOK_EVERY_SECONDS
from corral.server.cli.progress import IngestProgress, ingest_bars
from corral.server.cli.records import rows_of
from corral.server.cli.sql import rows_of_query

BATCH_BYTES = 1024 * 1024
BATCH_DOCUMENTS = 64
"""Maximum documents and bytes of a batch."""
AHEAD_BYTES = 8 * 1024 * 1024
AHEAD_DOCUMENTS = 512
"""Maximum documents in the queue, and so the maximum left behind by an interruption."""
SERVER_ERRORS = 3
"""The run ends after this many consecutive documents that failed because of the server."""

_ABOUT_ONE_DOCUMENT = {400, 409, 413, 415, 422, 500}
"""After these statuses, the documents of a batch are sent again one by one, to find the bad one."""
NAMES_SHOWN = 5
DOCUMENTS_PER_PAGE = 10_000
QUIET_MILLISECONDS = 800
"""Milliseconds without a change before the changes of a watched folder are ingested."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mode:
    """Options of `corral ingest`, except those for files.

    Attributes:
        create: True to register the vector DB if it does not exist.
        sync: True to delete documents whose files are gone.
        watch: True to continue until interrupted.
        yes: True to delete without confirmation.
        as_json: True to print JSON.
    """

    create: bool = False
    sync: bool = False
    watch: bool = False
    yes: bool = False
    as_json: bool = False


async def run(
    client: Client, db: str, paths: Sequence[Path], options: ReadOptions, mode: Mode
) -> None:
    """Ingest files into a vector DB and print the result."""
    registered = await client.vector_dbs()
    vector_db = next((one for one in registered if one.get("identifier") == db), None)
    if vector_db is None and not mode.create:
        raise CommandError(
            f"There is no vector DB {db!r}.",
            hint=f"Create it: corral dbs create {db}, or pass --create.",
            exit_code=BAD_INPUT,
        )
    report = Report()
    options = await _limited(client, options)
    groups = _groups(paths, report, options)
    files = await _next_group(groups, report, options) or []
    printed = print_problems(report)
    if options.title is not None and len(files) > 1:
        raise CommandError(
            f"--title is for one file (got {len(files)}).",
            hint="Ingest that file by itself, or leave --title out.",
            exit_code=BAD_INPUT,
        )
    if not (files or report.failed or mode.sync or mode.watch):
        raise CommandError("There is nothing to ingest.", exit_code=BAD_INPUT)
    if vector_db is None:
        vector_db = await client.register(db, {})
    _check_overlap(vector_db, options)
    run = _Run(client, vector_db, paths, options, mode)
    run.changed(files)
    await run.ingest(files, report)
    while (more := await _next_group(groups, report, options)) is not None:
        await run.ingest(more, report)
    print_problems(report, printed)
    deleted = await run.delete_gone() if mode.sync else []
    if mode.as_json:
        shown = {"vector_db_id": db, **dataclasses.asdict(report)}
        display.show_json({**shown, "deleted": deleted} if mode.sync else shown)
    else:
        display.show(display.clean(f"{db}: ingested {summary(report)}"))
    if mode.watch:
        await run.watch()
    if report.failed:
        what = "Rows and files" if options.records else "Files"
        raise CommandError(f"{what} that were not ingested: {len(report.failed)}.")


def _groups(
    paths: Sequence[Path], report: Report, options: ReadOptions
) -> Iterator[list[SourceFile]]:
    """Yield the documents of the paths in one step, of a query in several."""
    if options.query and options.records:
        yield from rows_of_query(options.query, options.records, options, report)
    else:
        yield _documents(paths, report, options)


async def _next_group(
    groups: Iterator[list[SourceFile]], report: Report, options: ReadOptions
) -> list[SourceFile] | None:
    """Return the next documents that the server takes; None at the end."""
    files = await asyncio.to_thread(next, groups, None)
    return None if files is None else within_limits(files, report, options)


def _documents(paths: Sequence[Path], report: Report, options: ReadOptions) -> list[SourceFile]:
    """Return the files under these paths, or with `--records` their rows."""
    files = collect(paths, report, options)
    return rows_of(files, options.records, options, report) if options.records else files


def _check_overlap(vector_db: JSON, options: ReadOptions) -> None:
    """Refuse an overlap that the server would refuse for every document."""
    registered = (vector_db.get("chunking") or {}).get("chunk_size_in_tokens", 0)
    size = options.chunk_size_in_tokens or registered
    overlap = options.overlap_in_tokens
    if overlap is not None and overlap * 2 > size:
        raise CommandError(
            f"--overlap must be at most half of the chunk size, {size} (got {overlap}).",
            exit_code=BAD_INPUT,
        )


async def _limited(client: Client, options: ReadOptions) -> ReadOptions:
    """Return options with the limits of the server, which refuses larger documents."""
    limits = await client.call("GET", "/v1/limits")
    return dataclasses.replace(
        options,
        max_characters=limits["document"]["max_characters"],
        max_body_mib=limits["server"]["max_body_mib"],
        reader_types=tuple(limits["reader_types"]),
    )


@dataclasses.dataclass(slots=True)
class _Run:
    """One `corral ingest`: a vector DB and its files and folders."""

    client: Client
    vector_db: JSON
    paths: Sequence[Path]
    options: ReadOptions
    mode: Mode
    seen: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def db(self) -> str:
        """The vector DB's id."""
        return str(self.vector_db["identifier"])

    async def ingest(self, files: Sequence[SourceFile], report: Report) -> None:
        """Ingest files; if interrupted, print what is stored and how to resume."""
        size = sum(file.size for file in files)
        try:
            with ingest_bars(len(files), size) as bars:
                await ingest_files(self.client, self.vector_db, files, report, bars, self.options)
        except asyncio.CancelledError:
            stored = display.counted(report.documents, "document")
            display.note(
                f"Interrupted. Stored: {stored}, {report.unchanged:,} unchanged; those in progress "
                "are stored whole or not at all. Run the same command again to continue."
            )
            raise

    async def delete_gone(self) -> list[str]:
        """Delete the documents of deleted files in the folders, and return their ids."""
        missing = [each async for each in self._gone()]
        if not missing:
            return []
        display.note(f"Gone from the folder: {', '.join(missing)}")
        question = f"Delete {display.counted(len(missing), 'document')}?"
        if not self.mode.yes and not await asyncio.to_thread(click.confirm, question):
            return []
        for document_id in missing:
            await self.client.delete_document(self.db, document_id)
        return missing

    async def _gone(self) -> AsyncIterator[str]:
        """Yield the documents from these folders whose files no longer exist."""
        folders = [path for path in self.paths if path.is_dir()]
        after, more = "", True
        while more:
            page = await self.client.documents(self.db, after, DOCUMENTS_PER_PAGE)
            after, more = page["last_id"], page["has_more"]
            for document_id in (each["document_id"] for each in page["data"]):
                missing = [folder / document_id for folder in folders]
                if missing and not any(map(os.path.lexists, missing)):
                    document = await self.client.document(self.db, document_id, 0, 1)
                    record = (document["chunks"] or [{}])[0].get("chunk_metadata") or {}
                    if record.get("document_origin") in [origin_of(path) for path in missing]:
                        yield document_id

    async def watch(self) -> None:
        """Wait for changes and ingest them, until Ctrl-C between two rounds."""
        from watchfiles import awatch

        display.note("Watching; press Ctrl-C to stop.")
        changes = awatch(
            *self.paths,
            debounce=QUIET_MILLISECONDS,
            step=200,
            yield_on_timeout=True,
            rust_timeout=QUIET_MILLISECONDS,
        )
        first = True  # for changes before the watch began
        while (noticed := await _next(changes)) is not None:
            if noticed or first:
                await self._round()
            first = False

    async def _round(self) -> None:
        report = Report()
        collected = await asyncio.to_thread(_documents, self.paths, report, self.options)
        report.skipped.clear()  # printed at the start
        files = within_limits(self.changed(collected), report, self.options)
        if files or report.failed:
            await self.ingest(files, report)
            print_problems(report)
            display.show(display.clean(f"{self.db}: ingested {summary(report)}"))
        if self.mode.sync and (deleted := await self.delete_gone()):
            count = display.counted(len(deleted), "document")
            display.show(display.clean(f"{self.db}: deleted {count}"))

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Return the files that are new or changed since the last call."""
        now = {file.document_id: (file.changed_at, file.size) for file in files}
        before, self.seen = self.seen, now
        return [f for f in files if before.get(f.document_id) != now[f.document_id]]


async def _next(changes: AsyncIterator[set[Any]]) -> set[Any] | None:
    """Return the next changes; None if Ctrl-C comes first."""
    try:
        return await anext(changes)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return None


def summary(report: Report) -> str:
    """Return a sentence about what an ingest stored, with its time."""
    stored = f"{display.counted(report.documents, 'document')} ({display.size(report.size)})"
    rest = f"; {report.unchanged:,} unchanged" if report.unchanged else ""
    return f"{stored} in {report.seconds:.1f} s{rest}"


def print_problems(report: Report, printed: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Print to stderr the skipped and failed files with their reasons, and the notes.

    Args:
        report: A report that may still grow.
        printed: Numbers of skipped and failed files that have been printed already.

    Returns:
        `printed` for the next call.
    """
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in report.skipped[printed[0] :]:
        by_reason[reason].append(name)
    for reason, names in sorted(by_reason.items()):
        display.note(f"Skipped ({reason}): {_some(sorted(names))}")
    for name, reason in report.failed[printed[1] :]:
        display.note(f"Failed: {name}: {reason}")
    for note in dict.fromkeys(report.notes):
        display.note(f"Note: {note}")
    return len(report.skipped), len(report.failed)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


async def ingest_files(
    client: Client,
    vector_db: JSON,
    files: Sequence[SourceFile],
    report: Report,
    bars: IngestProgress,
    options: ReadOptions = DEFAULT_OPTIONS,
) -> Report:
    """Ingest files into a vector DB and return the completed report.

    Bad files are reported, and the others are ingested. Unchanged files change nothing.

    Args:
        client: An open client.
        vector_db: The registration as the server returned it.
        files: Result of `collect`.
        report: Report of `collect`, with skipped files.
        bars: Shows the progress.
        options: Options for reading files.

    Raises:
        CommandError: The server or its backend failed; files that were stored stay stored.
        CancelledError: The ingest was interrupted; stored files stay stored, and the report counts
            them.
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
        stored = f"Stored before that: {display.counted(report.documents, 'document')}."
        error.hint = f"{error.hint} {stored}".strip()
        raise
    finally:
        report.seconds += time.monotonic() - started
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


@dataclasses.dataclass(slots=True)
class _Following:
    """Submits documents to one vector DB, follows their jobs, and keeps the report."""

    client: Client
    vector_db_id: str
    report: Report
    bars: IngestProgress
    options: ReadOptions
    batch_id: str | None = None
    version: int = -1
    waiting: dict[str, SourceFile] = dataclasses.field(default_factory=dict)
    server_errors: int = 0

    async def submit(self, documents: Sequence[tuple[SourceFile, JSON]]) -> None:
        """Submit a batch; if it is refused, submit each document separately."""
        if not documents:
            return
        bodies = [document for _, document in documents]
        try:
            reply = await self.client.submit(
                self.vector_db_id,
                bodies,
                batch_id=self.batch_id,
                same_origin_only=not self.options.replace,
                chunk_size_in_tokens=self.options.chunk_size_in_tokens,
                overlap_in_tokens=self.options.overlap_in_tokens,
                split_on=self.options.split_on,
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
        """Wait until at most this many documents and bytes are unfinished."""
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
        """Read the jobs that changed since the last call."""
        more = self.batch_id is not None
        while more:
            page = await self.client.changed_jobs(str(self.batch_id), self.version)
            for job in page["data"]:
                self.version = max(self.version, job["version"])
                await self._update(job)
            more = page["has_more"]

    async def _update(self, job: JSON) -> None:
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
        """End the run if the server fails every document."""
        self.server_errors += job["error_code"] == "server_error"
        none_went_in = not self.waiting and not self.report.documents
        if self.server_errors >= SERVER_ERRORS or (self.server_errors and none_went_in):
            await self.client.call("POST", "/v1/jobs/cancel", {"batch_id": self.batch_id})
            raise CommandError(str(job["error_message"]))


def _reason(error: CommandError) -> str:
    """Return the reason of a refusal, with a hint if another folder has the same id."""
    if error.status == 409 and "from another place" in error.message:
        return (
            f"{error.message} Name the folder that holds both, and each gets an id of its own; "
            "or replace the other one with --replace."
        )
    return f"{error.message} {error.hint}".strip()
