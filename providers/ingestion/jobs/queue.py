"""The queue of jobs, `jobs.db`: shared by the tasks and processes of a data folder.

A process that works on a job is the job's owner. It writes only while the row still says so, in the
same transaction: whoever cancels, replaces or takes over a job changes the row, and the owner finds
out with its next write. Before an owner stores a document it marks the row `storing`; from then on
no other process changes it until the document is stored or the owner is dead.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import apsw

from corral.api.errors import Conflict
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.base.database import Database
from corral.providers.ingestion.jobs.jobs import (
    COLUMNS,
    ErrorCode,
    Job,
    Step,
    Submission,
    document_json,
    job_of,
    new_row,
    progress_json,
)
from corral.providers.ingestion.jobs.reader import (
    NEWEST,
    OF_VECTOR_DB,
    OVERTAKEN,
    RECORDED,
    TABLES,
    UNFINISHED,
    JobReader,
    Rows,
    Scope,
    followed,
    next_job,
    next_jobs,
    place_of,
    readable_by,
)

REMEDY = "Move it away and ingest again what had not been stored yet."

MAX_ATTEMPTS = 5
"""Maximum attempts of a job without headway."""

REPLACED = "A newer version of the document was submitted."

RELABELING = 2
"""The value of `storing` while a stored document gets other attributes. Such a job is never run
again: that would restore the submitted document with its old acl.
"""

OWN = "number = ? AND owner = ? AND status = 'running'"
LOST = "owner = ? AND status = 'running'"
QUEUED = "status = 'queued', owner = NULL, storing = 0"
DONE = "status = 'completed', owner = NULL, storing = 0"
FAILED = "status = 'failed', owner = NULL, storing = 0, error_code = ?, error_message = ?"
NO_ERROR = "error_code = NULL, error_message = NULL"
CANCELLED = "status = 'cancelled', owner = NULL, storing = 0, error_message = ?"
NEXT_VERSION = (
    "max(?, (SELECT ifnull(max(version), 0) + 1 FROM jobs same WHERE same.tenant = {tenant}))"
)
"""Grows within a tenant, also where its newest jobs were removed; says nothing of others."""
CHANGED = f"version = {NEXT_VERSION.format(tenant='jobs.tenant')}, updated_at = ?"


class NoLongerOurs(Exception):
    """The job was cancelled, replaced or removed while this process worked on it."""


class JobQueue:
    """All jobs of a data folder: what people submit and cancel, and what owners write.

    Its methods never wait for a job.

    Args:
        home: The data folder.
        clock: Returns the time in Unix seconds.

    Attributes:
        reader: Lists of jobs.
    """

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = Database(home / "jobs.db", TABLES, remedy=REMEDY)
        self._clock = clock
        self._watches: list[tuple[set[str], asyncio.Event]] = []
        self.reader = JobReader(self._file)

    async def close(self) -> None:
        """Close the file, once the calls at work have ended."""
        await self._file.close()

    @contextmanager
    def watching(self, jobs: Sequence[Job]) -> Iterator[asyncio.Event]:
        """Yield an event that is set once this process has ended all of these jobs.

        Jobs that another process ends, or that are cancelled, do not set it.
        """
        watch = ({job.job_id for job in jobs}, asyncio.Event())
        self._watches.append(watch)
        try:
            yield watch[1]
        finally:
            self._watches.remove(watch)

    # --- submitting --------------------------------------------------------------------------

    async def add(
        self, submissions: Sequence[Submission], batch_id: str | None, *, same_origin: bool
    ) -> list[Job]:
        """Store jobs durably and return them.

        An unfinished job with the same content is returned instead of a new job. Other unfinished
        jobs of the same document are cancelled, unless they are storing it: then the new job waits.

        Raises:
            Conflict: `same_origin`, and an unfinished job of a document is from another origin;
                nothing was stored.
        """

        def insert(table: apsw.Connection) -> list[Job]:
            numbers = [self._insert(table, one, batch_id, same_origin) for one in submissions]
            # Read here: the next write may remove one.
            return [read_job(table, number) for number in numbers]

        return await self._file.write(insert)

    def _insert(
        self, table: apsw.Connection, new: Submission, batch_id: str | None, same_origin: bool
    ) -> int:
        request, vector_db, now = new.request, new.vector_db, self._clock()
        origin = request.document.origin if request.document else None
        place = (*place_of(vector_db), new.document_id)
        at = f"{OF_VECTOR_DB} AND document_id = ?"
        _check_hidden(table, new.principal, f"{at} AND {UNFINISHED}", place)
        query = f"SELECT number, request, origin FROM jobs WHERE {at} AND {UNFINISHED}"  # noqa: S608
        for number, digest, other in cast(Rows, table.execute(query, place).fetchall()):
            if same_origin and origin and other and origin != other:
                raise _other_origin(new.document_id)
            if digest == new.digest:
                regroup = f"UPDATE jobs SET batch_id = ?, {CHANGED} WHERE number = ?"  # noqa: S608
                table.execute(regroup, (batch_id, int(now * 1000), now, number))
                return int(number)
        self._cancel(table, f"{at} AND {UNFINISHED}", place, REPLACED)
        earlier = f"SELECT number FROM jobs WHERE {at} AND NOT {UNFINISHED}"  # noqa: S608
        table.execute(f"DELETE FROM documents WHERE job IN ({earlier})", place)  # noqa: S608
        row = new_row(new, batch_id, now)
        marks = ", ".join("?" * len(row))
        table.execute(
            f"INSERT INTO jobs (version, {', '.join(row)})"  # noqa: S608 - our own names
            f" VALUES ({NEXT_VERSION.format(tenant='?')}, {marks})",
            (int(now * 1000), vector_db.tenant, *row.values()),
        )
        number = table.last_insert_rowid()
        if request.document:
            text = document_json(request.document)
            table.execute("INSERT INTO documents VALUES (?, ?)", (number, text))
        return number

    # --- changing ----------------------------------------------------------------------------

    async def cancel(self, scope: Scope, reason: str | None = None) -> int:
        """Cancel jobs that are neither final nor storing; return their number."""
        where, values = scope.where()
        return await self._file.write(
            lambda table: self._cancel(table, f"{where} AND {UNFINISHED}", values, reason)
        )

    def _cancel(
        self, table: apsw.Connection, where: str, values: Iterable[Any], reason: str | None
    ) -> int:
        return self._update(table, CANCELLED, (reason,), f"{where} AND NOT storing", tuple(values))

    async def retry(self, scope: Scope) -> int:
        """Queue failed and cancelled jobs again; return their number.

        Jobs that a newer job of the document has replaced do not change, nor do jobs without a
        stored document.
        """
        where, values = scope.where()
        there = "(file_id NOT NULL OR EXISTS (SELECT 1 FROM documents WHERE job = number))"
        change = f"{QUEUED}, {NO_ERROR}, attempts = 0, not_before = 0, progress = '{{}}'"
        last = f"{NEWEST} AND NOT {OVERTAKEN}"
        condition = f"{where} AND status IN ('failed', 'cancelled') AND {last} AND {there}"
        return await self._file.write(
            lambda table: self._update(table, change, (), condition, tuple(values))
        )

    async def follow(self, vector_db: VectorDB, acls: Mapping[str, Collection[str]]) -> None:
        """Record the new acls of documents in their jobs; see `followed`."""
        values = (*place_of(vector_db), json.dumps(list(acls)))

        def record(table: apsw.Connection) -> None:
            rows = cast(Rows, table.execute(RECORDED, values).fetchall())
            for number, acl in followed(rows, acls).items():
                self._update(table, "acl = ?", (json.dumps(acl),), "number = ?", (number,))

        await self._file.write(record)

    async def remove(self, scope: Scope, version: int) -> bool:
        """Delete the jobs that the reader may change; return False, deleting none, if one started.

        Args:
            scope: The jobs. Jobs of hidden chunks stay, as the chunks do.
            version: Version of the last change when none of them was running.
        """
        where, values = scope.where()
        begun = "(status = 'running' OR version > ? AND status <> 'queued')"
        changing, chosen = replace(scope, changing=True).where()

        def delete(table: apsw.Connection) -> bool:
            query = f"SELECT 1 FROM jobs WHERE {where} AND {begun} LIMIT 1"  # noqa: S608 - ours
            if table.execute(query, (*values, version)).fetchall():
                return False
            numbers = f"SELECT number FROM jobs WHERE {changing}"  # noqa: S608 - our own text
            table.execute(f"DELETE FROM documents WHERE job IN ({numbers})", chosen)  # noqa: S608 - as above
            table.execute(f"DELETE FROM jobs WHERE number IN ({numbers})", chosen)  # noqa: S608 - as above
            return True

        return await self._file.write(delete)

    async def sweep(self, gone: Collection[tuple[str, str, float]], before: float) -> int:
        """Delete the jobs of deleted vector DBs, and old replaced jobs; return their number.

        Args:
            gone: Deleted vector DBs, in the form of `JobReader.vector_dbs`.
            before: Replaced jobs that changed before this time are deleted, in Unix seconds.
        """

        def delete(table: apsw.Connection) -> int:
            at_first = table.total_changes()
            table.executemany(
                f"DELETE FROM jobs WHERE {OF_VECTOR_DB} AND status <> 'running'",  # noqa: S608
                list(gone),
            )
            old = f"NOT {UNFINISHED} AND updated_at < ? AND NOT {NEWEST}"
            table.execute(f"DELETE FROM jobs WHERE {old}", (before,))  # noqa: S608 - our own text
            count = table.total_changes() - at_first
            table.execute("DELETE FROM documents WHERE job NOT IN (SELECT number FROM jobs)")
            return count

        return await self._file.write(delete)

    # --- working -----------------------------------------------------------------------------

    async def claim(self, owner: str) -> Job | None:
        """Claim the next job and return it; None if no job waits.

        Jobs with earlier attempts come last, so that a job that crashes its process does not block
        other jobs. A document has one running job at a time.
        """
        if not await self._file.read("SELECT 1 FROM jobs WHERE status = 'queued' LIMIT 1"):
            return None

        def take(table: apsw.Connection) -> Job | None:
            found = next_job(table, self._clock())
            return None if found is None else self._take(table, owner, found.number)

        return await self._file.write(take)

    async def report(self, owner: str, steps: Sequence[Step], *, storing: bool = False) -> None:
        """Record progress; headway resets the number of attempts.

        The write need not wait for the disk: after a loss of power the owner is dead, too, and the
        process that takes the job over starts it again.

        Args:
            storing: True if the documents are stored next: they can no longer be cancelled.

        Raises:
            NoLongerOurs: One of the jobs was taken away; nothing was recorded.
        """

        def note(table: apsw.Connection) -> None:
            for step in steps:
                change = "progress = ?, storing = 1" if storing else "progress = ?"
                change += ", attempts = 1" if step.headway else ""
                self._update_own(table, step.job, owner, change, (progress_json(step.progress),))

        await self._file.write(note, durable=False)

    async def complete(
        self, owner: str, steps: Sequence[Step], *, claim_next: bool = False
    ) -> list[Job]:
        """Record that documents are stored, and delete their texts.

        Returns:
            With `claim_next`, the next jobs, claimed in the same write as in `next_jobs`; else an
            empty list.

        Raises:
            NoLongerOurs: One of the jobs was taken away; nothing was recorded or claimed.
        """
        change = f"{DONE}, {NO_ERROR}, progress = ?, usage_bytes = ?, notes = ?"

        def end(table: apsw.Connection) -> list[Job]:
            for step in steps:
                notes = json.dumps(list(step.notes))
                values = (progress_json(step.progress), step.usage_bytes, notes)
                self._update_own(table, step.job, owner, change, values)
                table.execute("DELETE FROM documents WHERE job = ?", (step.job.number,))
            return self._take_some(table, owner) if claim_next else []

        following = await self._file.write(end)
        self._ended([step.job for step in steps])
        return following

    async def fail(self, job: Job, owner: str, code: ErrorCode, message: str) -> None:
        """Record the final failure of a job.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        await self._file.write(
            lambda table: self._update_own(table, job, owner, FAILED, (code, message))
        )
        self._ended([job])

    async def postpone(self, job: Job, owner: str, message: str, until: float) -> None:
        """Queue a job again that may succeed later.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = f"{QUEUED}, error_message = ?, not_before = ?"
        own = f"{OWN} AND storing <> {RELABELING}"

        def give_back(table: apsw.Connection) -> None:
            if not self._requeue(table, change, (message, until), own, (job.number, owner)):
                raise NoLongerOurs

        await self._file.write(give_back)

    async def release(self, owner: str) -> int:
        """Queue the jobs of a stopping owner again; return their number."""
        change = f"{QUEUED}, attempts = max(0, attempts - 1)"

        def queue(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            return self._requeue(table, change, (), LOST, (owner,))

        return await self._file.write(queue)

    async def take_over(self, owner: str) -> int:
        """Queue the jobs of a dead owner again; return their number.

        A job with `MAX_ATTEMPTS` attempts without headway fails.
        """
        message = f"The process ended {MAX_ATTEMPTS} times while it worked on this document."
        often = f"{LOST} AND attempts >= {MAX_ATTEMPTS}"

        def take(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            failed = self._update(table, FAILED, ("server_error", message), often, (owner,))
            return failed + self._requeue(table, QUEUED, (), LOST, (owner,))

        return await self._file.write(take)

    async def change_attributes(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> bool:
        """Give a job other attributes, or return True if its stored chunks must have them first.

        Then the job is running for this owner until `relabeled`. A queued, failed or cancelled job
        will use them when it runs.

        Raises:
            NoLongerOurs: The job is running.
        """

        def change(table: apsw.Connection) -> bool:
            stored = "number = ? AND status = 'completed'"
            # Clear the digest, because new submissions are compared with the job's old content.
            claim = f"status = 'running', storing = {RELABELING}, owner = ?, request = ''"
            if self._update(table, claim, (owner,), stored, (job.number,)):
                return True
            waiting, text = "number = ? AND status <> 'running'", json.dumps(dict(attributes))
            other = "attributes = ?, request = ''"
            if not self._update(table, other, (text,), waiting, (job.number,)):
                raise NoLongerOurs
            return False

        return await self._file.write(change)

    async def relabeled(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> None:
        """Record the attributes that a stored document now has, changed or not.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change, text = f"{DONE}, attributes = ?", json.dumps(dict(attributes))
        await self._file.write(lambda table: self._update_own(table, job, owner, change, (text,)))

    # --- inside ------------------------------------------------------------------------------

    def _ended(self, jobs: Sequence[Job]) -> None:
        """Set each event of `watching` that waits only for these jobs."""
        for left, event in self._watches:
            left.difference_update(job.job_id for job in jobs)
            if not left:
                event.set()

    def _update_own(
        self, table: apsw.Connection, job: Job, owner: str, change: str, values: Sequence[Any]
    ) -> None:
        if not self._update(table, change, values, OWN, (job.number, owner)):
            raise NoLongerOurs

    def _take_some(self, table: apsw.Connection, owner: str) -> list[Job]:
        """Claim the next jobs: several small texts of one place, or else one job."""
        return [self._take(table, owner, number) for number in next_jobs(table, self._clock())]

    def _take(self, table: apsw.Connection, owner: str, number: int) -> Job:
        """Claim a queued job for an owner."""
        progress = json.dumps({"started_at": self._clock()})
        change = "status = 'running', owner = ?, attempts = attempts + 1, progress = ?"
        self._update(table, change, (owner, progress), "number = ?", (number,))
        return read_job(table, number)

    def _end_relabeling(self, table: apsw.Connection, owner: str) -> None:
        """Mark the jobs as completed if an owner was changing their attributes."""
        lost = f"{LOST} AND storing = {RELABELING}"
        self._update(table, DONE, (), lost, (owner,))

    def _requeue(
        self,
        table: apsw.Connection,
        change: str,
        values: Sequence[Any],
        condition: str,
        chosen: Sequence[Any],
    ) -> int:
        """Queue jobs again, and cancel jobs overtaken by newer jobs; return their number."""
        overtaken = f"{condition} AND {OVERTAKEN}"
        cancelled = self._update(table, CANCELLED, (REPLACED,), overtaken, chosen)
        return cancelled + self._update(table, change, values, condition, chosen)

    def _update(
        self,
        table: apsw.Connection,
        change: str,
        values: Sequence[Any],
        condition: str,
        chosen: Sequence[Any],
    ) -> int:
        """Change rows, each with a new version, and return their number."""
        found = table.execute(f"SELECT number FROM jobs WHERE {condition}", tuple(chosen))  # noqa: S608
        numbers = found.fetchall()
        now = self._clock()
        table.executemany(
            f"UPDATE jobs SET {change}, {CHANGED} WHERE number = ?",  # noqa: S608 - our own text
            [(*values, int(now * 1000), now, number) for (number,) in numbers],
        )
        return len(numbers)


def read_job(table: apsw.Connection, number: int) -> Job:
    """Return the job in a row."""
    query = f"SELECT {COLUMNS} FROM jobs WHERE number = ?"  # noqa: S608 - our own columns
    return job_of(cast(Rows, table.execute(query, (number,)).fetchall())[0])


def _check_hidden(
    table: apsw.Connection, principal: Principal, where: str, values: tuple[Any, ...]
) -> None:
    """Raise Conflict if an unfinished job to replace has a document the principal may not read."""
    if principal.reads_all:
        return
    readable, more = readable_by(principal)
    query = f"SELECT 1 FROM jobs WHERE {where} AND NOT {readable} LIMIT 1"  # noqa: S608
    if table.execute(query, (*values, *more)).fetchall():
        raise Conflict(
            "A document_id in this request is taken.",
            hint="Nothing was queued. Choose other ids.",
            field="documents",
        )


def _other_origin(document_id: str) -> Conflict:
    return Conflict(
        f"Document {document_id!r} is already being ingested from another place.",
        hint="Choose another document_id, or replace it with same_origin_only: false.",
        field="documents",
    )
