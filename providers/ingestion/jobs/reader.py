"""Read the jobs of a data folder: scopes that select jobs, and lists of jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import apsw

from corral.api.chunks import STORED
from corral.api.errors import NotFound
from corral.api.principal import Principal
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDB
from corral.providers.base.cursor import Places
from corral.providers.base.database import Database
from corral.providers.ingestion.jobs import sql
from corral.providers.ingestion.jobs.jobs import COLUMNS, Job, JobStatus, job_of

TOGETHER_BYTES = 16 * 1024
"""Maximum text of documents that one worker processes together: about 20 chunks, which take half a
second to embed on a laptop. A longer document is processed alone."""

TOGETHER_DOCUMENTS = 32

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Scope:
    """A selection of jobs that match all given conditions.

    Attributes:
        tenant: Only jobs of this tenant; None: of all tenants.
        reader: Only jobs that this principal submitted, or with documents that it may read; None:
            all jobs.
        vector_db: Only jobs of this registration.
        batch_id, job_id, file_id: Only jobs of this batch, id or file.
        statuses: Only jobs in one of these states.
        newest_only: Only the newest job of each document.
        changing: Only jobs that the reader may change: not its own completed jobs with documents
            that it may not read.
        changed_after: Only jobs that changed after this version.
        files_only: Only jobs of uploaded files.
    """

    tenant: str | None = None
    vector_db: VectorDB | None = None
    batch_id: str | None = None
    job_id: str | None = None
    file_id: str | None = None
    statuses: Collection[JobStatus] | None = None
    newest_only: bool = False
    changing: bool = False
    changed_after: int | None = None
    reader: Principal | None = None
    files_only: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """Return the SQL condition and its bindings."""
        conditions: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
        if self.vector_db is not None:
            conditions.append((sql.OF_VECTOR_DB, place_of(self.vector_db)))
        for column in ("tenant", "batch_id", "job_id", "file_id"):
            if (value := getattr(self, column)) is not None:
                conditions.append((f"{column} = ?", (value,)))
        if self.reader is not None and not self.reader.reads_all:
            conditions.append(readable_by(self.reader, changing=self.changing))
        if self.statuses is not None:
            marks = ", ".join("?" * len(self.statuses))
            conditions.append((f"status IN ({marks})", tuple(map(str, self.statuses))))
        if self.newest_only:
            conditions.append((sql.NEWEST, ()))
        if self.files_only:
            conditions.append(("file_id NOT NULL", ()))
        if self.changed_after is not None:
            conditions.append(("version > ?", (self.changed_after,)))
        text = " AND ".join(condition for condition, _ in conditions)
        return text, [value for _, values in conditions for value in values]

    def select(self, columns: str, *more: str, rest: str = "") -> tuple[str, list[Any]]:
        """Return a query for its jobs as `sql.select` does, and the scope's bindings.

        Args:
            more: Further conditions; their bindings follow those of the scope.
        """
        where, values = self.where()
        return sql.select(columns, where, *more, rest=rest), values


class JobReader:
    """Read access to the jobs in the file of a data folder."""

    def __init__(self, file: Database) -> None:
        self._file = file
        self._places: Places[int] = Places()

    async def find(self, scope: Scope, limit: int = -1) -> list[Job]:
        """Return jobs in the order of their changes; a negative limit means no limit."""
        query, values = scope.select(COLUMNS, rest="ORDER BY version LIMIT ?")
        return await self._jobs(query, [*values, limit])

    async def get(self, scope: Scope, what: str) -> Job:
        """Return the newest job.

        Raises:
            NotFound: No job matches; the message uses `what`, such as "job 'job_1'".
        """
        jobs = await self._jobs(*scope.select(COLUMNS, rest="ORDER BY number DESC LIMIT 1"))
        if not jobs:
            raise NotFound(f"There is no {what}.")
        return jobs[0]

    async def page(
        self,
        scope: Scope,
        *,
        after: str | None,
        before: str | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> tuple[list[Job], bool]:
        """Return jobs in the order of submission, and True if more follow; see `Ingestion.page`."""
        follows, precedes = ("<", ">") if order == "desc" else (">", "<")
        bounds: dict[str, int] = {}
        for field, given, sign in (("after", after, follows), ("before", before, precedes)):
            if given is not None:
                bounds[f"number {sign} ?"] = await self._number(given, scope, field)
        # To find the jobs right before one, read in the opposite direction.
        away = before is not None and after is None
        direction = "DESC" if (order == "desc") != away else "ASC"
        rest = f"ORDER BY number {direction} LIMIT ?"
        query, values = scope.select(COLUMNS, *bounds, rest=rest)
        jobs = await self._jobs(query, [*values, *bounds.values(), limit + 1])
        more, jobs = len(jobs) > limit, jobs[:limit]
        for job in (*jobs[:1], *jobs[-1:]):
            for name in (job.job_id, job.file_id, job.document_id):
                self._places.keep((*_seen(scope), name), job.number)
        return jobs[::-1] if away else jobs, more

    async def counts(self, scope: Scope) -> Counter[JobStatus]:
        """Count jobs by state."""
        query, values = scope.select("status, count(*)", rest="GROUP BY status")
        rows = cast(Rows, await self._file.read(query, *values))
        return Counter({JobStatus(status): count for status, count in rows})

    async def usage(self, scope: Scope) -> int:
        """Return the number of bytes that jobs have stored."""
        query, values = scope.select("ifnull(sum(usage_bytes), 0)")
        return int(str((await self._file.read(query, *values))[0][0]))

    async def documents(self, jobs: Sequence[Job]) -> dict[int, RAGDocument]:
        """Return the stored documents of jobs, by job number."""
        numbers = json.dumps([job.number for job in jobs])
        rows = await self._file.read(sql.DOCUMENTS, numbers)
        return {
            number: RAGDocument.model_validate_json(str(text), context=STORED)
            for number, text in rows
        }

    async def recorded(self, vector_db: VectorDB, documents: Collection[str]) -> Rows:
        """Return the recorded acls of documents; see `sql.RECORDED`."""
        if not documents or not self._file.path.exists():
            return []
        named = json.dumps(list(documents))
        return cast(Rows, await self._file.read(sql.RECORDED, *place_of(vector_db), named))

    async def vector_dbs(self) -> list[tuple[str, str, float]]:
        """Return tenant, identifier and creation time of every vector DB with a job."""
        query = "SELECT DISTINCT tenant, vector_db_id, vector_db_created_at FROM jobs"
        return cast("list[tuple[str, str, float]]", await self._file.read(query))

    async def owners(self) -> set[str]:
        """Return the owners of running jobs, living or dead."""
        query = "SELECT DISTINCT owner FROM jobs WHERE status = 'running'"
        return {str(owner) for (owner,) in await self._file.read(query)}

    # --- inside ------------------------------------------------------------------------------

    async def _number(self, given: str, scope: Scope, field: str) -> int:
        """Return the number of a job, or of the newest job of a file or document."""
        where, *values = _seen(scope)
        number: object = None
        for column in ("file_id" if given.startswith("file-") else "job_id", "document_id"):
            query = sql.select("max(number)", where, f"{column} = ?")
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

    async def _jobs(self, query: str, values: Sequence[Any]) -> list[Job]:
        return [job_of(row) for row in cast(Rows, await self._file.read(query, *values))]


def _seen(scope: Scope) -> tuple[Any, ...]:
    """Return the condition for the valid starts of a page of this scope, and its bindings."""
    seen = Scope(scope.tenant, scope.vector_db, scope.batch_id, reader=scope.reader)
    where, values = seen.where()
    return where, *values


def readable_by(reader: Principal, *, changing: bool = False) -> tuple[str, tuple[Any, ...]]:
    """Return the condition for jobs that a principal may see, or change, and its bindings."""
    tokens = json.dumps(sorted(reader.tokens()))
    own = "principal ->> 'user' IS ? AND principal ->> 'key_id' IS ?"
    own += " AND status <> 'completed'" if changing else ""
    return f"({sql.READABLE} OR ({own}))", (tokens, reader.user, reader.key_id)


def followed(rows: Rows, acls: Mapping[str, Collection[str]]) -> dict[int, list[str]]:
    """Return the changed acls of jobs by job number, given the new acls of their documents.

    The job of the stored version gets the document's acl. Other jobs belong to versions that are
    not stored, so their acls only lose tokens and never gain any.

    Args:
        rows: Rows of `sql.RECORDED`.
        acls: New acl by document id.
    """
    changed: dict[int, list[str]] = {}
    found: set[str] = set()
    for document_id, number, text, stored in rows:
        had, now = set(json.loads(text)), set(acls[document_id])
        acl = now if stored and document_id not in found else had & now
        found |= {document_id} if stored else set()
        if acl != had:
            changed[number] = sorted(acl)
    return changed


def place_of(vector_db: VectorDB) -> tuple[str, str, float]:
    """Return the bindings of `sql.OF_VECTOR_DB`."""
    return vector_db.tenant, vector_db.identifier, vector_db.created_at


class Next(NamedTuple):
    """The next job.

    Attributes:
        number: Number of the job.
        attempts: Number of earlier attempts.
        text_bytes: Size of the document if it is a short text, else None.
        place: Key that jobs must share to be processed together.
    """

    number: int
    attempts: int
    text_bytes: int | None
    place: tuple[Any, ...]


def next_job(table: apsw.Connection, now: float) -> Next | None:
    """Return the next job; jobs with earlier attempts come last."""
    row = table.execute(sql.NEXT, (TOGETHER_BYTES, now)).fetchone()
    return None if row is None else Next(row[0], row[1], row[2], tuple(row[3:]))


def next_jobs(table: apsw.Connection, now: float) -> Iterator[int]:
    """Yield the numbers of the next jobs, one job or several to process together.

    Short texts for the same vector DB by the same principal with the same chunk sizes are processed
    together. A job with an earlier attempt is processed alone, because it may have crashed its
    process.

    The caller claims each job before it requests the next.
    """
    room, place = TOGETHER_BYTES, None
    for _ in range(TOGETHER_DOCUMENTS):
        found = next_job(table, now)
        if found is None:
            return
        alone = found.text_bytes is None or found.attempts > 0
        if place is not None and (alone or found.place != place or (found.text_bytes or 0) > room):
            return
        yield found.number
        if alone:
            return
        room, place = room - (found.text_bytes or 0), found.place
