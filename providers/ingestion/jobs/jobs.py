"""Jobs: the ingest of one document into one vector DB, as requested and as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from corral.api.principal import Principal
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig

ErrorCode = Literal["server_error", "unsupported_file", "invalid_file"]


class JobStatus(StrEnum):
    """Status of a job; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
"""What OpenAI calls in_progress."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    Attributes:
        pages: Pages whose chunks are embedded.
        pages_total: Pages of the document; None where it has none.
        characters, characters_total: The same of the text.
        chunks: Chunks made so far.
        embedded: Those of them that have an embedding.
        started_at: Unix seconds; None before work began.
        seconds: How long the work has taken.
    """

    pages: int = 0
    pages_total: int | None = None
    characters: int = 0
    characters_total: int = 0
    chunks: int = 0
    embedded: int = 0
    started_at: float | None = None
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """The share of the text that is embedded, 0 to 1."""
        return self.characters / self.characters_total if self.characters_total else 0.0

    @property
    def rate(self) -> float:
        """Chunks embedded a second; 0 before the first."""
        return self.embedded / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest takes; None where that is not known yet."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        left = self.seconds_left
        derived = {"rate": round(self.rate, 2), "seconds_left": left and round(left, 1)}
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What to ingest: an uploaded file, or a document handed in.

    Attributes:
        vector_db_id: Where to.
        file_id: An uploaded file.
        document: A document; exactly one of the two is given.
        document_id: Of a file; None takes the file's id. A document brings its own.
        attributes: Metadata of a file's chunks; a document brings its own.
        chunking: Sizes of the chunks; None takes the registration's.
        must_exist: Whether a file that does not exist is refused; else its job fails.
    """

    vector_db_id: str
    file_id: str | None = None
    document: RAGDocument | None = None
    document_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    chunking: ChunkingConfig | None = None
    must_exist: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the table has it.

    Attributes:
        number: Its place in the order of submission.
        job_id: "job_" and 24 hex digits.
        batch_id: The group that it was submitted with, or None.
        vector_db_id, vector_db_created_at: Where to; the time tells a registration from its
            successors.
        document_id: Of the stored document.
        file_id: The uploaded file, or None.
        filename: Name of the file, else of the document by its metadata; "" if neither has one.
        attributes: Metadata that its chunks carry at the top level.
        chunking: Sizes of the chunks; None takes the registration's.
        status: Where it stands.
        error_code, error_message: Why it failed, or why it waits to be tried again.
        progress: How far it is.
        notes: What of the document could not be read, and what the sender has to know.
        usage_bytes: Texts and embeddings that it stored.
        attempts: How often it was begun since it last made headway.
        tenant: Whose it is.
        created_at, updated_at: Unix seconds.
        version: Grows with every change of any job.
        principal: Who submitted it; what it stores is written with this principal's rights.
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
    chunking: ChunkingConfig | None
    status: JobStatus
    error_code: ErrorCode | None
    error_message: str | None
    progress: Progress
    notes: list[str]
    usage_bytes: int
    attempts: int
    tenant: str
    created_at: int
    updated_at: float
    version: int
    principal: Principal


@dataclass(frozen=True, slots=True)
class Step:
    """A job whose document is stored next, or is stored.

    Attributes:
        job: The job.
        progress: How far it is.
        headway: Whether embeddings were made that nobody had; it forgets the attempts without.
        usage_bytes: Texts and embeddings of the document.
        notes: As of `Job`.
    """

    job: Job
    progress: Progress
    headway: bool = False
    usage_bytes: int = 0
    notes: Sequence[str] = ()
