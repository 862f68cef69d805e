"""The table of jobs, `jobs.db`: shared by the tasks and processes of a data folder.

A process that works on a job is the job's owner. It writes only while the row still says so, in the
same transaction: whoever cancels, replaces or takes over a job changes the row, and the owner finds
out with its next write. Before an owner stores a document it marks the row `storing`; from then on
nobody else changes it until the document is stored or the owner is dead.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import apsw

from corral.api.chunks import TextItem
from corral.api.errors import Conflict, NotFound
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.database import Database
from corral.providers.ingestion.jobs import (
    ErrorCode,
    Job,
    JobRequest,
    JobStatus,
    Progress,
)

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS jobs"
    " (number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, batch_id TEXT,"
    " vector_db_id TEXT NOT NULL, vector_db_created_at REAL NOT NULL, document_id TEXT NOT NULL,"
    " file_id TEXT, filename TEXT NOT NULL, attributes TEXT NOT NULL, chunking TEXT,"
    " status TEXT NOT NULL, error_code TEXT, error_message TEXT, progress TEXT NOT NULL,"
    " notes TEXT NOT NULL, usage_bytes INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " tenant TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at REAL NOT NULL,"
    " version INTEGER NOT NULL, request TEXT NOT NULL, origin TEXT,"
    " principal TEXT NOT NULL, acl TEXT NOT NULL,"
    " owner TEXT, storing INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0) STRICT",
    "CREATE INDEX IF NOT EXISTS jobs_by_document"
    " ON jobs (tenant, vector_db_id, vector_db_created_at, document_id, number)",
    "CREATE INDEX IF NOT EXISTS jobs_by_batch ON jobs (batch_id) WHERE batch_id NOT NULL",
    "CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, attempts, number)",
    "DROP INDEX IF EXISTS jobs_by_version",
    "CREATE INDEX IF NOT EXISTS jobs_by_tenant ON jobs (tenant, version)",
    # A document is kept until its job has completed, or is replaced by a newer one.
    "CREATE TABLE IF NOT EXISTS documents (job INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT",
)
REMEDY = "Move it away and ingest again what had not been stored yet."

MAX_ATTEMPTS = 5
"""How often a job is begun without any headway before it fails."""

REPLACED = "A newer version of the document was submitted."

_COLUMNS = (
    "number, job_id, batch_id, vector_db_id, vector_db_created_at, document_id, file_id, filename,"
    " attributes, chunking, status, error_code, error_message, progress, notes, usage_bytes,"
    " attempts, tenant, created_at, updated_at, version, principal"
)
_OURS = "number = ? AND owner = ? AND status = 'running'"
_UNFINISHED = "status IN ('queued', 'running')"
_OF_VECTOR_DB = "tenant = ? AND vector_db_id = ? AND vector_db_created_at = ?"
_NEWEST = (
    "number = (SELECT max(newer.number) FROM jobs newer WHERE newer.tenant = jobs.tenant"
    " AND newer.vector_db_id = jobs.vector_db_id"
    " AND newer.vector_db_created_at = jobs.vector_db_created_at"
    " AND newer.document_id = jobs.document_id)"
)
_OVERTAKEN = (
    "EXISTS (SELECT 1 FROM jobs newer WHERE newer.tenant = jobs.tenant"
    " AND newer.vector_db_id = jobs.vector_db_id"
    " AND newer.vector_db_created_at = jobs.vector_db_created_at"
    " AND newer.document_id = jobs.document_id AND newer.number > jobs.number"
    " AND newer.status IN ('queued', 'running', 'completed'))"
)
"""A newer version of the document is stored, or will be: this one must not be stored after it."""
_NEXT_VERSION = (
    "max(?, (SELECT ifnull(max(version), 0) + 1 FROM jobs same WHERE same.tenant = {tenant}))"
)
"""Grows within a tenant, also where its newest jobs were removed; says nothing of others."""
_CHANGED = f"version = {_NEXT_VERSION.format(tenant='jobs.tenant')}, updated_at = ?"

Rows = Sequence[tuple[Any, ...]]


class NoLongerOurs(Exception):
    """The job was cancelled, replaced or removed while this process worked on it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A request whose names are resolved.

    Attributes:
        request: What was asked.
        vector_db: Where to.
        filename: Of the file, or what the document calls itself.
        principal: Who asked.
    """

    request: JobRequest
    vector_db: VectorDB
    filename: str
    principal: Principal

    @property
    def document_id(self) -> str:
        """The id under which the document is stored."""
        document, asked = self.request.document, self.request
        return document.document_id if document else str(asked.document_id or asked.file_id)

    @property
    def attributes(self) -> dict[str, Any]:
        """The metadata of its chunks."""
        document = self.request.document
        return dict(document.metadata if document else self.request.attributes)

    @property
    def acl(self) -> list[str]:
        """Who may read the document."""
        document = self.request.document
        own = document.acl if document else None
        return self.vector_db.default_acl if own is None else own

    @property
    def digest(self) -> str:
        """A hash of what is to be stored, how and with whose rights."""
        document = self.request.document
        parts = [
            document.model_dump_json() if document else self.request.file_id,
            self.attributes,
            _chunking_json(self.request.chunking),
            _principal_json(self.principal),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs are meant: those that fit all that is given.

    Attributes:
        tenant: Of this tenant; None: of all.
        reader: That this principal submitted, or whose document it may read; None: of all.
        vector_db: Of this registration.
        batch_id, job_id, file_id: Of this batch, id, file.
        statuses: In one of these states.
        newest_only: Only the newest job of each document.
        changed_after: Only those that changed after this version.
        files_only: Only those of uploaded files.
    """

    tenant: str | None = None
    vector_db: VectorDB | None = None
    batch_id: str | None = None
    job_id: str | None = None
    file_id: str | None = None
    statuses: Collection[JobStatus] | None = None
    newest_only: bool = False
    changed_after: int | None = None
    reader: Principal | None = None
    files_only: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition, and what its marks stand for."""
        conditions: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
        if self.vector_db is not None:
            conditions.append((_OF_VECTOR_DB, _place(self.vector_db)))
        for column in ("tenant", "batch_id", "job_id", "file_id"):
            if (value := getattr(self, column)) is not None:
                conditions.append((f"{column} = ?", (value,)))
        if self.reader is not None and not self.reader.reads_all:
            conditions.append(_readable(self.reader))
        if self.statuses is not None:
            marks = ", ".join("?" * len(self.statuses))
            conditions.append((f"status IN ({marks})", tuple(map(str, self.statuses))))
        if self.newest_only:
            conditions.append((_NEWEST, ()))
        if self.files_only:
            conditions.append(("file_id NOT NULL", ()))
        if self.changed_after is not None:
            conditions.append(("version > ?", (self.changed_after,)))
        text = " AND ".join(condition for condition, _ in conditions)
        return text, [value for _, values in conditions for value in values]


class JobTable:
    """All jobs of a data folder. Its methods never wait for a job.

    Args:
        home: The data folder.
        clock: Says the time, in Unix seconds.
    """

    def __init__(self, home: Path, clock: Any) -> None:
        self._file = Database(home / "jobs.db", SCHEMA, remedy=REMEDY)
        self._clock = clock

    async def close(self) -> None:
        """Close the file, once the calls at work have ended."""
        await self._file.close()

    # --- submitting --------------------------------------------------------------------------

    async def add(
        self, submissions: Sequence[Submission], batch_id: str | None, *, same_origin: bool
    ) -> list[Job]:
        """Store jobs and return them; they are on the disk then.

        An unfinished job of the same content takes the place of a new one. Other unfinished jobs of
        the same document are cancelled, unless they are storing it: then the new one waits.

        Raises:
            Conflict: `same_origin`, and an unfinished job of a document is from another origin;
                nothing was stored.
        """

        def insert(table: apsw.Connection) -> list[int]:
            return [self._insert(table, one, batch_id, same_origin) for one in submissions]

        numbers = await self._file.write(insert)
        marks = ", ".join("?" * len(numbers))
        found = {job.number: job for job in await self._jobs(f"number IN ({marks})", numbers)}
        return [found[number] for number in numbers]

    def _insert(
        self, table: apsw.Connection, new: Submission, batch_id: str | None, same_origin: bool
    ) -> int:
        request, vector_db, now = new.request, new.vector_db, self._clock()
        origin = request.document.origin if request.document else None
        place = (*_place(vector_db), new.document_id)
        at = f"{_OF_VECTOR_DB} AND document_id = ?"
        _check_hidden(table, new.principal, f"{at} AND {_UNFINISHED}", place)
        query = f"SELECT number, request, origin FROM jobs WHERE {at} AND {_UNFINISHED}"  # noqa: S608
        for number, digest, other in cast(Rows, table.execute(query, place).fetchall()):
            if same_origin and origin and other and origin != other:
                raise _other_origin(new.document_id)
            if digest == new.digest:
                regroup = f"UPDATE jobs SET batch_id = ?, {_CHANGED} WHERE number = ?"  # noqa: S608
                table.execute(regroup, (batch_id, _milliseconds(now), now, number))
                return int(number)
        self._cancel(table, f"{at} AND {_UNFINISHED}", place, REPLACED)
        earlier = f"SELECT number FROM jobs WHERE {at} AND NOT {_UNFINISHED}"  # noqa: S608
        table.execute(f"DELETE FROM documents WHERE job IN ({earlier})", place)  # noqa: S608
        row: dict[str, Any] = {
            "job_id": f"job_{uuid4().hex[:24]}",
            "batch_id": batch_id,
            "vector_db_id": vector_db.identifier,
            "vector_db_created_at": vector_db.created_at,
            "document_id": new.document_id,
            "file_id": request.file_id,
            "filename": new.filename,
            "attributes": json.dumps(new.attributes),
            "chunking": _chunking_json(request.chunking),
            "status": JobStatus.QUEUED.value,
            "progress": "{}",
            "notes": "[]",
            "usage_bytes": 0,
            "attempts": 0,
            "tenant": vector_db.tenant,
            "created_at": int(now),
            "updated_at": now,
            "request": new.digest,
            "origin": origin,
            "principal": _principal_json(new.principal),
            "acl": json.dumps(new.acl),
        }
        marks = ", ".join("?" * len(row))
        table.execute(
            f"INSERT INTO jobs (version, {', '.join(row)})"  # noqa: S608 - our own names
            f" VALUES ({_NEXT_VERSION.format(tenant='?')}, {marks})",
            (_milliseconds(now), vector_db.tenant, *row.values()),
        )
        number = table.last_insert_rowid()
        if request.document:
            text = _document_json(request.document)
            table.execute("INSERT INTO documents VALUES (?, ?)", (number, text))
        return number

    # --- looking -----------------------------------------------------------------------------

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
        for given, sign in ((after, follows), (before, precedes)):
            if given is not None:
                where += f" AND number {sign} ?"
                values.append(await self._number(given, scope))
        # What stands right before a job is found by walking away from it.
        away = before is not None and after is None
        direction = "DESC" if (order == "desc") != away else "ASC"
        found = await self._jobs(f"{where} ORDER BY number {direction} LIMIT {limit + 1}", values)
        more, found = len(found) > limit, found[:limit]
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

    async def document(self, job: Job) -> RAGDocument | None:
        """Return the document that was handed in with a job; None for a file's."""
        rows = await self._file.read("SELECT document FROM documents WHERE job = ?", job.number)
        return RAGDocument.model_validate_json(str(rows[0][0])) if rows else None

    async def _number(self, given: str, scope: Scope) -> int:
        """Return the number of a job, or of the newest of a file."""
        column = "file_id" if given.startswith("file-") else "job_id"
        where, values = Scope(
            scope.tenant, scope.vector_db, scope.batch_id, reader=scope.reader
        ).where()
        query = f"SELECT max(number) FROM jobs WHERE {where} AND {column} = ?"  # noqa: S608 - ours
        (number,) = (await self._file.read(query, *values, given))[0]
        if number is None:
            raise NotFound(
                f"There is no job or file {given!r} to go on from.",
                hint="Use the first or last id of a page.",
                field="after",
            )
        return int(str(number))

    async def _jobs(self, condition: str, values: Sequence[Any]) -> list[Job]:
        query = f"SELECT {_COLUMNS} FROM jobs WHERE {condition}"  # noqa: S608 - our own columns
        return [_job(row) for row in cast(Rows, await self._file.read(query, *values))]

    # --- changing ----------------------------------------------------------------------------

    async def cancel(self, scope: Scope, reason: str | None = None) -> int:
        """Cancel jobs that are not final and not storing; return how many."""
        where, values = scope.where()
        return await self._file.write(
            lambda table: self._cancel(table, f"{where} AND {_UNFINISHED}", values, reason)
        )

    def _cancel(
        self, table: apsw.Connection, where: str, values: Iterable[Any], reason: str | None
    ) -> int:
        change = "status = 'cancelled', owner = NULL, error_message = ?"
        return self._update(table, change, (reason,), f"{where} AND NOT storing", tuple(values))

    async def retry(self, scope: Scope) -> int:
        """Queue failed and cancelled jobs again; return how many.

        Those that a newer job of the document has replaced stay as they are, and so do those whose
        document is no longer kept.
        """
        where, values = scope.where()
        there = "(file_id NOT NULL OR EXISTS (SELECT 1 FROM documents WHERE job = number))"
        change = (
            "status = 'queued', owner = NULL, storing = 0, attempts = 0, not_before = 0,"
            " error_code = NULL, error_message = NULL, progress = '{}'"
        )
        condition = f"{where} AND status IN ('failed', 'cancelled') AND {_NEWEST} AND {there}"
        return await self._file.write(
            lambda table: self._update(table, change, (), condition, tuple(values))
        )

    async def remove(self, scope: Scope) -> int:
        """Forget jobs that are not running; return how many."""
        where, values = scope.where()

        def delete(table: apsw.Connection) -> int:
            chosen = f"SELECT number FROM jobs WHERE {where} AND status <> 'running'"  # noqa: S608
            table.execute(f"DELETE FROM documents WHERE job IN ({chosen})", values)  # noqa: S608
            table.execute(f"DELETE FROM jobs WHERE number IN ({chosen})", values)  # noqa: S608
            return table.changes()

        return await self._file.write(delete)

    async def vector_dbs(self) -> list[tuple[str, str, float]]:
        """Return tenant, identifier and time of every vector DB that a job names."""
        query = "SELECT DISTINCT tenant, vector_db_id, vector_db_created_at FROM jobs"
        return cast("list[tuple[str, str, float]]", await self._file.read(query))

    async def sweep(self, gone: Collection[tuple[str, str, float]], before: float) -> int:
        """Forget the jobs of vector DBs that are gone, and old ones that newer have replaced.

        Args:
            gone: As `vector_dbs` has them.
            before: When a replaced job must have changed last, in Unix seconds.
        """

        def delete(table: apsw.Connection) -> int:
            at_first = table.total_changes()
            table.executemany(
                f"DELETE FROM jobs WHERE {_OF_VECTOR_DB} AND status <> 'running'",  # noqa: S608
                list(gone),
            )
            old = f"NOT {_UNFINISHED} AND updated_at < ? AND NOT {_NEWEST}"
            table.execute(f"DELETE FROM jobs WHERE {old}", (before,))  # noqa: S608 - our own text
            count = table.total_changes() - at_first
            table.execute("DELETE FROM documents WHERE job NOT IN (SELECT number FROM jobs)")
            return count

        return await self._file.write(delete)

    # --- working -----------------------------------------------------------------------------

    async def claim(self, owner: str) -> Job | None:
        """Take the next job to do and return it; None where there is none.

        Those that were begun before come last, so that one which keeps ending its process holds up
        nobody else's. A document has one running job at a time.
        """
        now = self._clock()

        def take(table: apsw.Connection) -> int | None:
            found = table.execute(
                "SELECT number FROM jobs WHERE status = 'queued' AND not_before <= ?"
                " AND NOT EXISTS (SELECT 1 FROM jobs other WHERE other.status = 'running'"
                " AND other.tenant = jobs.tenant AND other.vector_db_id = jobs.vector_db_id"
                " AND other.document_id = jobs.document_id) ORDER BY attempts, number LIMIT 1",
                (now,),
            ).fetchone()
            if found is None:
                return None
            progress = json.dumps({"started_at": now})
            change = "status = 'running', owner = ?, attempts = attempts + 1, progress = ?"
            self._update(table, change, (owner, progress), "number = ?", found)
            return int(found[0])

        if not await self._file.read("SELECT 1 FROM jobs WHERE status = 'queued' LIMIT 1"):
            return None
        number = await self._file.write(take)
        return None if number is None else (await self._jobs("number = ?", [number]))[0]

    async def report(self, job: Job, owner: str, progress: Progress, *, headway: bool) -> None:
        """Record progress; `headway` forgets the attempts that brought none.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = "progress = ?" + (", attempts = 1" if headway else "")
        await self._own(job, owner, change, (_progress_json(progress),))

    async def storing(self, job: Job, owner: str) -> None:
        """Mark a job whose document is stored next: it can no longer be cancelled.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        await self._own(job, owner, "storing = 1", ())

    async def complete(
        self, job: Job, owner: str, progress: Progress, usage_bytes: int, notes: Sequence[str]
    ) -> None:
        """Record that the document is stored, and let go of its text.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = (
            "status = 'completed', owner = NULL, storing = 0, error_code = NULL,"
            " error_message = NULL, progress = ?, usage_bytes = ?, notes = ?"
        )
        values = (_progress_json(progress), usage_bytes, json.dumps(list(notes)))
        await self._own(job, owner, change, values, forget=True)

    async def fail(self, job: Job, owner: str, code: ErrorCode, message: str) -> None:
        """Record why a job failed for good.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = "status = 'failed', owner = NULL, storing = 0, error_code = ?, error_message = ?"
        await self._own(job, owner, change, (code, message))

    async def postpone(self, job: Job, owner: str, message: str, until: float) -> None:
        """Queue a job again that may succeed later.

        Raises:
            NoLongerOurs: The job was taken away.
        """
        change = "status = 'queued', owner = NULL, storing = 0, error_message = ?, not_before = ?"

        def give_back(table: apsw.Connection) -> None:
            if not self._requeue(table, change, (message, until), _OURS, (job.number, owner)):
                raise NoLongerOurs

        await self._file.write(give_back)

    async def release(self, owner: str) -> int:
        """Queue again what an owner works on who stops in an orderly way; return how many."""
        change = "status = 'queued', owner = NULL, storing = 0, attempts = max(0, attempts - 1)"
        condition = "owner = ? AND status = 'running'"
        return await self._file.write(
            lambda table: self._requeue(table, change, (), condition, (owner,))
        )

    async def owners(self) -> set[str]:
        """Return who works on jobs, or did when it died."""
        query = "SELECT DISTINCT owner FROM jobs WHERE status = 'running'"
        return {str(owner) for (owner,) in await self._file.read(query)}

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
            often = f"{lost} AND attempts >= {MAX_ATTEMPTS}"
            failed = self._update(table, fail, (message,), often, (owner,))
            queue = "status = 'queued', owner = NULL, storing = 0"
            return failed + self._requeue(table, queue, (), lost, (owner,))

        return await self._file.write(take)

    async def change_attributes(self, job: Job, owner: str, attributes: Mapping[str, Any]) -> bool:
        """Give a job other attributes; return True if its stored chunks now have to follow.

        Then the job is running and storing, and this owner completes it. A queued, failed or
        cancelled job will use them when it runs.

        Raises:
            NoLongerOurs: The job is running.
        """
        text = json.dumps(dict(attributes))

        def change(table: apsw.Connection) -> bool:
            stored = "number = ? AND status = 'completed'"
            claim = "attributes = ?, status = 'running', storing = 1, owner = ?"
            if self._update(table, claim, (text, owner), stored, (job.number,)):
                return True
            waiting = "number = ? AND status <> 'running'"
            if not self._update(table, "attributes = ?", (text,), waiting, (job.number,)):
                raise NoLongerOurs
            return False

        return await self._file.write(change)

    # --- inside ------------------------------------------------------------------------------

    async def _own(
        self, job: Job, owner: str, change: str, values: Sequence[Any], *, forget: bool = False
    ) -> None:
        """Change the row of a job if it is still this owner's."""

        def update(table: apsw.Connection) -> None:
            if not self._update(table, change, values, _OURS, (job.number, owner)):
                raise NoLongerOurs
            if forget:
                table.execute("DELETE FROM documents WHERE job = ?", (job.number,))

        await self._file.write(update)

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
        overtaken = f"{condition} AND {_OVERTAKEN}"
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
            f"UPDATE jobs SET {change}, {_CHANGED} WHERE number = ?",  # noqa: S608 - our own text
            [(*values, _milliseconds(now), now, number) for (number,) in numbers],
        )
        return len(numbers)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _job(row: tuple[Any, ...]) -> Job:
    values = list(row)
    values[8] = json.loads(values[8])
    values[9] = ChunkingConfig.model_validate_json(values[9]) if values[9] else None
    values[10] = JobStatus(values[10])
    values[13] = Progress(**json.loads(values[13]))
    values[14] = json.loads(values[14])
    values[21] = _principal(values[17], values[21])
    return Job(*values)


def _principal_json(principal: Principal) -> str:
    return json.dumps(
        {
            "user": principal.user,
            "groups": sorted(principal.groups),
            "role": principal.role,
            "key_id": principal.key_id,
        }
    )


def _principal(tenant: str, text: str) -> Principal:
    stored = json.loads(text)
    groups, role = frozenset(stored["groups"]), Role(stored["role"])
    return Principal(tenant, stored["user"], groups, role, stored["key_id"])


def _readable(reader: Principal) -> tuple[str, tuple[Any, ...]]:
    """Return the condition of a job that a principal may know of."""
    tokens = sorted(reader.tokens())
    marks = ", ".join("?" * len(tokens))
    open_ = f"EXISTS (SELECT 1 FROM json_each(jobs.acl) WHERE value IN ({marks}))"  # noqa: S608
    own = "json_extract(principal, '$.user', '$.key_id') = json_array(?, ?)"
    return f"({open_} OR {own})", (*tokens, reader.user, reader.key_id)


def _check_hidden(
    table: apsw.Connection, principal: Principal, where: str, values: tuple[Any, ...]
) -> None:
    """Refuse to replace an unfinished job of a document that a principal may not read."""
    if principal.reads_all:
        return
    readable, more = _readable(principal)
    query = f"SELECT 1 FROM jobs WHERE {where} AND NOT {readable} LIMIT 1"  # noqa: S608
    if table.execute(query, (*values, *more)).fetchall():
        raise Conflict(
            "A document_id of this call is taken.",
            hint="Nothing was queued. Choose other ids.",
            field="documents",
        )


def _progress_json(progress: Progress) -> str:
    return json.dumps(asdict(progress))


def _document_json(document: RAGDocument) -> str:
    """Return a document as JSON that reads as the same document.

    A plain string of one address would come back as that address; a text item stays a text.
    """
    fields = document.model_dump(mode="json", exclude_defaults=True)
    if isinstance(document.content, str):
        fields["content"] = TextItem(text=document.content).model_dump()
    return json.dumps(fields, ensure_ascii=False)


def _chunking_json(chunking: ChunkingConfig | None) -> str | None:
    return chunking.model_dump_json() if chunking else None


def _place(vector_db: VectorDB) -> tuple[str, str, float]:
    return vector_db.tenant, vector_db.identifier, vector_db.created_at


def _other_origin(document_id: str) -> Conflict:
    return Conflict(
        f"Document {document_id!r} is being ingested already, from another place.",
        hint="Choose another document_id, or replace it with same_origin_only: false.",
        field="documents",
    )
