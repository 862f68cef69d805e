"""`corral ingest`: a folder goes into a vector DB, and stays in step with it if that is asked."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import click

from corral.server.cli import display
from corral.server.cli.client import Client
from corral.server.cli.failures import BAD_INPUT, JSON, CommandError
from corral.server.cli.files import (
    ReadOptions,
    Report,
    SourceFile,
    collect,
    origin_of,
    within_limits,
)
from corral.server.cli.ingest import ingest as ingest_files
from corral.server.cli.progress import ingest_bars

NAMES_SHOWN = 5
DOCUMENTS_PER_PAGE = 10_000
QUIET_MILLISECONDS = 800
"""How long a folder that is watched must be quiet before its changes go in."""


async def ingest(
    client: Client,
    db: str,
    paths: Sequence[Path],
    *,
    create: bool,
    as_json: bool,
    options: ReadOptions,
    sync: bool = False,
    watch: bool = False,
    ask: bool = True,
) -> None:
    """Put files into a vector DB and say what happened."""
    known = await client.vector_dbs()
    vector_db = next((one for one in known if one.get("identifier") == db), None)
    if vector_db is None and not create:
        raise CommandError(
            f"There is no vector DB {db!r}.",
            hint=f"Create it: corral dbs create {db}, or pass --create.",
            exit_code=BAD_INPUT,
        )
    report = Report()
    options = await _limited(client, options)
    files = within_limits(collect(paths, report, options), report, options)
    said = say_passed_over(report)
    if options.title is not None and len(files) > 1:
        raise CommandError(
            f"--title is for one file (got {len(files)}).",
            hint="Ingest that file by itself, or leave --title out.",
            exit_code=BAD_INPUT,
        )
    if not files and not report.failed and not sync and not watch:
        raise CommandError("There is nothing to ingest.", exit_code=BAD_INPUT)
    if vector_db is None:
        vector_db = await client.register(db, {})
    _check_overlap(vector_db, options)
    follow = _Watch(client, vector_db, paths, options, sync, ask)
    follow.changed(files)
    await _put_in(client, vector_db, files, report, options)
    say_passed_over(report, said)
    deleted = await _delete_gone(client, db, paths, ask=ask) if sync else []
    if as_json:
        told = {"vector_db_id": db, **dataclasses.asdict(report)}
        display.show_json({**told, "deleted": deleted} if sync else told)
    else:
        display.show(display.clean(f"{db}: ingested {summary(report)}"))
    if watch:
        await follow.run()
    if report.failed:
        raise CommandError(f"Files that were not ingested: {len(report.failed)}.")


def _check_overlap(vector_db: JSON, options: ReadOptions) -> None:
    """Refuse an overlap that the server would refuse for every document."""
    registered = (vector_db.get("chunking") or {}).get("chunk_size_in_tokens", 0)
    size = options.chunk_size or registered
    if options.overlap is not None and options.overlap * 2 > size:
        raise CommandError(
            f"--overlap must be at most half of the chunk size, {size} (got {options.overlap}).",
            exit_code=BAD_INPUT,
        )


async def _limited(client: Client, options: ReadOptions) -> ReadOptions:
    """Return options with the limits of the server, which would refuse what is larger."""
    limits = await client.call("GET", "/v1/limits")
    return dataclasses.replace(
        options,
        max_characters=limits["document"]["max_characters"],
        max_body_mib=limits["server"]["max_body_mib"],
    )


async def _put_in(
    client: Client,
    vector_db: JSON,
    files: Sequence[SourceFile],
    report: Report,
    options: ReadOptions,
) -> None:
    """Ingest files; if that is interrupted, say what is stored and how to resume."""
    size = sum(file.size for file in files)
    try:
        with ingest_bars(len(files), size) as bars:
            await ingest_files(client, vector_db, files, report, bars, options)
    except asyncio.CancelledError:
        stored = display.counted(report.documents, "document")
        display.note(
            f"Interrupted. Stored: {stored}, {report.unchanged:,} unchanged; those in progress "
            "are stored whole or not at all. Run the same command again to continue."
        )
        raise


def summary(report: Report) -> str:
    """Return what an ingest stored and how long it took."""
    stored = f"{display.counted(report.documents, 'document')} ({display.size(report.size)})"
    rest = f"; {report.unchanged:,} unchanged" if report.unchanged else ""
    return f"{stored} in {report.seconds:.1f} s{rest}"


def say_passed_over(report: Report, said: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Print to stderr which files were skipped and which failed, each with why, and the notes.

    Args:
        report: What there is to say.
        said: How many skipped and failed files have been named already.

    Returns:
        `said` of the next time.
    """
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in report.skipped[said[0] :]:
        by_reason[reason].append(name)
    for reason, names in sorted(by_reason.items()):
        display.note(f"Skipped ({reason}): {_some(sorted(names))}")
    for name, reason in report.failed[said[1] :]:
        display.note(f"Failed: {name}: {reason}")
    for note in dict.fromkeys(report.notes):
        display.note(f"Note: {note}")
    return len(report.skipped), len(report.failed)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


# --- what is gone from the folder -----------------------------------------------------------------


async def _delete_gone(client: Client, db: str, paths: Sequence[Path], *, ask: bool) -> list[str]:
    """Delete the documents whose files are gone from the folders, and return their ids."""
    gone = [each async for each in _gone(client, db, [path for path in paths if path.is_dir()])]
    if not gone:
        return []
    display.note(f"Gone from the folder: {', '.join(gone)}")
    question = f"Delete {display.counted(len(gone), 'document')}?"
    if ask and not await asyncio.to_thread(click.confirm, question):
        return []
    for document_id in gone:
        await client.delete_document(db, document_id)
    return gone


async def _gone(client: Client, db: str, folders: Sequence[Path]) -> AsyncIterator[str]:
    """Yield the documents that are from these folders, and whose files are no longer there."""
    after, more = "", True
    while more:
        page = await client.documents(db, after, DOCUMENTS_PER_PAGE)
        after, more = page["last_id"], page["has_more"]
        for document_id in (each["document_id"] for each in page["data"]):
            missing = [folder / document_id for folder in folders]
            if missing and not any(map(os.path.lexists, missing)):
                found = await client.document(db, document_id, 0, 1)
                record = (found["chunks"] or [{}])[0].get("chunk_metadata") or {}
                if record.get("document_origin") in [origin_of(path) for path in missing]:
                    yield document_id


# --- watching ------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Watch:
    """Keeps a vector DB in step with folders until it is interrupted."""

    client: Client
    vector_db: JSON
    paths: Sequence[Path]
    options: ReadOptions
    sync: bool
    ask: bool
    seen: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    async def run(self) -> None:
        """Wait for changes and put them in; Ctrl-C between two rounds is the regular end."""
        from watchfiles import awatch  # noqa: PLC0415 - start-up time

        display.note("Watching; press Ctrl-C to stop.")
        waiting = {"yield_on_timeout": True, "rust_timeout": QUIET_MILLISECONDS}
        changes = awatch(*self.paths, debounce=QUIET_MILLISECONDS, step=200, **waiting)  # type: ignore[arg-type]
        first = True  # for what has changed before the watch began
        while (noticed := await _next(changes)) is not None:
            if noticed or first:
                await self._round()
            first = False

    async def _round(self) -> None:
        report, db = Report(), self.vector_db["identifier"]
        found = await asyncio.to_thread(collect, self.paths, report, self.options)
        report.skipped.clear()  # which was said at first
        files = within_limits(self.changed(found), report, self.options)
        if files or report.failed:
            await _put_in(self.client, self.vector_db, files, report, self.options)
            say_passed_over(report)
            display.show(display.clean(f"{db}: ingested {summary(report)}"))
        if self.sync:
            deleted = await _delete_gone(self.client, db, self.paths, ask=self.ask)
            if deleted:
                told = display.counted(len(deleted), "document")
                display.show(display.clean(f"{db}: deleted {told}"))

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Return the files that are new or changed since the last call."""
        now = {file.document_id: (file.changed_at, file.size) for file in files}
        before, self.seen = self.seen, now
        return [f for f in files if before.get(f.document_id) != now[f.document_id]]


async def _next(changes: AsyncIterator[set[Any]]) -> set[Any] | None:
    """Return the next changes; None where Ctrl-C comes first."""
    try:
        return await anext(changes)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return None
