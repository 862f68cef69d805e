"""Documents of a vector DB: list, show, delete, change. (The RAG tool inserts them.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from corral.api.checks import MAX_OFFSET
from corral.api.chunks import Acl, Chunk
from corral.api.document_names import file_of, title_of
from corral.api.documents import DocumentOrder, DocumentQuery
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import Metadata, Strict
from corral.providers.base.documents import (
    RESERVED,
    Page,
    attributes_of,
    change_acl,
    change_attributes,
    delete_document,
    first_chunks_of,
    list_documents,
    read_document,
    unknown_document,
)
from corral.providers.ingestion.jobs.jobs import ErrorCode, Job, JobStatus
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.native.document_paths import DocumentRoute
from corral.server.routing import PathId, StackOf

MAX_DOCUMENTS = 10_000
MAX_NAMED = 100
MAX_CHUNKS = 1000

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Documents"], route_class=DocumentRoute, responses=ERRORS
)

After = Annotated[
    str, Query(description="`last_id` of the previous page; empty: start at the beginning.")
]
Documents = Annotated[
    int, Query(ge=1, le=MAX_DOCUMENTS, description="Maximum number of documents per page.")
]
Names = Annotated[
    bool,
    Query(description=f"Also return each document's name; then `limit` is at most {MAX_NAMED}."),
]
Details = Annotated[
    bool,
    Query(
        description="Also return name, attributes, acl and newest job of each document; then "
        f"`limit` is at most {MAX_NAMED}."
    ),
]
Part = Annotated[
    str | None,
    Query(max_length=255, description="Only documents with this in their name, in any case."),
]
Sort = Annotated[DocumentOrder | None, Query(description="null: by id with `after`, else by name.")]
Order = Annotated[Literal["asc", "desc"] | None, Query(description="null: asc.")]
Skipped = Annotated[
    int | None, Query(ge=0, le=MAX_OFFSET, description="Number of documents to skip.")
]
Chunks = Annotated[
    int, Query(ge=0, le=MAX_CHUNKS, description="Maximum number of chunks to return.")
]
Offset = Annotated[int, Query(ge=0, description="Number of chunks to skip.")]


class JobState(BaseModel):
    """The newest ingest of a document."""

    job_id: str
    status: JobStatus
    error_code: ErrorCode | None
    error_message: str | None


class ListedDocument(BaseModel):
    """A document in a list."""

    document_id: str
    chunk_count: int
    size_bytes: int | None = Field(
        default=None, description="Size of its chunks' texts; with `q`, `sort`, `order`, `offset`."
    )
    updated_at: int | None = Field(
        default=None, description="Unix seconds of its newest chunk; with the same parameters."
    )
    name: str | None = Field(
        default=None, description="Its title and file, else another name; with `names`, `details`."
    )
    attributes: dict[str, Any] | None = Field(default=None, description="With `details`.")
    acl: list[str] | None = Field(
        default=None, description="With `details`, for writers; absent: the `default_acl`."
    )
    file_id: str | None = Field(default=None, description="Its uploaded file, with `details`.")
    job: JobState | None = Field(default=None, description="Its newest job, with `details`.")


class DocumentList(BaseModel):
    """A page of documents."""

    data: list[ListedDocument]
    has_more: bool = Field(description="True if there is another page.")
    last_id: str = Field(description="`after` of the next page in order of id.")
    total: int | None = Field(
        default=None,
        description="Number of documents on all pages; with `q`, `sort`, `order` or `offset`.",
    )


class Document(BaseModel):
    """A stored document."""

    vector_db_id: str
    document_id: str
    chunk_count: int = Field(description="Number of all its chunks.")
    metadata: dict[str, Any] = Field(description="The document's metadata, from its first chunk.")
    chunks: list[Chunk] = Field(description="Chunks in order, from `offset`, at most `limit`.")
    colors: list[list[tuple[str, str]]] | None = Field(
        default=None,
        exclude_if=lambda colors: colors is None,
        description="With `colors`, for code: each chunk's text in pieces of class (comment, "
        'keyword, name, builtin, number, string or "") and text.',
    )
    code_blocks: list[list[list[tuple[str, str]]]] | None = Field(
        default=None,
        exclude_if=lambda blocks: blocks is None,
        description="With `colors`, for other texts: each chunk's fenced code blocks of a known "
        "language, in pieces as in `colors`.",
    )


class DeletedDocument(BaseModel):
    """A deleted document."""

    document_id: str
    chunk_count: int = Field(description="Number of chunks deleted.")
    deleted: bool = True


class DocumentChange(Strict):
    """A change to a document that needs no new embeddings: its acl or its attributes."""

    acl: Acl | None = Field(
        default=None,
        description="Who may read it: a reader needs one of these tokens; null: the vector DB's "
        "`default_acl`.",
    )
    attributes: Metadata | None = Field(
        default=None, description="Replace its attributes; the title stays unless it is here."
    )


class ChangedDocument(BaseModel):
    """A document that was changed."""

    document_id: str
    chunk_count: int = Field(description="Chunks that were changed.")
    acl: list[str] | None = None
    attributes: dict[str, Any] | None = None


@router.get(
    "/{vector_db_id:id}/documents",
    summary="List the documents of a vector DB",
    response_model_exclude_none=True,
)
async def list_all(
    vector_db_id: PathId,
    stack: StackOf,
    after: After = "",
    limit: Documents = 100,
    names: Names = False,
    details: Details = False,
    q: Part = None,
    sort: Sort = None,
    order: Order = None,
    offset: Skipped = None,
) -> DocumentList:
    """Return documents in order of id after `after`, or sorted and found by name, page by page.

    Chunks without `document_id` in their metadata belong to no document. Some backends (Chroma as
    a server, Milvus, OpenSearch, Qdrant as a server, Weaviate) read every chunk for each page, and
    PostgreSQL groups every row, so request large pages from them.
    """
    if (names or details) and limit > MAX_NAMED:
        raise InvalidRequest(
            f"limit must be <= {MAX_NAMED} with names or details (got {limit}).", field="limit"
        )
    index = await stack.index(vector_db_id)
    query = DocumentQuery(q or "", sort or DocumentOrder.NAME, order == "desc", offset or 0, limit)
    if (q, sort, order, offset) == (None,) * 4:
        listed = await _after(index, after, limit)
    elif after:
        raise InvalidRequest(
            "after goes with none of q, sort, order and offset.",
            hint="Send offset for the next page.",
            field="after",
        )
    else:
        listed = await _sorted(index, query)
    if names or details:
        jobs = {}
        if details:
            ids = [each.document_id for each in listed.data]
            jobs = await stack.ingestion.newest_of(vector_db_id, ids)
        await _describe(index, listed.data, jobs, details=details)
    return listed


async def _after(index: EmbeddingIndex, after: str, limit: int) -> DocumentList:
    page = await list_documents(index, after, limit)
    data = [
        ListedDocument(document_id=each.document_id, chunk_count=each.chunks) for each in page.items
    ]
    return DocumentList(data=data, has_more=page.has_more, last_id=page.last_id)


async def _sorted(index: EmbeddingIndex, query: DocumentQuery) -> DocumentList:
    page = await index.document_page(query)
    data = [
        ListedDocument(
            document_id=each.document_id,
            chunk_count=each.chunks,
            size_bytes=each.size,
            updated_at=each.updated_at,
        )
        for each in page.items
    ]
    return DocumentList(
        data=data,
        has_more=query.offset + len(data) < page.total,
        last_id=data[-1].document_id if data else "",
        total=page.total,
    )


async def _describe(
    index: EmbeddingIndex,
    documents: Sequence[ListedDocument],
    jobs: Mapping[str, Job],
    *,
    details: bool,
) -> None:
    """Add to each document what one of its chunks and its newest job say."""
    chunks = await first_chunks_of(index, [each.document_id for each in documents])
    for each in documents:
        if (chunk := chunks.get(each.document_id)) is None:  # deleted since
            continue
        each.name = title_of(chunk)
        if not details:
            continue
        each.attributes, each.acl = attributes_of(chunk), chunk.acl
        file_id = chunk.metadata.get("file_id")
        each.file_id = file_id if isinstance(file_id, str) else None
        if (job := jobs.get(each.document_id)) is not None:
            each.job = JobState(
                job_id=job.job_id,
                status=job.status,
                error_code=job.error_code,
                error_message=job.error_message,
            )


@router.get("/{vector_db_id:id}/documents/{document_id:id}", summary="Show a document")
async def retrieve(
    vector_db_id: PathId,
    document_id: PathId,
    stack: StackOf,
    offset: Offset = 0,
    limit: Chunks = 100,
    colors: Annotated[bool, Query(description="Return `colors` or `code_blocks`.")] = False,
) -> Document:
    """Return a document's metadata and its chunks in order, without embeddings."""
    page = Page(offset, limit)
    document = await read_document(await stack.index(vector_db_id), document_id, page)
    if document is None:
        raise _unknown(vector_db_id, document_id)
    audit.current().returns(vector_db_id, [chunk.chunk_id for chunk in document.chunks])
    pieces, blocks = await _colored(stack, document.chunks) if colors else (None, None)
    return Document(
        vector_db_id=vector_db_id,
        document_id=document_id,
        chunk_count=document.chunk_count,
        metadata=document.metadata,
        chunks=document.chunks,
        colors=pieces,
        code_blocks=blocks,
    )


async def _colored(
    stack: Stack, chunks: Sequence[Chunk]
) -> tuple[list[list[list[str]]] | None, list[list[list[list[str]]]] | None]:
    """Return `colors` and `code_blocks` of chunks; a document with pages has no colors."""
    if not chunks or ((about := chunks[0].chunk_metadata) and about.page is not None):
        return None, None
    reader, texts = stack.ingestion.reader, [chunk.content for chunk in chunks]
    name = file_of(chunks[0])
    pieces = await reader.colored(texts, name) if name else None
    return pieces, None if pieces else await reader.colored_blocks(texts)


@router.delete("/{vector_db_id:id}/documents/{document_id:id}", summary="Delete a document")
async def delete(vector_db_id: PathId, document_id: PathId, stack: StackOf) -> DeletedDocument:
    """Delete a document with all its chunks, in one write; a failed write deletes nothing."""
    deleted = await delete_document(await stack.index(vector_db_id), document_id)
    if not deleted:
        raise _unknown(vector_db_id, document_id)
    return DeletedDocument(document_id=document_id, chunk_count=deleted)


@router.patch(
    "/{vector_db_id:id}/documents/{document_id:id}",
    summary="Change a document's acl or attributes",
    response_model_exclude_unset=True,
)
async def change(
    vector_db_id: PathId, document_id: PathId, request: DocumentChange, stack: StackOf
) -> ChangedDocument:
    """Set who may read a document, or its attributes, in one write without embedding it again.

    Only admins can use tokens that they do not have.
    """
    given = request.model_fields_set
    if len(given) != 1:
        raise InvalidRequest(
            "Send either acl or attributes.",
            hint="Each of them is one write.",
            field="attributes" if given else "acl",
        )
    attributes = request.attributes
    if "attributes" in given:
        _check_attributes(attributes)
    index = await stack.index(vector_db_id)
    if attributes is None:
        changed = await change_acl(index, document_id, request.acl)
    else:
        changed = await _set_attributes(stack, index, document_id, attributes)
    if not changed:
        raise _unknown(vector_db_id, document_id)
    sent = {name: getattr(request, name) for name in given}
    return ChangedDocument(document_id=document_id, chunk_count=changed, **sent)


def _check_attributes(attributes: Mapping[str, Any] | None) -> None:
    if attributes is None:
        raise InvalidRequest("attributes must be an object (got null).", field="attributes")
    if reserved := sorted(RESERVED & attributes.keys()):
        raise InvalidRequest(
            f"attributes: the key {reserved[0]!r} is reserved.",
            hint=f"Corral writes {', '.join(sorted(RESERVED))}.",
            field="attributes",
        )


async def _set_attributes(
    stack: Stack, index: EmbeddingIndex, document_id: str, attributes: Mapping[str, Any]
) -> int:
    """Replace a document's attributes; an uploaded file's job has them too."""
    chunks = await first_chunks_of(index, [document_id])
    if document_id not in chunks:
        return 0
    try:
        job = await stack.ingestion.newest(index.vector_db.identifier, document_id)
    except NotFound:
        old = {k: v for k, v in attributes_of(chunks[document_id]).items() if k != "title"}
        return await change_attributes(index, document_id, old, attributes)
    await stack.ingestion.set_attributes(job.vector_db_id, document_id, attributes)
    return len(await index.document_chunk_ids(document_id))


def _unknown(vector_db_id: str, document_id: str) -> NotFound:
    hint = "GET /v1/vector-dbs/ID/documents lists them."
    return unknown_document(vector_db_id, document_id, hint)
