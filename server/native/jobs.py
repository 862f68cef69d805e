"""Jobs: documents that are ingested in the background; submit, list, watch, cancel, retry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from corral.api.errors import InvalidRequest, NotFound
from corral.api.filters import LARGEST_INTEGER
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig
from corral.api.wire import Identifier, Strict
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus
from corral.providers.ingestion.read.records import Columns
from corral.providers.ingestion.service import MAX_PAGE, Ingestion
from corral.providers.stack.stack import Stack
from corral.server.access.roles import WRITER
from corral.server.errors import ERRORS
from corral.server.limits import check_count
from corral.server.llama_stack.wire import InsertOptions, Listed
from corral.server.openai.attaching import check_files
from corral.server.openai.files import own_file
from corral.server.routing import ContractRoute, LimitsOf, StackOf

router = APIRouter(prefix="/v1/jobs", tags=["Jobs"], route_class=ContractRoute, responses=ERRORS)

LOOKS_BETWEEN_PINGS = 60
"""Checks without news after which a stream sends a comment, to keep the connection open."""

JobId = Annotated[str, Path(description="`job_id`.")]
BatchId = Annotated[str | None, Query(description="Only the jobs of this batch.")]
VectorDBId = Annotated[str | None, Query(description="Only the jobs of this vector DB.")]


class ProgressInfo(BaseModel):
    """Progress of a job."""

    pages: int
    pages_total: int | None = Field(description="null: the document has no pages.")
    characters: int = Field(description="Characters of the text embedded so far.")
    characters_total: int
    chunks: int
    embedded: int = Field(description="Chunks embedded so far.")
    context_calls: int = Field(description="Calls of the `context_model`; cached sentences: none.")
    context_tokens: int = Field(description="cl100k tokens of these prompts and their answers.")
    context_seconds: float = Field(description="Time that these calls took.")
    started_at: float | None = Field(description="Unix seconds; null: not started.")
    seconds: float = Field(description="Time spent so far.")
    rate: float = Field(description="Chunks embedded per second.")
    seconds_left: float | None = Field(description="Estimated seconds left; null: not known yet.")


class JobInfo(BaseModel):
    """The ingest of one document into one vector DB."""

    job_id: str
    batch_id: str | None
    vector_db_id: str
    document_id: str
    file_id: str | None
    filename: str
    attributes: dict[str, Any]
    chunking: ChunkingConfig | None = Field(description="null: as registered.")
    status: JobStatus
    error_code: Literal["server_error", "unsupported_file", "invalid_file"] | None
    error_message: str | None = Field(description="Why it failed, or why it is being retried.")
    progress: ProgressInfo
    notes: list[str] = Field(
        description="Warnings, such as parts of the document that could not be read."
    )
    usage_bytes: int = Field(description="Size of the stored texts and embeddings.")
    attempts: int = Field(description="Number of attempts since it last made progress.")
    created_at: int
    updated_at: float
    version: int = Field(
        description="Increases with every change of a job of the tenant; see `changed_after`."
    )

    @classmethod
    def of(cls, job: Job) -> JobInfo:
        """Convert a job to the wire format."""
        shown = {name: getattr(job, name) for name in cls.model_fields if name != "progress"}
        return cls(**shown, progress=ProgressInfo(**job.progress.as_dict()))


class JobList(BaseModel):
    """A page of jobs."""

    data: list[JobInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None

    @classmethod
    def of(cls, jobs: list[Job], has_more: bool) -> JobList:
        """Convert a page to the wire format."""
        data = [JobInfo.of(job) for job in jobs]
        first, last = (data[0].job_id, data[-1].job_id) if data else (None, None)
        return cls(data=data, has_more=has_more, first_id=first, last_id=last)


class RecordColumns(Strict):
    """The columns that make a document of a row."""

    text: str = Field(description="Column of the documents' text.")
    id: str = Field(description="Column of their ids.")
    metadata: list[str] | None = Field(
        default=None, description="Columns of their metadata; null: all others."
    )

    @property
    def columns(self) -> Columns:
        """The columns in the form that readers expect."""
        return Columns(self.text, self.id, None if self.metadata is None else (*self.metadata,))


class SubmitRequest(InsertOptions):
    """Documents to ingest; a document replaces the one with the same document_id."""

    documents: list[RAGDocument] = Field(
        default_factory=list, description="At most `server.limits.max_documents_per_insert`."
    )
    file_ids: list[str] = Field(
        default_factory=list,
        max_length=2000,
        description="Uploaded files with the purpose assistants or user_data; each becomes a "
        "document.",
    )
    rows: Listed[dict[str, Any]] = Field(
        default_factory=list,
        description="Rows to ingest, each a document; with `records`. Count as `documents`.",
    )
    records: RecordColumns | None = Field(
        default=None,
        description="Makes a document of each row: of `rows`, and of CSV, TSV, JSON, JSON Lines, "
        "XLSX and Parquet files in `file_ids`, at most `rag.document_limits.max_rows` of each "
        "file. Dates are ISO text, and `COLUMN_timestamp` has their Unix seconds. null: a file is "
        "one document.",
    )
    batch_id: str | None = Field(
        default=None, description="Id of a batch to add to; null: a new batch."
    )


class SubmitReply(BaseModel):
    """The queued jobs, which survive a restart of the server."""

    batch_id: str | None = Field(description="null: nothing was queued.")
    jobs: list[JobInfo]
    unchanged: list[str] = Field(
        description="Ids of documents that were skipped because they are unchanged."
    )


class SelectRequest(Strict):
    """Selects the jobs that match all of these fields."""

    vector_db_id: Identifier | None = None
    batch_id: str | None = None


class CountReply(BaseModel):
    """Number of jobs that were changed."""

    count: int


@router.post("", summary="Submit documents")
async def submit(request: SubmitRequest, stack: StackOf, limits: LimitsOf) -> SubmitReply:
    """Queue documents to be split, embedded and stored, and return their jobs at once."""
    most = limits.max_documents_per_insert
    check_count(request.documents, most, field="documents", setting="max_documents_per_insert")
    check_count(request.rows, most, field="rows", setting="max_documents_per_insert")
    if not request.documents and not request.file_ids and not request.rows:
        raise InvalidRequest(
            "The request has no documents, no files and no rows.", field="documents"
        )
    await check_files(stack, request.file_ids)
    ingestion = stack.ingestion
    prepared = await ingestion.prepare(
        request.vector_db_id,
        [*request.documents, *await _rows(request, stack)],
        request.chunk_size_in_tokens,
        request.overlap_in_tokens,
        request.split_on,
        skip_unchanged=request.skip_unchanged,
        same_origin_only=request.same_origin_only,
    )
    db, chunking = request.vector_db_id, prepared.chunking
    asked = [JobRequest(db, document=each, chunking=chunking) for each in prepared.changed]
    if request.records is None:
        asked += [JobRequest(db, file_id=each, chunking=chunking) for each in request.file_ids]
    jobs = await ingestion.submit(
        asked, batch=request.batch_id or True, same_origin_only=request.same_origin_only
    )
    return SubmitReply(
        batch_id=jobs[0].batch_id if jobs else request.batch_id,
        jobs=[JobInfo.of(job) for job in jobs],
        unchanged=prepared.unchanged,
    )


async def _rows(request: SubmitRequest, stack: Stack) -> list[RAGDocument]:
    """Return the documents of the request's rows, and of its files if these are tables."""
    if request.records is None:
        if request.rows:
            raise InvalidRequest("rows need records, with their columns.", field="records")
        return []
    await stack.vector_db(request.vector_db_id)
    columns = request.records.columns
    made = await stack.ingestion.rows(request.rows, columns) if request.rows else []
    for number, file_id in enumerate(request.file_ids):
        file = await own_file(stack, file_id, field=f"file_ids[{number}]")
        made += await stack.ingestion.rows(file, columns)
    return made


@router.get("", summary="List jobs")
async def list_all(
    stack: StackOf,
    vector_db_id: VectorDBId = None,
    batch_id: BatchId = None,
    status: Annotated[
        list[JobStatus] | None, Query(description="Only jobs with this status.")
    ] = None,
    after: Annotated[str | None, Query(description="`last_id` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="desc: newest first.")] = "desc",
    changed_after: Annotated[
        int | None,
        Query(
            ge=-1,
            le=LARGEST_INTEGER,
            description="Only jobs that changed after this version, in order of change.",
        ),
    ] = None,
) -> JobList:
    """Return jobs in order of submission, or of their last change."""
    page = await stack.ingestion.page(
        vector_db_id=vector_db_id,
        batch_id=batch_id,
        status=status,
        after=after,
        limit=limit,
        order=order,
        changed_after=changed_after,
    )
    return JobList.of(*page)


@router.get(
    "/events",
    summary="Watch jobs",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    stack: StackOf,
    batch_id: BatchId = None,
    job_id: Annotated[str | None, Query(description="Only this job.")] = None,
) -> StreamingResponse:
    """Return server-sent events: `job` when a job changes, `done` when all jobs are final."""
    if (batch_id is None) == (job_id is None):
        raise InvalidRequest("Pass a batch_id or a job_id.", field="batch_id")
    if job_id is not None:
        await stack.ingestion.job(job_id)
    elif not (await stack.ingestion.counts(batch_id=batch_id)).total():
        raise NotFound(f"There is no batch {batch_id!r}.", field="batch_id")
    stream = _events(stack.ingestion, job_id, batch_id)
    return StreamingResponse(stream, media_type="text/event-stream")


async def _events(
    ingestion: Ingestion, job_id: str | None, batch_id: str | None
) -> AsyncIterator[str]:
    quiet = 0
    async for changed in ingestion.changes(job_id=job_id, batch_id=batch_id):
        quiet = 0 if changed else quiet + 1
        for job in changed:
            yield f"event: job\ndata: {JobInfo.of(job).model_dump_json()}\n\n"
        if quiet % LOOKS_BETWEEN_PINGS == LOOKS_BETWEEN_PINGS - 1:
            yield ": nothing new\n\n"
    yield "event: done\ndata: {}\n\n"


@router.post("/cancel", summary="Cancel jobs", dependencies=[WRITER])
async def cancel_some(request: SelectRequest, stack: StackOf) -> CountReply:
    """Cancel unfinished jobs, except those whose documents are being stored at this moment."""
    _check_selection(request)
    chosen = request.model_dump()
    return CountReply(count=await stack.ingestion.cancel(**chosen))


@router.post("/retry", summary="Retry jobs", dependencies=[WRITER])
async def retry_some(request: SelectRequest, stack: StackOf) -> CountReply:
    """Queue failed and cancelled jobs again, unless a newer one has replaced them."""
    _check_selection(request)
    return CountReply(count=await stack.ingestion.retry(**request.model_dump()))


@router.get("/{job_id}", summary="Show a job")
async def retrieve(job_id: JobId, stack: StackOf) -> JobInfo:
    """Return a job with its progress."""
    return JobInfo.of(await stack.ingestion.job(job_id))


@router.post("/{job_id}/cancel", summary="Cancel a job", dependencies=[WRITER])
async def cancel(job_id: JobId, stack: StackOf) -> JobInfo:
    """Cancel a job unless it is final or its document is being stored, and return it."""
    await stack.ingestion.job(job_id)
    await stack.ingestion.cancel(job_id=job_id)
    return JobInfo.of(await stack.ingestion.job(job_id))


@router.post("/{job_id}/retry", summary="Retry a job", dependencies=[WRITER])
async def retry(job_id: JobId, stack: StackOf) -> JobInfo:
    """Queue a failed or cancelled job again and return it."""
    await stack.ingestion.job(job_id)
    await stack.ingestion.retry(job_id=job_id)
    return JobInfo.of(await stack.ingestion.job(job_id))


def _check_selection(request: SelectRequest) -> None:
    if request.vector_db_id is None and request.batch_id is None:
        raise InvalidRequest("Pass a vector_db_id or a batch_id.", field="batch_id")
