"""Jobs, each the ingest of one document into one vector DB: their request, state and table row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal
from uuid import uuid4

from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.api.wire import TextItem

ErrorCode = Literal["server_error", "unsupported_file", "invalid_file"]


class JobStatus(StrEnum):
    """Status of a job; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
"""The states that the OpenAI API calls `in_progress`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job.

    Attributes:
        pages: Number of the last page with embedded chunks.
        pages_total: Number of pages of the document; None if it has no pages.
        characters, characters_total: Number of characters, embedded and in total.
        chunks: Number of chunks split so far.
        embedded: Number of chunks with an embedding.
        context_calls, context_tokens, context_seconds: Cost of the sentences about its chunks,
            over all attempts; see `ContextCost`.
        started_at: Start in Unix seconds; None before the start.
        seconds: Duration so far.
    """

    pages: int = 0
    pages_total: int | None = None
    characters: int = 0
    characters_total: int = 0
    chunks: int = 0
    embedded: int = 0
    context_calls: int = 0
    context_tokens: int = 0
    context_seconds: float = 0.0
    started_at: float | None = None
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """The share of the text that has been embedded, 0 to 1."""
        return self.characters / self.characters_total if self.characters_total else 0.0

    @property
    def rate(self) -> float:
        """Number of chunks embedded per second; 0 before the first."""
        return self.embedded / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated number of remaining seconds; None if unknown."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        left = self.seconds_left
        derived = {"rate": round(self.rate, 2), "seconds_left": left and round(left, 1)}
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request to ingest an uploaded file, or a document.

    Attributes:
        vector_db_id: The target.
        file_id: An uploaded file.
        document: A document; exactly one of `file_id` and `document` is set.
        document_id: Document id for a file; None for the file's id. A document has its own.
        attributes: Metadata of a file's chunks; a document has its own.
        acl: Who may read a file's document, None for the vector DB's `default_acl`; a document has
            its own.
        chunking: Sizes of the chunks; None for the registration's.
        must_exist: True to reject a missing file when it is submitted; False to let the job fail.
    """

    vector_db_id: str
    file_id: str | None = None
    document: RAGDocument | None = None
    document_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    acl: Sequence[str] | None = None
    chunking: ChunkingConfig | None = None
    must_exist: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored in the table.

    Attributes:
        number: Position in the order of submission.
        job_id: "job_" and 24 hex digits.
        batch_id: Id of the batch that it was submitted in, or None.
        vector_db_id, vector_db_created_at: The target; the time distinguishes registrations of
            the same id.
        document_id: Id of the stored document.
        file_id: The uploaded file, or None.
        filename: Name of the file, or else from the document's metadata; "" if neither has one.
        attributes: Top-level metadata of its chunks.
        acl: The submitted ACL of a file's document; None for the default, and for documents.
        chunking: Sizes of the chunks; None for the registration's.
        status: Current state.
        error_code, error_message: The reason for its failure, or for its retry.
        progress: Current progress.
        notes: Unread parts of the document, and other messages for the sender.
        usage_bytes: Size of the stored texts and embeddings.
        attempts: Number of attempts since it last made progress.
        claim: Fencing token: the number of times that it was claimed. Writes of earlier claims are
            refused.
        tenant: Tenant of the vector DB.
        created_at, updated_at: Unix seconds.
        version: Increases with every change of any job.
        principal: The submitter; the job writes with this principal's rights.
    """

    number: int
    job_id: str
    batch_id: str | None
    vector_db_id: str
    vector_db_created_at: float
    document_id: str
    file_id: str | None
    filename: str
    attributes: dict[str, Any]
    acl: list[str] | None
    chunking: ChunkingConfig | None
    status: JobStatus
    error_code: ErrorCode | None
    error_message: str | None
    progress: Progress
    notes: list[str]
    usage_bytes: int
    attempts: int
    claim: int
    tenant: str
    created_at: int
    updated_at: float
    version: int
    principal: Principal


@dataclass(frozen=True, slots=True)
class Step:
    """A progress report of a job.

    Attributes:
        job: The job.
        progress: Its progress.
        headway: True if new embeddings were computed, which resets the number of attempts.
        usage_bytes: Size of the document's texts and embeddings.
        notes: As in `Job`.
    """

    job: Job
    progress: Progress
    headway: bool = False
    usage_bytes: int = 0
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """A request with resolved names.

    Attributes:
        request: The request.
        vector_db: The target.
        filename: Name of the file, or from the document's metadata.
        principal: The submitter.
    """

    request: JobRequest
    vector_db: VectorDB
    filename: str
    principal: Principal

    @property
    def document_id(self) -> str:
        """The id that the document is stored under."""
        document, asked = self.request.document, self.request
        return document.document_id if document else str(asked.document_id or asked.file_id)

    @property
    def attributes(self) -> dict[str, Any]:
        """The metadata for its chunks."""
        document = self.request.document
        return dict(document.metadata if document else self.request.attributes)

    @property
    def acl(self) -> list[str]:
        """The ACL tokens that allow reading the document."""
        document = self.request.document
        own = document.acl if document else self.request.acl
        return self.vector_db.default_acl if own is None else list(own)

    @property
    def digest(self) -> str:
        """A hash of the content, the settings and the principal."""
        document = self.request.document
        parts = [
            document.model_dump_json() if document else self.request.file_id,
            self.attributes,
            acl_json(self.request.acl),
            chunking_json(self.request.chunking),
            principal_json(self.principal),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- rows ------------------------------------------------------------------------------------

FIELDS = [field.name for field in fields(Job)]


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row with the columns `FIELDS`."""
    stored = dict(zip(FIELDS, row, strict=True))
    chunking = stored["chunking"]
    stored |= {
        "attributes": json.loads(stored["attributes"]),
        "acl": json.loads(stored["acl"]) if stored["acl"] else None,
        "chunking": ChunkingConfig.model_validate_json(chunking) if chunking else None,
        "status": JobStatus(stored["status"]),
        "progress": Progress(**json.loads(stored["progress"])),
        "notes": json.loads(stored["notes"]),
        "principal": _principal(stored["tenant"], stored["principal"]),
    }
    return Job(**stored)


def principal_json(principal: Principal) -> str:
    """Return the stored form of a principal; its tenant has its own column."""
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


def progress_json(progress: Progress) -> str:
    """Return the stored form of progress."""
    return json.dumps(asdict(progress))


def document_row(job: int, document: RAGDocument) -> dict[str, Any]:
    """Return the row of a job's document as JSON that parses to the same document.

    A plain string that looks like an address would be parsed as one; a text item stays a text.
    """
    values = document.model_dump(mode="json", exclude_defaults=True)
    if isinstance(document.content, str):
        values["content"] = TextItem(text=document.content).model_dump()
    stored = json.dumps(values, ensure_ascii=False)
    content = values.get("content")
    is_text = isinstance(content, dict) and isinstance(content.get("text"), str)
    size = len(stored.encode("utf-8", "surrogatepass")) if is_text else None
    return {"job": job, "document": stored, "text_bytes": size}


def acl_json(acl: Sequence[str] | None) -> str | None:
    """Return the stored form of an ACL."""
    return None if acl is None else json.dumps(list(acl))


def chunking_json(chunking: ChunkingConfig | None) -> str | None:
    """Return the stored form of chunk sizes; sizes that are not set stay unset."""
    return chunking.model_dump_json(exclude_unset=True) if chunking else None


def new_row(new: Submission, batch_id: str | None, now: float) -> dict[str, Any]:
    """Return the row of a new job, as values by column."""
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
        "acl": acl_json(request.acl),
        "chunking": chunking_json(request.chunking),
        "status": JobStatus.QUEUED.value,
        "progress": "{}",
        "notes": "[]",
        "usage_bytes": 0,
        "attempts": 0,
        "claim": 0,
        "tenant": vector_db.tenant,
        "created_at": int(now),
        "updated_at": now,
        "version": 0,
        "request": new.digest,
        "origin": document.origin if document else None,
        "principal": principal_json(new.principal),
        "user": new.principal.user,
        "key_id": new.principal.key_id,
        "storing": 0,
        "not_before": 0.0,
        "host": vector_db.host,
    }
