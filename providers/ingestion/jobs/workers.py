"""The workers of one process: each takes the next jobs from the table, and does them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from corral.api.errors import CorralError, NotFound
from corral.api.principal import Principal, Role
from corral.providers.base.config import IngestionSettings
from corral.providers.ingestion.ingest import Ingester
from corral.providers.ingestion.jobs.job_table import JobTable
from corral.providers.ingestion.jobs.jobs import Job
from corral.providers.ingestion.jobs.owned_jobs import NoLongerOurs
from corral.providers.ingestion.jobs.owners import Owner
from corral.providers.ingestion.jobs.runner import FileLibrary, JobRunner

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25
"""How often an idle worker, or one who watches, looks for what other processes have written."""
TAKE_OVER_EVERY_SECONDS = 2.0
UNNOTED = "What became of the document could not be recorded."
SWEEP_EVERY_SECONDS = 3600.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a final job is kept that a newer one has replaced."""


class Workers:
    """Does jobs, so many at a time, until it is closed.

    Jobs are in a table that all processes of a data folder share. Each job has one owner at a time;
    what a killed owner has left is taken over.

    Args:
        library: Where vector DBs, models and files are; a `Stack`.
        home: The data folder.
        settings: How many workers.
        ingester: Reads, splits, embeds and stores documents.
    """

    def __init__(
        self,
        library: FileLibrary,
        home: Path,
        settings: IngestionSettings,
        ingester: Ingester,
    ) -> None:
        self.ingester = ingester
        self.table = JobTable(home)
        self._library = library
        self._settings = settings
        self._owner = Owner(home / "workers")
        self._tasks: set[asyncio.Task[None]] = set()
        self._unrelabeled: list[tuple[Job, Mapping[str, Any]]] = []  # as `unnoted` in `_work`
        self._news = asyncio.Event()

    @property
    def owner(self) -> str:
        """The name under which this process works."""
        return self._owner.name

    def wake(self) -> None:
        """Tell idle workers that there is something to do."""
        self._news.set()

    async def relabeled(self, job: Job, attributes: Mapping[str, Any]) -> None:
        """Record the attributes of a stored document; what the table does not take, later again.

        Raises:
            CorralError, NoLongerOurs: It did not take it.
        """
        try:
            await self.table.relabeled(job, self._owner.name, attributes)
        except CorralError:
            self._unrelabeled.append((job, attributes))
            raise

    async def start(self) -> None:
        """Start the workers, if they do not run."""
        if self._tasks:
            return
        runner = JobRunner(self.table, self.ingester, self._owner.name)
        loops = [self._work(runner) for _ in range(self._settings.workers)]
        self._tasks = {asyncio.create_task(loop) for loop in [*loops, self._keep_up()]}
        await asyncio.to_thread(self._owner.enter)

    async def close(self) -> None:
        """Stop the workers; what they have not stored is queued again."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            with suppress(CorralError):  # who comes next takes over
                await self.table.release(self._owner.name)
            await asyncio.to_thread(self._owner.leave)
        await self.table.close()

    async def _work(self, runner: JobRunner) -> None:
        jobs: list[Job] = []
        unnoted: list[Job] = []  # whose end the table did not take
        while True:
            try:
                while unnoted:
                    with suppress(NoLongerOurs):
                        await self.table.postpone(unnoted[-1], self._owner.name, UNNOTED, 0)
                    unnoted.pop()
                if not jobs:
                    self._news.clear()
                    first = await self.table.claim(self._owner.name)
                    jobs = [first] if first else []
                if jobs:
                    jobs = await runner.do(jobs, self._library.for_principal(jobs[0].principal))
                    continue
            except CorralError as error:
                unnoted, jobs = [*unnoted, *jobs], []
                log.warning("Cannot use the table of jobs: %s", error)
            with suppress(TimeoutError):  # not wait_for: on Python 3.11 it may swallow a cancel
                async with asyncio.timeout(LOOK_EVERY_SECONDS):
                    await self._news.wait()

    async def _keep_up(self) -> None:
        """Take over what dead owners have left, and sweep, from time to time."""
        swept = time.monotonic()
        while True:
            try:
                while self._unrelabeled:
                    job, attributes = self._unrelabeled[0]
                    with suppress(NoLongerOurs):
                        await self.table.relabeled(job, self._owner.name, attributes)
                    self._unrelabeled.pop(0)
                await self._take_over()
                if time.monotonic() - swept > SWEEP_EVERY_SECONDS:
                    swept = time.monotonic()
                    await self.sweep()
            except CorralError as error:
                log.warning("Cannot use the table of jobs: %s", error)
            await asyncio.sleep(TAKE_OVER_EVERY_SECONDS)

    async def _take_over(self) -> None:
        for owner in await self.table.owners():
            if await asyncio.to_thread(self._owner.is_dead, owner):
                if await self.table.take_over(owner):
                    self._news.set()
                await asyncio.to_thread(self._owner.forget, owner)

    async def sweep(self) -> int:
        """Forget the jobs of deleted vector DBs, and old ones that newer have replaced."""
        gone = [each for each in await self.table.vector_dbs() if not await self._exists(*each)]
        return await self.table.sweep(gone, time.time() - KEPT_SECONDS)

    async def _exists(self, tenant: str, vector_db_id: str, created_at: float) -> bool:
        with suppress(NotFound):
            found = await self._of_tenant(tenant).vector_db(vector_db_id)
            return found.created_at == created_at
        return False

    def _of_tenant(self, tenant: str) -> FileLibrary:
        return self._library.for_principal(Principal.stored(tenant, role=Role.ADMIN))
