"""File batches: files that are attached together, and watched and cancelled as one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from corral.api.errors import NotFound
from corral.providers.ingestion.jobs import Job
from corral.providers.stack import Stack
from corral.server.errors import ERRORS
from corral.server.openai.attaching import attach, check_files, file_counts, shown, statuses_of
from corral.server.openai.objects import (
    FileBatchObject,
    FileCounts,
    FileStatus,
    VectorStoreFileObject,
)
from corral.server.openai.paging import CursorOf, Page, continued, ends
from corral.server.openai.requests import CreateFileBatch
from corral.server.openai.routes import POLL_HEADER, POLL_MILLISECONDS, OpenAIRoute, StoresOf
from corral.server.openai.store_files import StatusFilter
from corral.server.routing import PathId, StackOf

router = APIRouter(
    prefix="/v1/vector_stores/{vector_store_id:id}/file_batches",
    tags=["Vector stores"],
    route_class=OpenAIRoute,
    responses=ERRORS,
)

BatchIdInPath = Annotated[str, Path(description="`vsfb_` and 24 hex digits.")]


@router.post("", summary="Attach files together")
async def create(
    vector_store_id: PathId, request: CreateFileBatch, stack: StackOf, stores: StoresOf
) -> FileBatchObject:
    """Add up to 2000 files to the store, in the background; all are accepted, or none."""
    await stores.usable(vector_store_id)
    places = "file_ids[{}]" if request.files is None else "files[{}].file_id"
    await check_files(stack, [file.file_id for file in request.each], places)
    jobs = await attach(stack, vector_store_id, request.each, batch=True)
    return await batch_of(stack, vector_store_id, jobs[0].batch_id or "")


@router.get("/{batch_id}", summary="Show a file batch")
async def retrieve(
    vector_store_id: PathId,
    batch_id: BatchIdInPath,
    stack: StackOf,
    stores: StoresOf,
    response: Response,
) -> FileBatchObject:
    """Return a batch and the number of its files in each status."""
    await stores.usable(vector_store_id)
    batch = await batch_of(stack, vector_store_id, batch_id)
    if batch.status == "in_progress":
        response.headers[POLL_HEADER] = POLL_MILLISECONDS
    return batch


@router.post("/{batch_id}/cancel", summary="Cancel a file batch")
async def cancel(
    vector_store_id: PathId, batch_id: BatchIdInPath, stack: StackOf, stores: StoresOf
) -> FileBatchObject:
    """Cancel unfinished files, except those that are being stored at this moment."""
    await stores.usable(vector_store_id)
    await _first(stack, vector_store_id, batch_id)
    await stack.ingestion.cancel(batch_id=batch_id)
    return await batch_of(stack, vector_store_id, batch_id)


@router.get("/{batch_id}/files", summary="List the files of a batch")
async def list_files(
    vector_store_id: PathId,
    batch_id: BatchIdInPath,
    cursor: CursorOf,
    stack: StackOf,
    stores: StoresOf,
    status: StatusFilter = None,
) -> Page[VectorStoreFileObject]:
    """Return the files of a batch, page by page."""
    store = await stores.usable(vector_store_id)
    await _first(stack, vector_store_id, batch_id)
    with continued():
        jobs, has_more = await stack.ingestion.page(
            batch_id=batch_id, status=statuses_of(status), **cursor.model_dump()
        )
    data = [shown(job, store.registered) for job in jobs]
    return Page[VectorStoreFileObject](data=data, has_more=has_more, **ends(data))


async def batch_of(stack: Stack, vector_store_id: str, batch_id: str) -> FileBatchObject:
    """Return the wire's form of a batch.

    Raises:
        NotFound: The store has no such batch.
    """
    first = await _first(stack, vector_store_id, batch_id)
    counts = file_counts(await stack.ingestion.counts(batch_id=batch_id))
    return FileBatchObject(
        id=batch_id,
        created_at=first.created_at,
        vector_store_id=vector_store_id,
        status=_status(counts),
        file_counts=counts,
    )


async def _first(stack: Stack, vector_store_id: str, batch_id: str) -> Job:
    jobs, _ = await stack.ingestion.page(
        vector_db_id=vector_store_id, batch_id=batch_id, order="asc", limit=1
    )
    if not jobs:
        raise NotFound(
            f"Vector store {vector_store_id!r} has no file batch {batch_id!r}.", field="batch_id"
        )
    return jobs[0]


def _status(counts: FileCounts) -> FileStatus:
    if counts.in_progress:
        return "in_progress"
    if counts.cancelled:
        return "cancelled"
    return "failed" if counts.failed == counts.total else "completed"
