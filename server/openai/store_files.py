"""The files of a vector store: attach, list, show, change, detach, read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB
from corral.providers.documents import WHOLE, read_document
from corral.providers.ingestion.jobs import Job
from corral.providers.stack import Stack
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.openai.attaching import (
    attach,
    check_files,
    newest,
    shown,
    statuses_of,
)
from corral.server.openai.objects import (
    DeletedStoreFile,
    FileContentPage,
    FileStatus,
    TextContent,
    VectorStoreFileObject,
)
from corral.server.openai.paging import Cursor, CursorOf, Page, continued, ends
from corral.server.openai.requests import AttachFile, UpdateAttributes
from corral.server.openai.routes import POLL_HEADER, POLL_MILLISECONDS, OpenAIRoute, StoresOf
from corral.server.routing import PathId, StackOf

router = APIRouter(
    prefix="/v1/vector_stores/{vector_store_id:id}/files",
    tags=["Vector stores"],
    route_class=OpenAIRoute,
    responses=ERRORS,
)

FileIdInPath = Annotated[str, Path(description="Id of an attached file.")]
StatusFilter = Annotated[
    FileStatus | None, Query(alias="filter", description="Only files with this status.")
]


@router.post("", summary="Attach a file")
async def create(
    vector_store_id: PathId, request: AttachFile, stack: StackOf, stores: StoresOf
) -> VectorStoreFileObject:
    """Add a file to the store, in the background; its earlier chunks are replaced."""
    store = await stores.usable(vector_store_id)
    await check_files(stack, [request.file_id], "file_id")
    [job] = await attach(stack, vector_store_id, [request])
    return shown(job, store.registered)


@router.get("", summary="List the files of a vector store")
async def list_all(
    vector_store_id: PathId,
    cursor: CursorOf,
    stack: StackOf,
    stores: StoresOf,
    status: StatusFilter = None,
) -> Page[VectorStoreFileObject]:
    """Return the files of a store in the order in which they were attached, page by page."""
    return await listed(stack, stores, vector_store_id, cursor, status)


@router.get("/{file_id}", summary="Show a file of a vector store")
async def retrieve(
    vector_store_id: PathId,
    file_id: FileIdInPath,
    stack: StackOf,
    stores: StoresOf,
    response: Response,
) -> VectorStoreFileObject:
    """Return a file's status and progress."""
    store = await stores.usable(vector_store_id)
    file = shown(await newest(stack, vector_store_id, file_id), store.registered)
    if file.status == "in_progress":
        response.headers[POLL_HEADER] = POLL_MILLISECONDS
    return file


@router.post("/{file_id}", summary="Change a file's attributes")
async def update(
    vector_store_id: PathId,
    file_id: FileIdInPath,
    request: UpdateAttributes,
    stack: StackOf,
    stores: StoresOf,
) -> VectorStoreFileObject:
    """Replace a file's attributes without reading or embedding it again."""
    store = await stores.usable(vector_store_id)
    await newest(stack, vector_store_id, file_id)
    job = await stack.ingestion.set_attributes(vector_store_id, file_id, request.attributes or {})
    return shown(job, store.registered)


@router.delete("/{file_id}", summary="Detach a file")
async def delete(
    vector_store_id: PathId, file_id: FileIdInPath, stack: StackOf, stores: StoresOf
) -> DeletedStoreFile:
    """Delete a file's chunks from the store; the file itself stays under /v1/files."""
    await stores.usable(vector_store_id)
    await newest(stack, vector_store_id, file_id)
    await stack.ingestion.remove(vector_store_id, file_id)
    return DeletedStoreFile(id=file_id)


@router.get("/{file_id}/content", summary="Read a file of a vector store")
async def content(
    vector_store_id: PathId, file_id: FileIdInPath, stack: StackOf, stores: StoresOf
) -> FileContentPage:
    """Return a file's parsed text, in parts to join."""
    await stores.usable(vector_store_id)
    job = await newest(stack, vector_store_id, file_id)
    return FileContentPage(data=[TextContent(text=text) for text in await texts(stack, job)])


async def listed(
    stack: Stack,
    stores: StoresOf,
    vector_store_id: str,
    cursor: Cursor,
    status: FileStatus | None,
    form: Callable[[Job, VectorDB], VectorStoreFileObject] = shown,
) -> Page[VectorStoreFileObject]:
    """Return a page of the files of a store, each in a form of the wire."""
    store = await stores.usable(vector_store_id)
    with continued():
        jobs, has_more = await stack.ingestion.page(
            vector_db_id=vector_store_id,
            status=statuses_of(status),
            newest_only=True,
            files_only=True,
            **cursor.model_dump(),
        )
    data = [form(job, store.registered) for job in jobs]
    return Page[VectorStoreFileObject](data=data, has_more=has_more, **ends(data))


async def texts(stack: Stack, job: Job) -> list[str]:
    """Return the text of a job's document, in pieces that join to all of it."""
    found = await read_document(await stack.index(job.vector_db_id), job.document_id, WHOLE)
    chunks = found.chunks if found else ()
    audit.current().returns(job.vector_db_id, [chunk.chunk_id for chunk in chunks])
    return joining(chunks)


def joining(chunks: Sequence[Chunk]) -> list[str]:
    """Return the texts of a document's chunks without what one repeats of the one before."""
    found, reached = [], 0
    for chunk in chunks:
        record = chunk.chunk_metadata
        if record is None or record.char_start is None:
            found.append(chunk.content)
            continue
        text = chunk.content[record.repeated_characters or 0 :]
        gap = record.gap_before or "" if record.char_start >= reached else ""
        found.append(gap + text[max(0, reached - record.char_start) :])
        reached = max(reached, record.char_start + len(text))
    return found
