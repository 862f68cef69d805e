"""What is read of the table of jobs; `owned_jobs.py` and `job_table.py` change it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from corral.api.chunks import STORED
from corral.api.errors import NotFound
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDB
from corral.providers.base.cursor import Places
from corral.providers.base.database import Database
from corral.providers.ingestion.jobs.job_rows import (
    COLUMNS,
    RECORDED,
    TABLES,
    Rows,
    Scope,
    job_of,
    place_of,
)
from corral.providers.ingestion.jobs.jobs import Job, JobStatus

REMEDY = "Move it away and ingest again what had not been stored yet."


class JobReader:
    """The jobs of a data folder, to be looked at.

    Args:
        home: The data folder.
        clock: Says the time, in Unix seconds.
    """

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = Database(home / "jobs.db", TABLES, remedy=REMEDY)
        self._clock = clock
        self._places: Places[int] = Places()
        self._watches: list[tuple[set[str], asyncio.Event]] = []

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

    def _ended(self, jobs: Sequence[Job]) -> None:
        """Set each event of `watching` that waits for no other job than these."""
        for left, event in self._watches:
            left.difference_update(job.job_id for job in jobs)
            if not left:
                event.set()

    async def find(self, scope: Scope, limit: int = -1) -> list[Job]:
        """Return jobs, in the order of their changes; a negative limit is none."""
        where, values = scope.where()
        return await self._jobs(f"{where} ORDER BY version LIMIT {limit}", values)

    async def get(self, scope: Scope, what: str) -> Job:
        """Return the newest job.

        Raises:
            NotFound: There is none; `what` says of what, such as "job 'job_1'".
        """
        where, values = scope.where()
        found = await self._jobs(f"{where} ORDER BY number DESC LIMIT 1", values)
        if not found:
            raise NotFound(f"There is no {what}.")
        return found[0]

    async def page(
        self,
        scope: Scope,
        *,
        after: str | None,
        before: str | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> tuple[list[Job], bool]:
        """Return jobs in the order of submission, and whether more follow; see `Ingestion.page`."""
        where, values = scope.where()
        follows, precedes = ("<", ">") if order == "desc" else (">", "<")
        for field, given, sign in (("after", after, follows), ("before", before, precedes)):
            if given is not None:
                where += f" AND number {sign} ?"
                values.append(await self._number(given, scope, field))
        # What stands right before a job is found by walking away from it.
        away = before is not None and after is None
        direction = "DESC" if (order == "desc") != away else "ASC"
        found = await self._jobs(f"{where} ORDER BY number {direction} LIMIT {limit + 1}", values)
        more, found = len(found) > limit, found[:limit]
        for job in (*found[:1], *found[-1:]):
            for name in (job.job_id, job.file_id, job.document_id):
                self._places.keep((*_seen(scope), name), job.number)
        return found[::-1] if away else found, more

    async def counts(self, scope: Scope) -> Counter[JobStatus]:
        """Return how many jobs are in each state."""
        where, values = scope.where()
        query = f"SELECT status, count(*) FROM jobs WHERE {where} GROUP BY status"  # noqa: S608
        rows = cast(Rows, await self._file.read(query, *values))
        return Counter({JobStatus(status): count for status, count in rows})

    async def usage(self, scope: Scope) -> int:
        """Return the bytes that jobs have stored."""
        where, values = scope.where()
        query = f"SELECT ifnull(sum(usage_bytes), 0) FROM jobs WHERE {where}"  # noqa: S608
        return int(str((await self._file.read(query, *values))[0][0]))

    async def documents(self, jobs: Sequence[Job]) -> dict[int, RAGDocument]:
        """Return the documents that were handed in with jobs, by job number, as far as kept."""
        marks = ", ".join("?" * len(jobs))
        query = f"SELECT job, document FROM documents WHERE job IN ({marks})"  # noqa: S608 - marks
        rows = await self._file.read(query, *(job.number for job in jobs))
        return {
            number: RAGDocument.model_validate_json(str(text), context=STORED)
            for number, text in rows
        }

    async def recorded(self, vector_db: VectorDB, documents: Collection[str]) -> Rows:
        """Return what jobs say of who may read documents; see `RECORDED`."""
        if not documents or not self._file.path.exists():
            return []
        named = json.dumps(list(documents))
        return cast(Rows, await self._file.read(RECORDED, *place_of(vector_db), named))

    async def vector_dbs(self) -> list[tuple[str, str, float]]:
        """Return tenant, identifier and time of every vector DB that a job names."""
        query = "SELECT DISTINCT tenant, vector_db_id, vector_db_created_at FROM jobs"
        return cast("list[tuple[str, str, float]]", await self._file.read(query))

    async def owners(self) -> set[str]:
        """Return who works on jobs, or did when it died."""
        query = "SELECT DISTINCT owner FROM jobs WHERE status = 'running'"
        return {str(owner) for (owner,) in await self._file.read(query)}

    async def _number(self, given: str, scope: Scope, field: str) -> int:
        """Return the number of a job, or of the newest job of a file or document."""
        where, *values = _seen(scope)
        number: object = None
        for column in ("file_id" if given.startswith("file-") else "job_id", "document_id"):
            query = f"SELECT max(number) FROM jobs WHERE {where} AND {column} = ?"  # noqa: S608 - ours
            (number,) = (await self._file.read(query, *values, given))[0]
            if number is not None:
                break
        if number is None:
            number = self._places.find((where, *values, given))
        if number is None:
            raise NotFound(
                f"There is no job or file {given!r} to continue from.",
                hint="Use the first or last id of a page.",
                field=field,
            )
        return int(str(number))

    async def _jobs(self, condition: str, values: Sequence[Any]) -> list[Job]:
        query = f"SELECT {COLUMNS} FROM jobs WHERE {condition}"  # noqa: S608 - our own columns
        return [job_of(row) for row in cast(Rows, await self._file.read(query, *values))]


def _seen(scope: Scope) -> tuple[Any, ...]:
    """Return the condition for what a list of this scope may continue from, and its values."""
    seen = Scope(scope.tenant, scope.vector_db, scope.batch_id, reader=scope.reader)
    where, values = seen.where()
    return where, *values
