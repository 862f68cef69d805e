"""The queue of jobs, shared by the tasks, processes and machines of an installation.

A worker that processes a job is the job's owner. Cancelling, replacing or taking over a job changes
the owner in its row. Each write by an owner checks the row in the same transaction, and fails if it
names another owner or a later claim. So a worker that was frozen while its job was taken over
cannot write, even if it has claimed the job again.

Before an owner stores a document, it marks the row as `storing`. From then on nothing else changes
the row until the document is stored or the owner is dead.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, and_, case, delete, insert, or_, select

from corral.api.errors import Conflict
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.jobs.changes import (
    change,
    drop,
    numbers_of,
    read_job,
    set_acl,
    stamp,
)
from corral.providers.ingestion.jobs.jobs import (
    ErrorCode,
    Job,
    Step,
    Submission,
    document_row,
    new_row,
    progress_json,
)
from corral.providers.ingestion.jobs.reader import (
    IS_SUBMITTED,
    IS_UNFINISHED,
    NEWEST,
    OVERTAKEN,
    J,
    JobReader,
    Scope,
    followed,
    next_job,
    next_jobs,
    of_place,
    of_vector_db,
    queued_for,
    readable_by,
    recorded_of,
    recorded_query,
)
from corral.providers.state.state import State
from corral.providers.state.tables import DOCUMENTS, JOBS

MAX_ATTEMPTS = 5
"""Maximum number of attempts of a job without progress."""
REPLACED = "A newer version of the document was submitted."

RELABELING = 2
"""The value of `storing` while a stored document gets other attributes. Such a job is never run
again: that would restore the submitted document with its old acl.
"""

FREE = {"owner": None, "storing": 0}
QUEUED = {**FREE, "status": "queued"}
CANCELLED = {**FREE, "status": "cancelled"}
COMPLETED = {**FREE, "status": "completed"}
FAILED = {**FREE, "status": "failed"}


Clock: TypeAlias = Callable[[], float]


class NoLongerOurs(Exception):
    """The job was cancelled, replaced or removed while this process was working on it."""


class JobQueue:
    """All jobs of an installation: users submit and cancel them, and owners record their state.

    The methods never wait for a job.

    Args:
        state: The tables.
        clock: Returns the time in Unix seconds.
        host: As in `queued_for`.

    Attributes:
        reader: Lists of jobs.
    """

    def __init__(self, state: State, clock: Clock = time.time, *, host: str = "") -> None:
        self._area = state.area("jobs")
        self._clock, self._host = clock, host
        self._watches: list[tuple[set[str], asyncio.Event]] = []
        self.reader = JobReader(self._area)

    @contextmanager
    def watching(self, jobs: Sequence[Job]) -> Iterator[asyncio.Event]:
        """Yield an event that is set once this process has finished all of these jobs.

        Jobs that are cancelled or that another process finishes do not set it.
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
            Conflict: `same_origin` is True, and a document has an unfinished job from another
                origin; nothing was stored.
        """

        def add(table: Connection) -> list[Job]:
            numbers = [self._insert(table, one, batch_id, same_origin) for one in submissions]
            # Read the jobs in this transaction: a later write may remove one.
            return [read_job(table, number) for number in numbers]

        return await self._area.write(add)

    def _insert(
        self, table: Connection, new: Submission, batch_id: str | None, same_origin: bool
    ) -> int:
        document = new.request.document
        origin = document.origin if document else None
        here = of_vector_db(new.vector_db) & (J.document_id == new.document_id)
        _check_hidden(table, new.principal, here)
        unfinished = select(J.number, J.request, J.origin).where(here, IS_UNFINISHED)
        number: int
        for number, digest, other in table.execute(unfinished).all():
            if same_origin and origin and other and origin != other:
                raise _other_origin(new.document_id)
            if digest == new.digest:
                self._change(table, [number], {"batch_id": batch_id})
                return number
        replaced = numbers_of(table, select(J.number).where(here, IS_UNFINISHED, J.storing == 0))
        self._change(table, replaced, {**CANCELLED, "error_message": REPLACED})
        ended = select(J.number).where(here, ~IS_UNFINISHED)
        table.execute(delete(DOCUMENTS).where(DOCUMENTS.c.job.in_(ended)))
        row = new_row(new, batch_id, self._clock())
        number = table.scalars(insert(JOBS).returning(J.number), row).one()
        set_acl(table, number, new.acl)
        stamp(table, self._clock(), [number])
        if document:
            table.execute(insert(DOCUMENTS), document_row(number, document))
        return number

    # --- changing ----------------------------------------------------------------------------

    async def cancel(self, scope: Scope, reason: str | None = None) -> int:
        """Cancel jobs that are neither final nor storing; return their number."""
        query = select(J.number).where(*scope.where(), IS_UNFINISHED, J.storing == 0)
        values = {**CANCELLED, "error_message": reason}
        return await self._area.write(
            lambda table: self._change(table, numbers_of(table, query), values)
        )

    async def retry(self, scope: Scope) -> int:
        """Queue failed and cancelled jobs again; return their number.

        Skip jobs that a newer job of the document has replaced, and jobs without a stored document.
        """
        ended = J.status.in_(("failed", "cancelled"))
        query = select(J.number).where(*scope.where(), ended, NEWEST, ~OVERTAKEN, IS_SUBMITTED)
        fresh = {"error_code": None, "error_message": None, "attempts": 0, "not_before": 0.0}
        values = {**QUEUED, **fresh, "progress": "{}"}
        return await self._area.write(
            lambda table: self._change(table, numbers_of(table, query), values)
        )

    async def follow(self, vector_db: VectorDB, acls: Mapping[str, Collection[str]]) -> None:
        """Record the new ACLs of documents in their jobs; see `followed`."""
        query = recorded_query(vector_db, acls)

        def record(table: Connection) -> None:
            for number, acl in followed(recorded_of(table.execute(query).all()), acls).items():
                set_acl(table, number, acl)
                stamp(table, self._clock(), [number])

        await self._area.write(record)

    async def remove(self, scope: Scope, version: int) -> bool:
        """Delete the jobs that the reader may change; return False, deleting none, if one started.

        Args:
            scope: The jobs. Jobs of hidden chunks are not deleted, and neither are the chunks.
            version: Version of the last change when no job was running.
        """
        begun = or_(J.status == "running", (J.version > version) & (J.status != "queued"))
        started = select(J.number).where(*scope.where(), begun).limit(1)
        chosen = select(J.number).where(*replace(scope, changing=True).where())

        def remove(table: Connection) -> bool:
            if table.execute(started).first() is not None:
                return False
            drop(table, numbers_of(table, chosen))
            return True

        return await self._area.write(remove)

    async def sweep(self, deleted: Collection[tuple[str, str, float]], before: float) -> int:
        """Delete the jobs of deleted vector DBs, and old replaced jobs; return their number.

        Args:
            deleted: Deleted vector DBs, in the form of `JobReader.vector_dbs`.
            before: Delete replaced jobs that last changed before this time, in Unix seconds.
        """
        replaced = and_(~IS_UNFINISHED, J.updated_at < before, ~NEWEST)
        gone = [of_place(place) & (J.status != "running") for place in deleted]

        def sweep(table: Connection) -> int:
            count = 0
            for condition in (*gone, replaced):
                numbers = numbers_of(table, select(J.number).where(condition))
                drop(table, numbers)
                count += len(numbers)
            return count

        return await self._area.write(sweep)

    # --- working -----------------------------------------------------------------------------

    async def claim(self, owner: str) -> Job | None:
        """Claim the next job for an idle owner; return None if no job is waiting for this machine.

        Jobs that the owner still has are queued again: it never received an earlier claim, because
        its connection broke after the commit, or it could not record an outcome.

        Jobs with earlier attempts come last, so that a job that crashes its process does not block
        others. Only one job of a document runs at a time.
        """
        waiting = select(J.number).where(queued_for(self._host) | _worked_on_by(owner)).limit(1)
        if not await self._area.read(waiting):
            return None

        def take(table: Connection) -> Job | None:
            self._requeue(table, owner, uncounted=0)
            job = next_job(table, self._clock(), self._host)
            return None if job is None else self._take(table, owner, job.number)

        return await self._area.write(take)

    async def report(self, owner: str, steps: Sequence[Step], *, storing: bool = False) -> None:
        """Record progress; a step with `headway` resets the number of attempts.

        The write does not wait for the disk: after a power failure the owner is dead as well, and
        the process that takes the job over starts it again.

        Args:
            storing: True if the documents are stored next, so the jobs can no longer be cancelled.

        Raises:
            NoLongerOurs: One of the jobs has another owner; nothing was recorded.
        """

        mark = {"storing": 1} if storing else {}

        def record(table: Connection) -> None:
            for step in steps:
                values = {**mark, "progress": progress_json(step.progress)}
                if step.headway:
                    values["attempts"] = 1
                self._update_own(table, step.job, owner, values)

        await self._area.write(record, durable=False)

    async def complete(
        self, owner: str, steps: Sequence[Step], *, claim_next: bool = False
    ) -> list[Job]:
        """Record that documents are stored, and delete their texts.

        Returns:
            With `claim_next`, the next jobs (see `next_jobs`), claimed in the same write; otherwise
            an empty list.

        Raises:
            NoLongerOurs: One of the jobs has another owner; nothing was recorded or claimed.
        """

        def end(table: Connection) -> list[Job]:
            for step in steps:
                values = {
                    **COMPLETED,
                    "error_code": None,
                    "error_message": None,
                    "progress": progress_json(step.progress),
                    "usage_bytes": step.usage_bytes,
                    "notes": json.dumps(list(step.notes)),
                }
                self._update_own(table, step.job, owner, values)
                table.execute(delete(DOCUMENTS).where(DOCUMENTS.c.job == step.job.number))
            return self._take_some(table, owner) if claim_next else []

        following = await self._area.write(end)
        self._ended([step.job for step in steps])
        return following

    async def fail(self, job: Job, owner: str, code: ErrorCode, message: str) -> None:
        """Record the final failure of a job.

        Raises:
            NoLongerOurs: The job has another owner.
        """
        values = {**FAILED, "error_code": code, "error_message": message}
        await self._area.write(lambda table: self._update_own(table, job, owner, values))
        self._ended([job])

    async def postpone(self, job: Job, owner: str, message: str, until: float) -> None:
        """Queue a job again if it may succeed later.

        Raises:
            NoLongerOurs: The job has another owner.
        """

        values = {**QUEUED, "error_message": message, "not_before": until}
        overtaken = select(J.number).where(J.number == job.number, OVERTAKEN)

        def give_back(table: Connection) -> None:
            self._update_own(table, job, owner, values, J.storing != RELABELING)
            replaced = {**CANCELLED, "error_message": REPLACED}
            self._change(table, numbers_of(table, overtaken), replaced)

        await self._area.write(give_back)

    async def release(self, owner: str) -> int:
        """Queue the jobs of a stopping owner again; return their number."""

        def queue(table: Connection) -> int:
            self._end_relabeling(table, owner)
            return self._requeue(table, owner, uncounted=1)

        return await self._area.write(queue)

    async def take_over(self, owner: str) -> int:
        """Queue the jobs of a dead owner again; return their number.

        A job with `MAX_ATTEMPTS` attempts without progress fails.
        """
        message = f"The process ended {MAX_ATTEMPTS} times while it worked on this document."
        values = {**FAILED, "error_code": "server_error", "error_message": message}

        def take(table: Connection) -> int:
            self._end_relabeling(table, owner)
            often = select(J.number).where(_owned_by(owner), J.attempts >= MAX_ATTEMPTS)
            failed = self._change(table, numbers_of(table, often), values)
            return failed + self._requeue(table, owner, uncounted=0)

        return await self._area.write(take)

    async def change_attributes(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> bool:
        """Change the attributes of a job; return True if its stored chunks must be changed first.

        In that case the job is running for this owner until `relabeled` is called. A queued, failed
        or cancelled job uses the new attributes when it runs.

        Raises:
            NoLongerOurs: The job is running.
        """

        def change(table: Connection) -> bool:
            # Clear the digest, because new submissions are compared with the job's old content.
            running = {"status": "running", "storing": RELABELING, "owner": owner, "request": ""}
            if self._change(table, [job.number], running, J.status == "completed"):
                return True
            waiting = {"attributes": json.dumps(dict(attributes)), "request": ""}
            if not self._change(table, [job.number], waiting, J.status != "running"):
                raise NoLongerOurs
            return False

        return await self._area.write(change)

    async def relabeled(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> None:
        """Record the attributes that a stored document has now, and complete its job.

        Raises:
            NoLongerOurs: The job has another owner.
        """
        values = {**COMPLETED, "attributes": json.dumps(dict(attributes))}
        await self._area.write(lambda table: self._update_own(table, job, owner, values))

    # --- inside ------------------------------------------------------------------------------

    def _ended(self, jobs: Sequence[Job]) -> None:
        """Set the events of `watching` that have no other jobs to wait for."""
        for left, event in self._watches:
            left.difference_update(job.job_id for job in jobs)
            if not left:
                event.set()

    def _update_own(
        self,
        table: Connection,
        job: Job,
        owner: str,
        values: Mapping[str, Any],
        *conditions: ColumnElement[bool],
    ) -> None:
        ours = _owned_by(owner) & (J.claim == job.claim)
        if not self._change(table, [job.number], values, ours, *conditions):
            raise NoLongerOurs

    def _take_some(self, table: Connection, owner: str) -> list[Job]:
        """Claim the next jobs: several short texts of one vector DB, or else one job."""
        numbers = next_jobs(table, self._clock(), self._host)
        return [self._take(table, owner, each) for each in numbers]

    def _take(self, table: Connection, owner: str, number: int) -> Job:
        """Claim a queued job for an owner."""
        progress = json.dumps({"started_at": self._clock()})
        values = {"status": "running", "owner": owner, "progress": progress}
        counted = {"attempts": J.attempts + 1, "claim": J.claim + 1}
        self._change(table, [number], values | counted)
        return read_job(table, number)

    def _end_relabeling(self, table: Connection, owner: str) -> None:
        """Complete the jobs that an owner was changing the attributes of."""
        relabeling = select(J.number).where(_owned_by(owner), J.storing == RELABELING)
        self._change(table, numbers_of(table, relabeling), COMPLETED)

    def _requeue(self, table: Connection, owner: str, *, uncounted: int) -> int:
        """Queue an owner's jobs again, and cancel its overtaken jobs; return their number.

        Args:
            uncounted: Number of attempts to subtract.
        """
        ours = select(J.number).where(_worked_on_by(owner))
        replaced = {**CANCELLED, "error_message": REPLACED}
        cancelled = self._change(table, numbers_of(table, ours.where(OVERTAKEN)), replaced)
        rest = numbers_of(table, ours)
        left = case((J.attempts > uncounted, J.attempts - uncounted), else_=0)
        return cancelled + self._change(table, rest, {**QUEUED, "attempts": left})

    def _change(
        self,
        table: Connection,
        numbers: Iterable[int],
        values: Mapping[str, Any],
        *conditions: ColumnElement[bool],
    ) -> int:
        """Change jobs, give each a new version, and return the number of changed jobs.

        Args:
            values: New values by column.
            conditions: Conditions that a job must meet to be changed.
        """
        return change(table, self._clock(), numbers, values, *conditions)


def _owned_by(owner: str) -> ColumnElement[bool]:
    return and_(J.status == "running", J.owner == owner)


def _worked_on_by(owner: str) -> ColumnElement[bool]:
    return _owned_by(owner) & (J.storing != RELABELING)


def _check_hidden(table: Connection, principal: Principal, here: ColumnElement[bool]) -> None:
    """Raise Conflict if a job to replace has a document that the principal may not read."""
    if principal.reads_all:
        return
    query = select(J.number).where(here, IS_UNFINISHED, ~readable_by(principal)).limit(1)
    if table.execute(query).first() is not None:
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
