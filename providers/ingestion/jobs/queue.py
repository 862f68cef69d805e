"""The queue of jobs, `jobs.db`: shared by the tasks and processes of a data folder.

A process that works on a job is the job's owner. Cancelling, replacing or taking over a job changes
the owner in its row. Each write of an owner checks the row in the same transaction and fails if it
names another owner. Before an owner stores a document it marks the row `storing`; from then on no
other process changes the row until the document is stored or the owner is dead.
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
from corral.providers.ingestion.jobs import sql
from corral.providers.ingestion.jobs.jobs import (
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
        self._file = Database(home / "jobs.db", sql.TABLES, remedy=REMEDY)
        self._clock = clock
        self._watches: list[tuple[set[str], asyncio.Event]] = []
        self.reader = JobReader(self._file)

    async def close(self) -> None:
        """Close the file after the running calls."""
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
        document = new.request.document
        origin = document.origin if document else None
        place = (*place_of(new.vector_db), new.document_id)
        _check_hidden(table, new.principal, place)
        unfinished = cast(Rows, table.execute(sql.UNFINISHED_OF_DOCUMENT, place).fetchall())
        for number, digest, other in unfinished:
            if same_origin and origin and other and origin != other:
                raise _other_origin(new.document_id)
            if digest == new.digest:
                self._change(table, sql.REGROUP, [number], batch_id)
                return int(number)
        replaced = _numbers(table, sql.CANCELLABLE_OF_DOCUMENT, place)
        self._change(table, sql.CANCEL, replaced, REPLACED)
        table.execute(sql.DROP_EARLIER_DOCUMENTS, place)
        table.execute(sql.INSERT, new_row(new, batch_id, self._clock()))
        number = table.last_insert_rowid()
        self._stamp(table, [number])
        if document:
            table.execute(sql.KEEP_DOCUMENT, (number, document_json(document)))
        return number

    # --- changing ----------------------------------------------------------------------------

    async def cancel(self, scope: Scope, reason: str | None = None) -> int:
        """Cancel jobs that are neither final nor storing; return their number."""
        query, values = scope.select("number", sql.UNFINISHED, "NOT storing")
        return await self._file.write(
            lambda table: self._change(table, sql.CANCEL, _numbers(table, query, values), reason)
        )

    async def retry(self, scope: Scope) -> int:
        """Queue failed and cancelled jobs again; return their number.

        Jobs that a newer job of the document has replaced do not change, nor do jobs without a
        stored document.
        """
        ended, last = "status IN ('failed', 'cancelled')", (sql.NEWEST, f"NOT {sql.OVERTAKEN}")
        query, values = scope.select("number", ended, *last, sql.SUBMITTED)
        return await self._file.write(
            lambda table: self._change(table, sql.RETRY, _numbers(table, query, values))
        )

    async def follow(self, vector_db: VectorDB, acls: Mapping[str, Collection[str]]) -> None:
        """Record the new acls of documents in their jobs; see `followed`."""
        values = (*place_of(vector_db), json.dumps(list(acls)))

        def record(table: apsw.Connection) -> None:
            rows = cast(Rows, table.execute(sql.RECORDED, values).fetchall())
            for number, acl in followed(rows, acls).items():
                self._change(table, sql.FOLLOW, [number], json.dumps(acl))

        await self._file.write(record)

    async def remove(self, scope: Scope, version: int) -> bool:
        """Delete the jobs that the reader may change; return False, deleting none, if one started.

        Args:
            scope: The jobs. Jobs of hidden chunks stay, as the chunks do.
            version: Version of the last change when none of them was running.
        """
        begun, values = scope.select("1", sql.BEGUN, rest="LIMIT 1")
        query, chosen = replace(scope, changing=True).select("number")

        def delete(table: apsw.Connection) -> bool:
            if table.execute(begun, (*values, version)).fetchall():
                return False
            numbers = [(number,) for number in _numbers(table, query, chosen)]
            table.executemany(sql.DROP_DOCUMENT, numbers)
            table.executemany(sql.DROP, numbers)
            return True

        return await self._file.write(delete)

    async def sweep(self, deleted: Collection[tuple[str, str, float]], before: float) -> int:
        """Delete the jobs of deleted vector DBs, and old replaced jobs; return their number.

        Args:
            deleted: Deleted vector DBs, in the form of `JobReader.vector_dbs`.
            before: Replaced jobs that changed before this time are deleted, in Unix seconds.
        """

        def delete(table: apsw.Connection) -> int:
            before_all = table.total_changes()
            table.executemany(sql.DROP_VECTOR_DB, deleted)
            old = _numbers(table, sql.OLD, (before,))
            table.executemany(sql.DROP, [(number,) for number in old])
            count = table.total_changes() - before_all
            table.execute(sql.DROP_UNOWNED_DOCUMENTS)
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
            job = next_job(table, self._clock())
            return None if job is None else self._take(table, owner, job.number)

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

        statement = sql.BEGIN_STORING if storing else sql.REPORT

        def record(table: apsw.Connection) -> None:
            for step in steps:
                values = (progress_json(step.progress), step.headway)
                self._update_own(table, step.job, owner, statement, values)

        await self._file.write(record, durable=False)

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

        def end(table: apsw.Connection) -> list[Job]:
            for step in steps:
                notes = json.dumps(list(step.notes))
                values = (progress_json(step.progress), step.usage_bytes, notes)
                self._update_own(table, step.job, owner, sql.COMPLETE, values)
                table.execute(sql.DROP_DOCUMENT, (step.job.number,))
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
            lambda table: self._update_own(table, job, owner, sql.FAIL, (code, message))
        )
        self._ended([job])

    async def postpone(self, job: Job, owner: str, message: str, until: float) -> None:
        """Queue a job again that may succeed later.

        Raises:
            NoLongerOurs: The job was taken away.
        """

        def give_back(table: apsw.Connection) -> None:
            self._update_own(table, job, owner, sql.POSTPONE, (message, until))
            if _numbers(table, sql.OVERTAKEN_ONE, (job.number,)):
                self._change(table, sql.CANCEL, [job.number], REPLACED)

        await self._file.write(give_back)

    async def release(self, owner: str) -> int:
        """Queue the jobs of a stopping owner again; return their number."""

        def queue(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            return self._requeue(table, owner, uncounted=1)

        return await self._file.write(queue)

    async def take_over(self, owner: str) -> int:
        """Queue the jobs of a dead owner again; return their number.

        A job with `MAX_ATTEMPTS` attempts without headway fails.
        """
        message = f"The process ended {MAX_ATTEMPTS} times while it worked on this document."

        def take(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            often = _numbers(table, sql.OWNED_OFTEN, (owner, MAX_ATTEMPTS))
            failed = self._change(table, sql.FAIL, often, "server_error", message, owner)
            return failed + self._requeue(table, owner, uncounted=0)

        return await self._file.write(take)

    async def change_attributes(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> bool:
        """Give a job other attributes, or return True if its stored chunks must have them first.

        Then the job is running for this owner until `relabeled`. A queued, failed or cancelled job
        will use them when it runs.

        Raises:
            NoLongerOurs: The job is running.
        """

        def change(table: apsw.Connection) -> bool:
            # Clear the digest, because new submissions are compared with the job's old content.
            if self._change(table, sql.BEGIN_RELABELING, [job.number], owner):
                return True
            text = json.dumps(dict(attributes))
            if not self._change(table, sql.RELABEL_WAITING, [job.number], text):
                raise NoLongerOurs
            return False

        return await self._file.write(change)

    async def relabeled(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> None:
        """Record the attributes that a stored document now has, changed or not.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        values = (json.dumps(dict(attributes)),)
        await self._file.write(
            lambda table: self._update_own(table, job, owner, sql.END_RELABELING, values)
        )

    # --- inside ------------------------------------------------------------------------------

    def _ended(self, jobs: Sequence[Job]) -> None:
        """Set each event of `watching` that waits only for these jobs."""
        for left, event in self._watches:
            left.difference_update(job.job_id for job in jobs)
            if not left:
                event.set()

    def _update_own(
        self, table: apsw.Connection, job: Job, owner: str, statement: str, values: Sequence[Any]
    ) -> None:
        if not self._change(table, statement, [job.number], *values, owner):
            raise NoLongerOurs

    def _take_some(self, table: apsw.Connection, owner: str) -> list[Job]:
        """Claim the next jobs: several small texts of one place, or else one job."""
        return [self._take(table, owner, number) for number in next_jobs(table, self._clock())]

    def _take(self, table: apsw.Connection, owner: str, number: int) -> Job:
        """Claim a queued job for an owner."""
        progress = json.dumps({"started_at": self._clock()})
        self._change(table, sql.CLAIM, [number], owner, progress)
        return read_job(table, number)

    def _end_relabeling(self, table: apsw.Connection, owner: str) -> None:
        """Mark the jobs as completed if an owner was changing their attributes."""
        numbers = _numbers(table, sql.OWNED_RELABELING, (owner,))
        self._change(table, sql.END_RELABELING, numbers, None, owner)

    def _requeue(self, table: apsw.Connection, owner: str, *, uncounted: int) -> int:
        """Queue an owner's jobs again, and cancel its overtaken jobs; return their number.

        Args:
            uncounted: Number of attempts that do not count.
        """
        overtaken = _numbers(table, sql.OWNED_OVERTAKEN, (owner,))
        cancelled = self._change(table, sql.CANCEL, overtaken, REPLACED)
        rest = _numbers(table, sql.OWNED, (owner,))
        return cancelled + self._change(table, sql.REQUEUE, rest, uncounted, owner)

    def _change(
        self, table: apsw.Connection, statement: str, numbers: Iterable[int], *values: Any
    ) -> int:
        """Change jobs, each with a new version, and return the number of changed jobs.

        Args:
            statement: A statement of `sql` that returns the number of a changed job.
            values: Its bindings, except for the last, which is the number of a job.
        """
        rows = [(*values, number) for number in numbers]
        changed = [number for (number,) in table.executemany(statement, rows)]
        self._stamp(table, changed)
        return len(changed)

    def _stamp(self, table: apsw.Connection, numbers: Sequence[int]) -> None:
        """Give changed jobs a new version each."""
        now = self._clock()
        table.executemany(sql.STAMP, [(now, int(now * 1000), number) for number in numbers])


def read_job(table: apsw.Connection, number: int) -> Job:
    """Return the job in a row."""
    return job_of(cast(Rows, table.execute(sql.READ, (number,)).fetchall())[0])


def _numbers(table: apsw.Connection, query: str, values: Iterable[Any]) -> list[int]:
    """Return the first column of a query's rows."""
    return [int(number) for (number,) in table.execute(query, tuple(values))]


def _check_hidden(table: apsw.Connection, principal: Principal, place: tuple[Any, ...]) -> None:
    """Raise Conflict if an unfinished job to replace has a document the principal may not read."""
    if principal.reads_all:
        return
    readable, tokens = readable_by(principal)
    conditions = (sql.OF_DOCUMENT, sql.UNFINISHED, f"NOT {readable}")
    query = sql.select("1", *conditions, rest="LIMIT 1")
    if table.execute(query, (*place, *tokens)).fetchall():
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
