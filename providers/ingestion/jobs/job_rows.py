"""The rows of the table of jobs: their form, what is chosen of them, and jobs in and out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from uuid import uuid4

from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.api.wire import TextItem
from corral.providers.base.database import Schema
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus, Progress

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
    "CREATE INDEX IF NOT EXISTS jobs_by_tenant ON jobs (tenant, version)",
    # A document is kept until its job has completed, or is replaced by a newer one.
    "CREATE TABLE IF NOT EXISTS documents (job INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT",
)
TABLES = Schema(SCHEMA)
_FIELDS = [field.name for field in fields(Job)]
COLUMNS = ", ".join(_FIELDS)
OURS = "number = ? AND owner = ? AND status = 'running'"
UNFINISHED = "status IN ('queued', 'running')"
OF_VECTOR_DB = "tenant = ? AND vector_db_id = ? AND vector_db_created_at = ?"
_NEWER = (
    "(SELECT 1 FROM jobs newer WHERE newer.tenant = jobs.tenant"
    " AND newer.vector_db_id = jobs.vector_db_id"
    " AND newer.vector_db_created_at = jobs.vector_db_created_at"
    " AND newer.document_id = jobs.document_id AND newer.number > jobs.number AND {such})"
)
_REPLACES = (
    "(newer.status = 'completed' OR newer.file_id = jobs.file_id"
    " OR newer.principal = jobs.principal)"
)
NEWEST = f"NOT EXISTS {_NEWER.format(such=_REPLACES)}"
"""Another's job counts once it has stored the document: it may be refused, and replace nothing."""
_OVERTAKES = "newer.status IN ('queued', 'running', 'completed')"
OVERTAKEN = f"EXISTS {_NEWER.format(such=_OVERTAKES)}"
"""A newer version of the document is stored, or will be: this one must not be stored after it."""
NEXT_VERSION = (
    "max(?, (SELECT ifnull(max(version), 0) + 1 FROM jobs same WHERE same.tenant = {tenant}))"
)
"""Grows within a tenant, also where its newest jobs were removed; says nothing of others."""
RECORDED = (
    "SELECT document_id, number, acl, status = 'completed' OR storing FROM jobs"  # noqa: S608 - ours
    f" WHERE {OF_VECTOR_DB} AND document_id IN (SELECT value FROM json_each(?))"
    f" AND (storing OR NOT {UNFINISHED}) ORDER BY number DESC"
)
"""The acls of jobs by document, the newest first. What waits has the acl that it will store."""
CHANGED = f"version = {NEXT_VERSION.format(tenant='jobs.tenant')}, updated_at = ?"

Rows = Sequence[tuple[Any, ...]]


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
            chunking_json(self.request.chunking),
            principal_json(self.principal),
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
        changing: Only those that the reader may change: not its own of a document that is stored
            and closed to it.
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
    changing: bool = False
    changed_after: int | None = None
    reader: Principal | None = None
    files_only: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition, and what its marks stand for."""
        conditions: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
        if self.vector_db is not None:
            conditions.append((OF_VECTOR_DB, place_of(self.vector_db)))
        for column in ("tenant", "batch_id", "job_id", "file_id"):
            if (value := getattr(self, column)) is not None:
                conditions.append((f"{column} = ?", (value,)))
        if self.reader is not None and not self.reader.reads_all:
            conditions.append(readable_by(self.reader, changing=self.changing))
        if self.statuses is not None:
            marks = ", ".join("?" * len(self.statuses))
            conditions.append((f"status IN ({marks})", tuple(map(str, self.statuses))))
        if self.newest_only:
            conditions.append((NEWEST, ()))
        if self.files_only:
            conditions.append(("file_id NOT NULL", ()))
        if self.changed_after is not None:
            conditions.append(("version > ?", (self.changed_after,)))
        text = " AND ".join(condition for condition, _ in conditions)
        return text, [value for _, values in conditions for value in values]


def milliseconds(seconds: float) -> int:
    """Return seconds as whole milliseconds."""
    return int(seconds * 1000)


def job_of(row: tuple[Any, ...]) -> Job:
    """Return the job of a row with `COLUMNS`."""
    stored = dict(zip(_FIELDS, row, strict=True))
    chunking = stored["chunking"]
    stored |= {
        "attributes": json.loads(stored["attributes"]),
        "chunking": ChunkingConfig.model_validate_json(chunking) if chunking else None,
        "status": JobStatus(stored["status"]),
        "progress": Progress(**json.loads(stored["progress"])),
        "notes": json.loads(stored["notes"]),
        "principal": _principal(stored["tenant"], stored["principal"]),
    }
    return Job(**stored)


def principal_json(principal: Principal) -> str:
    """Return a principal as it is stored; its tenant has a column."""
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
    return Principal.stored(tenant, stored["user"], groups, role, stored["key_id"])


def readable_by(reader: Principal, *, changing: bool = False) -> tuple[str, tuple[Any, ...]]:
    """Return the condition of a job that a principal may know of, or change."""
    tokens = sorted(reader.tokens())
    marks = ", ".join("?" * len(tokens))
    open_ = f"EXISTS (SELECT 1 FROM json_each(jobs.acl) WHERE value IN ({marks}))"  # noqa: S608
    own = "principal ->> 'user' IS ? AND principal ->> 'key_id' IS ?"
    own += " AND status <> 'completed'" if changing else ""
    return f"({open_} OR ({own}))", (*tokens, reader.user, reader.key_id)


def followed(rows: Rows, acls: Mapping[str, Collection[str]]) -> dict[int, list[str]]:
    """Return the acls that jobs get where their documents have these, by job number.

    The job whose version is stored gets the document's. Others tell of versions that are not
    stored, so they are closed with the document and never opened.

    Args:
        rows: Of `RECORDED`.
        acls: By document.
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


def progress_json(progress: Progress) -> str:
    """Return progress as it is stored."""
    return json.dumps(asdict(progress))


def document_json(document: RAGDocument) -> str:
    """Return a document as JSON that reads as the same document.

    A plain string of one address would come back as that address; a text item stays a text.
    """
    said = document.model_dump(mode="json", exclude_defaults=True)
    if isinstance(document.content, str):
        said["content"] = TextItem(text=document.content).model_dump()
    return json.dumps(said, ensure_ascii=False)


def chunking_json(chunking: ChunkingConfig | None) -> str | None:
    """Return sizes as they are stored."""
    return chunking.model_dump_json() if chunking else None


def place_of(vector_db: VectorDB) -> tuple[str, str, float]:
    """Return what the marks of `OF_VECTOR_DB` stand for."""
    return vector_db.tenant, vector_db.identifier, vector_db.created_at


def new_row(new: Submission, batch_id: str | None, now: float) -> dict[str, Any]:
    """Return the row of a job that is submitted now, by column; its version is not in it."""
    request, vector_db, document = new.request, new.vector_db, new.request.document
    return {
        "job_id": f"job_{uuid4().hex[:24]}",
        "batch_id": batch_id,
        "vector_db_id": vector_db.identifier,
        "vector_db_created_at": vector_db.created_at,
        "document_id": new.document_id,
        "file_id": request.file_id,
        "filename": new.filename,
        "attributes": json.dumps(new.attributes),
        "chunking": chunking_json(request.chunking),
        "status": JobStatus.QUEUED.value,
        "progress": "{}",
        "notes": "[]",
        "usage_bytes": 0,
        "attempts": 0,
        "tenant": vector_db.tenant,
        "created_at": int(now),
        "updated_at": now,
        "request": new.digest,
        "origin": document.origin if document else None,
        "principal": principal_json(new.principal),
        "acl": json.dumps(new.acl),
    }
