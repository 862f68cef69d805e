"""File batches: files that are attached, watched and canceled together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from corral.api.errors import NotFound
from corral.providers.ingestion.jobs.jobs import Job
from corral.providers.stack.stack import Stack
from corral.server.errors import ERRORS
from corral.server.llama_stack.wire import check_registered
from corral.server.openai.attaching import (
    attach,
    check_files,
    file_counts,
    page_of,
    settled,
)
from corral.server.openai.objects import (
    FileBatchObject,
    FileCounts,
    FileStatus,
    VectorStoreFileObject,
)
from corral.server.openai.paging import CursorOf, Page
from corral.server.openai.requests import CreateFileBatch
from corral.server.openai.routes import POLL_HEADER, POLL_MILLISECONDS, OpenAIRoute, StoreOf
from corral.server.openai.store_files import StatusFilter
from corral.server.routing import StackOf

router = APIRouter(
    prefix="/v1/vector_stores/{vector_store_id:id}/file_batches",
    tags=["Vector stores"],
    route_class=OpenAIRoute,
    responses=ERRORS,
)

BatchIdInPath = Annotated[str, Path(description="`vsfb_` and 24 hex digits.")]


async def _batch(batch_id: BatchIdInPath, store: StoreOf, stack: StackOf) -> Job:
    jobs, _ = await stack.ingestion.page(
        vector_db_id=store.identifier, batch_id=batch_id, order="asc", limit=1
    )
    if not jobs:
        raise NotFound(
            f"Vector store {store.identifier!r} has no file batch {batch_id!r}.", field="batch_id"
        )
    return jobs[0]


BatchOf = Annotated[Job, Depends(_batch)]
"""The first job of the batch that a path names."""


@router.post("", summary="Attach files together")
async def create(request: CreateFileBatch, store: StoreOf, stack: StackOf) -> FileBatchObject:
    """Add up to 2000 files to the store; all are accepted, or none.

    Answers as soon as all are done, or after `ingestion.wait_seconds` with `in_progress`.
    """
    check_registered(request, store.registered)
    for number, file in enumerate(request.files or ()):
        check_registered(file, store.registered, f"files[{number}].")
    places = "file_ids[{}]" if request.files is None else "files[{}].file_id"
    await check_files(stack, [file.file_id for file in request.each], places)
    jobs = await attach(stack, store.identifier, request.each, batch=True)
    await settled(stack, jobs)
    return await _shown(stack, jobs[0])


@router.get("/{batch_id}", summary="Show a file batch")
async def retrieve(first: BatchOf, stack: StackOf, response: Response) -> FileBatchObject:
    """Return a batch and the number of its files in each status."""
    batch = await _shown(stack, first)
    if batch.status == "in_progress":
        response.headers[POLL_HEADER] = POLL_MILLISECONDS
    return batch


@router.post("/{batch_id}/cancel", summary="Cancel a file batch")
async def cancel(first: BatchOf, stack: StackOf) -> FileBatchObject:
    """Cancel unfinished files, except those that are being stored at this moment."""
    await stack.ingestion.cancel(batch_id=first.batch_id)
    return await _shown(stack, first)


@router.get("/{batch_id}/files", summary="List the files of a batch")
async def list_files(
    first: BatchOf, store: StoreOf, cursor: CursorOf, stack: StackOf, status: StatusFilter = None
) -> Page[VectorStoreFileObject]:
    """Return the files of a batch, page by page."""
    return await page_of(stack, store, cursor, status, batch_id=first.batch_id)


async def _shown(stack: Stack, first: Job) -> FileBatchObject:
    """Return the wire's form of the batch of a job."""
    counts = file_counts(await stack.ingestion.counts(batch_id=first.batch_id))
    return FileBatchObject(
        id=first.batch_id or "",
        created_at=first.created_at,
        vector_store_id=first.vector_db_id,
        status=_status(counts),
        file_counts=counts,
    )


def _status(counts: FileCounts) -> FileStatus:
    if counts.in_progress:
        return "in_progress"
    if counts.cancelled:
        return "cancelled"
    return "failed" if counts.failed == counts.total else "completed"
