"""Jobs as a principal looks at them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from corral.providers.ingestion.jobs.job_rows import Scope
from corral.providers.ingestion.jobs.job_table import JobTable
from corral.providers.ingestion.jobs.jobs import UNFINISHED, Job, JobStatus
from corral.providers.ingestion.jobs.runner import FileLibrary
from corral.providers.ingestion.jobs.workers import LOOK_EVERY_SECONDS

MAX_PAGE = 1000


class JobViews:
    """The jobs that a principal may see: of its tenant, that it submitted or whose documents it may
    read. No others exist for it.

    Args:
        library: Where vector DBs are, as the principal sees them; a `Stack`.
        table: All jobs of the data folder.
    """

    def __init__(self, library: FileLibrary, table: JobTable) -> None:
        self._library = library
        self._table = table

    async def job(self, job_id: str) -> Job:
        """Return a job, or raise NotFound."""
        return await self._table.get(self._all(job_id=job_id), f"job {job_id!r}")

    async def newest(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file in a vector DB, or raise NotFound."""
        vector_db = await self._library.vector_db(vector_db_id)
        scope = self._all(vector_db=vector_db, file_id=file_id)
        return await self._table.get(scope, f"file {file_id!r} in vector DB {vector_db_id!r}")

    async def page(
        self,
        *,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
        status: JobStatus | Collection[JobStatus] | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "desc",
        newest_only: bool = False,
        changed_after: int | None = None,
        files_only: bool = False,
    ) -> tuple[list[Job], bool]:
        """Return jobs in the order of their submission, and whether there are more.

        Args:
            vector_db_id: Only those of this vector DB.
            batch_id: Only those of this batch.
            status: Only those in this state, or in one of these.
            after: Only those that follow this one: a job's id, or a file's for its newest job.
            before: Only those that precede this one; those right before it where `after` is None.
            limit: Most jobs, 1 to 1000.
            order: "desc" has the newest first.
            newest_only: Only the newest job of each document.
            changed_after: Only those that changed after this version, in the order of changes.
            files_only: Only those of uploaded files.

        Raises:
            NotFound: There is no such vector DB, or nothing of the id `after` or `before`.
        """
        scope = await self._scope(
            vector_db_id,
            batch_id=batch_id,
            statuses={status} if isinstance(status, JobStatus) else status,
            newest_only=newest_only,
            files_only=files_only,
        )
        most = max(1, min(limit, MAX_PAGE))
        if changed_after is not None:
            found = await self._table.find(replace(scope, changed_after=changed_after), most + 1)
            return found[:most], len(found) > most
        return await self._table.page(scope, after=after, before=before, limit=most, order=order)

    async def counts(
        self,
        *,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
        files_only: bool = False,
    ) -> Counter[JobStatus]:
        """Return how many jobs are in each state; of a vector DB, the newest of each document."""
        which = {"batch_id": batch_id, "newest_only": batch_id is None, "files_only": files_only}
        return await self._table.counts(await self._scope(vector_db_id, **which))

    async def backlog(self) -> Counter[JobStatus]:
        """Return how many jobs of all tenants are in each state."""
        return await self._table.counts(Scope())

    async def usage_bytes(self, vector_db_id: str) -> int:
        """Return the bytes of texts and embeddings that the jobs of a vector DB have stored."""
        which = {"statuses": {JobStatus.COMPLETED}, "newest_only": True}
        return await self._table.usage(await self._scope(vector_db_id, **which))

    async def changes(
        self, *, job_id: str | None = None, batch_id: str | None = None
    ) -> AsyncIterator[list[Job]]:
        """Yield what has changed, at first all, every `LOOK_EVERY_SECONDS` until all are final."""
        version, done = -1, False
        while not done:
            scope = self._all(batch_id=batch_id, job_id=job_id)
            done = not await self._are_unfinished(scope)
            changed = await self._table.find(replace(scope, changed_after=version))
            version = max([version, *(job.version for job in changed)])
            yield changed
            if not done:
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        """Return once jobs are final, or after some seconds; the jobs go on in either case.

        Notices the end of a job of this process at once, and of any other within
        `LOOK_EVERY_SECONDS`.

        Args:
            jobs: One job, or all jobs of a batch.
            seconds: 0 returns at once.
        """
        if not jobs or not seconds:
            return
        batch_id = jobs[0].batch_id
        scope = self._all(batch_id=batch_id, job_id=None if batch_id else jobs[0].job_id)
        with self._table.watching(jobs) as ended, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._are_unfinished(scope):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_SECONDS):
                            await ended.wait()
                    ended.clear()

    async def _are_unfinished(self, scope: Scope) -> bool:
        counts = await self._table.counts(scope)
        return any(counts[each] for each in UNFINISHED)

    async def _scope(self, vector_db_id: str | None, **chosen: Any) -> Scope:
        vector_db = await self._library.vector_db(vector_db_id) if vector_db_id else None
        return self._all(vector_db=vector_db, **chosen)

    def _all(self, **chosen: Any) -> Scope:
        principal = self._library.principal
        return Scope(principal.tenant, reader=principal, **chosen)
