"""Read the jobs: scopes that select them, conditions for queries, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, case, exists, func, or_, select

from corral.api.chunks import STORED
from corral.api.errors import NotFound
from corral.api.principal import Principal
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDB
from corral.providers.base.cursor import Places
from corral.providers.ingestion.jobs.jobs import FIELDS, UNFINISHED, Job, JobStatus, job_of
from corral.providers.state.state import Area
from corral.providers.state.tables import DOCUMENTS, JOB_TOKENS, JOBS

TOGETHER_BYTES = 16 * 1024
"""Maximum total size of the documents that a worker processes together, in bytes.

This is about 20 chunks, which take half a second to embed on a laptop. A longer document is
processed alone."""

TOGETHER_DOCUMENTS = 32

# --- conditions ------------------------------------------------------------------------------

J = JOBS.c
COLUMNS = [J[name] for name in FIELDS]
_NEWER, _OTHER = JOBS.alias("newer"), JOBS.alias("other")

IS_UNFINISHED = J.status.in_([*map(str, UNFINISHED)])
_OF_SAME_DOCUMENT = and_(
    *(
        _NEWER.c[name] == J[name]
        for name in ("tenant", "vector_db_id", "vector_db_created_at", "document_id")
    ),
    _NEWER.c.number > J.number,
)
_REPLACES = or_(
    _NEWER.c.status == "completed",
    _NEWER.c.file_id == J.file_id,
    _NEWER.c.principal == J.principal,
)
NEWEST = ~exists().where(_OF_SAME_DOCUMENT, _REPLACES)
"""No newer job replaces this one.

A newer job of another principal counts only if it has stored the document, because it may fail."""
OVERTAKEN = exists().where(
    _OF_SAME_DOCUMENT, _NEWER.c.status.in_(("queued", "running", "completed"))
)
"""A newer version of the document is or will be stored, so this one must not be."""
IS_SUBMITTED = or_(J.file_id.is_not(None), exists().where(DOCUMENTS.c.job == J.number))
"""The job has a file, or its document is still stored."""
_IS_RUNNING_ELSEWHERE = exists().where(
    _OTHER.c.status == "running",
    *(_OTHER.c[name] == J[name] for name in ("tenant", "vector_db_id", "document_id")),
)


def of_vector_db(vector_db: VectorDB) -> ColumnElement[bool]:
    """Return the condition for the jobs of a registration."""
    return of_place((vector_db.tenant, vector_db.identifier, vector_db.created_at))


def of_place(place: tuple[str, str, float]) -> ColumnElement[bool]:
    """Return the condition for the jobs of a tenant, an identifier and a creation time."""
    tenant, identifier, created_at = place
    same = (J.tenant == tenant, J.vector_db_id == identifier)
    return and_(*same, J.vector_db_created_at == created_at)


def readable_by(reader: Principal, *, changing: bool = False) -> ColumnElement[bool]:
    """Return the condition for jobs that a principal may see, or change."""
    tokens = JOB_TOKENS.c.token.in_(sorted(reader.tokens()))
    readable = exists().where(JOB_TOKENS.c.job == J.number, tokens)
    own = and_(J.user == reader.user, J.key_id == reader.key_id)
    return or_(readable, own & (J.status != "completed") if changing else own)


@dataclass(frozen=True, slots=True)
class Scope:
    """A selection of jobs that match all given conditions.

    Attributes:
        tenant: Only jobs of this tenant; None for all tenants.
        reader: Only jobs that this principal submitted or may read the documents of; None for all
            jobs.
        vector_db: Only jobs of this registration.
        batch_id, job_id, file_id: Only jobs of this batch, id or file.
        statuses: Only jobs in one of these states.
        newest_only: Only the newest job of each document.
        changing: Only jobs that the reader may change. These exclude its own completed jobs with
            documents that it may not read.
        changed_after: Only jobs that changed after this version.
        files_only: Only jobs of uploaded files.
        document_ids: Only jobs of these documents.
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
    document_ids: Collection[str] | None = None

    def where(self) -> list[ColumnElement[bool]]:
        """Return the conditions of the selection."""
        found = []
        if self.vector_db is not None:
            found.append(of_vector_db(self.vector_db))
        for column in ("tenant", "batch_id", "job_id", "file_id"):
            if (value := getattr(self, column)) is not None:
                found.append(J[column] == value)
        if self.reader is not None and not self.reader.reads_all:
            found.append(readable_by(self.reader, changing=self.changing))
        if self.statuses is not None:
            found.append(J.status.in_([*map(str, self.statuses)]))
        if self.newest_only:
            found.append(NEWEST)
        if self.files_only:
            found.append(J.file_id.is_not(None))
        if self.document_ids is not None:
            found.append(J.document_id.in_(self.document_ids))
        if self.changed_after is not None:
            found.append(J.version > self.changed_after)
        return found


class Recorded(NamedTuple):
    """The ACL recorded in a job.

    Attributes:
        acl: The tokens of its document.
        stored: True if the job has stored its version of the document, or is storing it.
    """

    document_id: str
    number: int
    acl: frozenset[str]
    stored: bool


class JobReader:
    """Read access to the jobs."""

    def __init__(self, area: Area) -> None:
        self._area = area
        self._places: Places[int] = Places()

    async def find(self, scope: Scope, limit: int | None = None) -> list[Job]:
        """Return jobs in the order in which they last changed; `limit` None for all."""
        query = select(*COLUMNS).where(*scope.where())
        return await self._jobs(query.order_by(J.version).limit(limit))

    async def get(self, scope: Scope, what: str) -> Job:
        """Return the newest job.

        Raises:
            NotFound: No job matches; the message uses `what`, such as "job 'job_1'".
        """
        query = select(*COLUMNS).where(*scope.where())
        jobs = await self._jobs(query.order_by(J.number.desc()).limit(1))
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
        query = select(*COLUMNS).where(*scope.where())
        for field, given in (("after", after), ("before", before)):
            if given is not None:
                number = await self._number(given, scope, field)
                is_above = (field == "after") == (order == "asc")
                query = query.where(J.number > number if is_above else J.number < number)
        # To read the page that ends at a job, read in the opposite direction.
        away = before is not None and after is None
        place = J.number.desc() if (order == "desc") != away else J.number
        jobs = await self._jobs(query.order_by(place).limit(limit + 1))
        more, jobs = len(jobs) > limit, jobs[:limit]
        for job in (*jobs[:1], *jobs[-1:]):
            for name in (job.job_id, job.file_id, job.document_id):
                self._places.keep((_reach(scope), name), job.number)
        return jobs[::-1] if away else jobs, more

    async def counts(self, scope: Scope) -> Counter[JobStatus]:
        """Return the number of jobs in each state."""
        query = select(J.status, func.count()).where(*scope.where()).group_by(J.status)
        rows = await self._area.read(query)
        return Counter({JobStatus(status): count for status, count in rows})

    async def usage(self, scope: Scope) -> int:
        """Return the number of bytes that jobs have stored."""
        query = select(func.sum(J.usage_bytes)).where(*scope.where())
        return int((await self._area.read(query))[0][0] or 0)

    async def documents(self, jobs: Sequence[Job]) -> dict[int, RAGDocument]:
        """Return the stored documents of jobs, by job number."""
        numbers = [job.number for job in jobs]
        query = select(DOCUMENTS.c.job, DOCUMENTS.c.document).where(DOCUMENTS.c.job.in_(numbers))
        return {
            number: RAGDocument.model_validate_json(text, context=STORED)
            for number, text in await self._area.read(query)
        }

    async def recorded(self, vector_db: VectorDB, documents: Collection[str]) -> list[Recorded]:
        """Return the ACLs recorded in the jobs of documents, newest first."""
        if not documents:
            return []
        return recorded_of(await self._area.read(recorded_query(vector_db, documents)))

    async def vector_dbs(self) -> list[tuple[str, str, float]]:
        """Return tenant, identifier and creation time of every vector DB with a job."""
        query = select(J.tenant, J.vector_db_id, J.vector_db_created_at).distinct()
        return [(tenant, name, at) for tenant, name, at in await self._area.read(query)]

    async def owners(self) -> set[str]:
        """Return the owners of running jobs, alive or dead."""
        query = select(J.owner).where(J.status == "running").distinct()
        return {str(owner) for (owner,) in await self._area.read(query)}

    # --- inside ------------------------------------------------------------------------------

    async def _number(self, given: str, scope: Scope, field: str) -> int:
        """Return the number of a job, or of the newest job of a file or document."""
        number: int | None = None
        for column in ("file_id" if given.startswith("file-") else "job_id", "document_id"):
            query = select(func.max(J.number)).where(*_seen(scope).where(), J[column] == given)
            (number,) = (await self._area.read(query))[0]
            if number is not None:
                break
        if number is None:
            number = self._places.find((_reach(scope), given))
        if number is None:
            raise NotFound(
                f"There is no job or file {given!r} to continue from.",
                hint="Use the first or last id of a page.",
                field=field,
            )
        return number

    async def _jobs(self, query: Select[*tuple[Any, ...]]) -> list[Job]:
        return [job_of(row) for row in await self._area.read(query)]


def _seen(scope: Scope) -> Scope:
    """Return the scope of the jobs that a page may start after; it ignores other conditions."""
    return Scope(scope.tenant, scope.vector_db, scope.batch_id, reader=scope.reader)


def _reach(scope: Scope) -> Hashable:
    """Return a cache key for the jobs of `_seen`."""
    vector_db = scope.vector_db
    place = vector_db and (*vector_db.key, vector_db.created_at)
    return scope.tenant, place, scope.batch_id, scope.reader


def recorded_query(vector_db: VectorDB, documents: Collection[str]) -> Select[*tuple[Any, ...]]:
    """Return the query for `recorded_of`. It skips waiting jobs: their ACL is yet to be stored."""
    stored = case(((J.status == "completed") | (J.storing > 0), 1), else_=0)
    query = select(J.document_id, J.number, stored, JOB_TOKENS.c.token)
    query = query.outerjoin_from(JOBS, JOB_TOKENS, JOB_TOKENS.c.job == J.number)
    query = query.where(of_vector_db(vector_db), J.document_id.in_(documents))
    return query.where((J.storing > 0) | ~IS_UNFINISHED).order_by(J.number.desc())


def recorded_of(rows: Sequence[Sequence[Any]]) -> list[Recorded]:
    """Return the ACLs of jobs, newest first."""
    tokens: dict[tuple[str, int, bool], set[str]] = {}
    for document_id, number, stored, token in rows:
        acl = tokens.setdefault((document_id, number, bool(stored)), set())
        acl.update(() if token is None else (token,))
    return [Recorded(name, at, frozenset(acl), done) for (name, at, done), acl in tokens.items()]


def followed(
    rows: Sequence[Recorded], acls: Mapping[str, Collection[str]]
) -> dict[int, frozenset[str]]:
    """Return the changed ACLs of jobs by job number, given the new ACLs of their documents.

    The job of the stored version gets the document's ACL. Other jobs belong to versions that are
    not stored, so their ACLs can only lose tokens.

    Args:
        rows: The ACLs of the jobs, newest first.
        acls: The new ACL of each document id.
    """
    changed: dict[int, frozenset[str]] = {}
    done: set[str] = set()
    for row in rows:
        now = frozenset(acls[row.document_id])
        acl = now if row.stored and row.document_id not in done else row.acl & now
        done |= {row.document_id} if row.stored else set()
        if acl != row.acl:
            changed[row.number] = acl
    return changed


class Next(NamedTuple):
    """The next job.

    Attributes:
        number: Number of the job.
        attempts: Number of earlier attempts.
        text_bytes: Size of the document if it is a short text, else None.
        place: Grouping key; only jobs with the same key are processed together.
    """

    number: int
    attempts: int
    text_bytes: int | None
    place: tuple[Any, ...]


def queued_for(host: str) -> ColumnElement[bool]:
    """Return the condition for queued jobs that a machine can run.

    Args:
        host: Id of the machine; "" if it has the data of all inline providers.
    """
    queued = J.status == "queued"
    return queued & J.host.in_(("", host)) if host else queued


def next_job(table: Connection, now: float, host: str) -> Next | None:
    """Return the next job of a machine; jobs with earlier attempts come last."""
    size = case((DOCUMENTS.c.text_bytes <= TOGETHER_BYTES, DOCUMENTS.c.text_bytes))
    place = J.tenant, J.vector_db_id, J.vector_db_created_at, J.principal, J.chunking
    query = select(J.number, J.attempts, size, *place)
    query = query.outerjoin_from(JOBS, DOCUMENTS, DOCUMENTS.c.job == J.number)
    query = query.where(queued_for(host), J.not_before <= now, ~_IS_RUNNING_ELSEWHERE)
    row = table.execute(query.order_by(J.attempts, J.number).limit(1)).first()
    return None if row is None else Next(row[0], row[1], row[2], tuple(row[3:]))


def next_jobs(table: Connection, now: float, host: str) -> Iterator[int]:
    """Yield the numbers of the next jobs: a single job, or several to process together.

    Short texts are processed together if they have the same vector DB, principal and chunk sizes. A
    job with an earlier attempt is processed alone, because it may have crashed its process.

    The caller claims each job before it requests the next.
    """
    room, place = TOGETHER_BYTES, None
    for _ in range(TOGETHER_DOCUMENTS):
        found = next_job(table, now, host)
        if found is None:
            return
        alone = found.text_bytes is None or found.attempts > 0
        if place is not None and (alone or found.place != place or (found.text_bytes or 0) > room):
            return
        yield found.number
        if alone:
            return
        room, place = room - (found.text_bytes or 0), found.place
