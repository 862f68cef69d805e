"""What the owner of a job writes into the table of jobs.

A process that works on a job is the job's owner. It writes only while the row still says so, in the
same transaction: whoever cancels, replaces or takes over a job changes the row, and the owner finds
out with its next write. Before an owner stores a document it marks the row `storing`; from then on
nobody else changes it until the document is stored or the owner is dead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import apsw

from corral.providers.ingestion.jobs.job_queue import next_of, together
from corral.providers.ingestion.jobs.job_reader import JobReader
from corral.providers.ingestion.jobs.job_rows import (
    CHANGED,
    COLUMNS,
    OURS,
    OVERTAKEN,
    Rows,
    job_of,
    milliseconds,
    progress_json,
)
from corral.providers.ingestion.jobs.jobs import ErrorCode, Job, Step

MAX_ATTEMPTS = 5
"""How often a job is begun without any headway before it fails."""

REPLACED = "A newer version of the document was submitted."


RELABELING = 2
"""The value of `storing` while a stored document gets other attributes. Such a job is never done
again: that would store the document as it was submitted, and open it to whom it was closed since.
"""

STORED = "status = 'completed', owner = NULL, storing = 0"


class NoLongerOurs(Exception):
    """The job was cancelled, replaced or removed while this process worked on it."""


class OwnedJobs(JobReader):
    """The jobs of a data folder, as those write them who work on them; see `JobTable`."""

    async def claim(self, owner: str) -> Job | None:
        """Take the next job to do and return it; None where there is none.

        Those that were begun before come last, so that one which keeps ending its process holds up
        nobody else's. A document has one running job at a time.
        """
        if not await self._file.read("SELECT 1 FROM jobs WHERE status = 'queued' LIMIT 1"):
            return None

        def take(table: apsw.Connection) -> Job | None:
            found = next_of(table, self._clock())
            return None if found is None else self._take(table, owner, found.number)

        return await self._file.write(take)

    async def report(self, owner: str, steps: Sequence[Step], *, storing: bool = False) -> None:
        """Record progress; headway forgets the attempts that brought none.

        It need not wait for the disk: where the power fails the owner is dead, too, and whoever
        takes the job over begins anew.

        Args:
            storing: Whether the documents are stored next: they can no longer be cancelled.

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
        """Record that documents are stored, and let go of their texts.

        Returns:
            With `claim_next`, the jobs to do next, as `together` finds them; all is one write.
            Else none.

        Raises:
            NoLongerOurs: One of the jobs was taken away; nothing was recorded or claimed.
        """
        change = (
            f"{STORED}, error_code = NULL, error_message = NULL, progress = ?, usage_bytes = ?,"
            " notes = ?"
        )

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
        """Record why a job failed for good.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = "status = 'failed', owner = NULL, storing = 0, error_code = ?, error_message = ?"
        await self._file.write(
            lambda table: self._update_own(table, job, owner, change, (code, message))
        )
        self._ended([job])

    async def postpone(self, job: Job, owner: str, message: str, until: float) -> None:
        """Queue a job again that may succeed later.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = "status = 'queued', owner = NULL, storing = 0, error_message = ?, not_before = ?"

        ours = f"{OURS} AND storing <> {RELABELING}"

        def give_back(table: apsw.Connection) -> None:
            if not self._requeue(table, change, (message, until), ours, (job.number, owner)):
                raise NoLongerOurs

        await self._file.write(give_back)

    async def release(self, owner: str) -> int:
        """Queue again what an owner works on who stops in an orderly way; return how many."""
        change = "status = 'queued', owner = NULL, storing = 0, attempts = max(0, attempts - 1)"
        condition = "owner = ? AND status = 'running'"

        def queue(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            return self._requeue(table, change, (), condition, (owner,))

        return await self._file.write(queue)

    async def take_over(self, owner: str) -> int:
        """Queue again what a dead owner has left; return how many jobs.

        What was begun `MAX_ATTEMPTS` times without headway fails.
        """
        lost = "owner = ? AND status = 'running'"
        message = f"The process ended {MAX_ATTEMPTS} times while it worked on this document."
        fail = (
            "status = 'failed', owner = NULL, storing = 0, error_code = 'server_error',"
            " error_message = ?"
        )

        def take(table: apsw.Connection) -> int:
            self._end_relabeling(table, owner)
            often = f"{lost} AND attempts >= {MAX_ATTEMPTS}"
            failed = self._update(table, fail, (message,), often, (owner,))
            queue = "status = 'queued', owner = NULL, storing = 0"
            return failed + self._requeue(table, queue, (), lost, (owner,))

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
            # What is submitted next is compared with what a job stores, which is another now.
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
        """Record the attributes that a stored document has: other ones, or those from before.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change, text = f"{STORED}, attributes = ?", json.dumps(dict(attributes))
        await self._file.write(lambda table: self._update_own(table, job, owner, change, (text,)))

    # --- inside ------------------------------------------------------------------------------

    def _update_own(
        self, table: apsw.Connection, job: Job, owner: str, change: str, values: Sequence[Any]
    ) -> None:
        if not self._update(table, change, values, OURS, (job.number, owner)):
            raise NoLongerOurs

    def _take_some(self, table: apsw.Connection, owner: str) -> list[Job]:
        """Make the next jobs this owner's: small texts for one place together, or else one job."""
        return [self._take(table, owner, number) for number in together(table, self._clock())]

    def _take(self, table: apsw.Connection, owner: str, number: int) -> Job:
        """Make a queued job this owner's."""
        progress = json.dumps({"started_at": self._clock()})
        change = "status = 'running', owner = ?, attempts = attempts + 1, progress = ?"
        self._update(table, change, (owner, progress), "number = ?", (number,))
        return read_job(table, number)

    def _end_relabeling(self, table: apsw.Connection, owner: str) -> None:
        """Leave the documents stored whose attributes an owner was changing."""
        lost = f"owner = ? AND status = 'running' AND storing = {RELABELING}"
        self._update(table, STORED, (), lost, (owner,))

    def _requeue(
        self,
        table: apsw.Connection,
        change: str,
        values: Sequence[Any],
        condition: str,
        chosen: Sequence[Any],
    ) -> int:
        """Queue jobs again, and cancel those that a newer one has overtaken; return how many."""
        cancel = "status = 'cancelled', owner = NULL, storing = 0, error_message = ?"
        overtaken = f"{condition} AND {OVERTAKEN}"
        cancelled = self._update(table, cancel, (REPLACED,), overtaken, chosen)
        return cancelled + self._update(table, change, values, condition, chosen)

    def _update(
        self,
        table: apsw.Connection,
        change: str,
        values: Sequence[Any],
        condition: str,
        chosen: Sequence[Any],
    ) -> int:
        """Change rows, each with a version of its own, and return how many."""
        found = table.execute(f"SELECT number FROM jobs WHERE {condition}", tuple(chosen))  # noqa: S608
        numbers = found.fetchall()
        now = self._clock()
        table.executemany(
            f"UPDATE jobs SET {change}, {CHANGED} WHERE number = ?",  # noqa: S608 - our own text
            [(*values, milliseconds(now), now, number) for (number,) in numbers],
        )
        return len(numbers)


def read_job(table: apsw.Connection, number: int) -> Job:
    """Return the job in a row."""
    query = f"SELECT {COLUMNS} FROM jobs WHERE number = ?"  # noqa: S608 - our own columns
    return job_of(cast(Rows, table.execute(query, (number,)).fetchall())[0])
