"""The files of a vector store: attach, list, show, change, detach, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response

from corral.api.chunks import Chunk
from corral.api.errors import NotFound
from corral.providers.base.documents import WHOLE, parts_of, read_document
from corral.providers.ingestion.jobs.jobs import Job
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.openai.attaching import attach_one, check_files, page_of, shown
from corral.server.openai.objects import (
    DeletedStoreFile,
    FileContentPage,
    FileStatus,
    StoredContent,
    VectorStoreFileObject,
)
from corral.server.openai.paging import CursorOf, Page
from corral.server.openai.requests import AttachFile, UpdateAttributes
from corral.server.openai.routes import POLL_HEADER, POLL_MILLISECONDS, OpenAIRoute, StoreOf
from corral.server.routing import StackOf

router = APIRouter(
    prefix="/v1/vector_stores/{vector_store_id:id}/files",
    tags=["Vector stores"],
    route_class=OpenAIRoute,
    responses=ERRORS,
)

FileIdInPath = Annotated[str, Path(description="Id of an attached file.")]
FILES: dict[str, Any] = {"newest_only": True, "files_only": True}
"""The jobs that represent a store's files."""
StatusFilter = Annotated[
    FileStatus | None, Query(alias="filter", description="Only files with this status.")
]


async def _attached(file_id: FileIdInPath, store: StoreOf, stack: StackOf) -> Job:
    try:
        return await stack.ingestion.newest(store.identifier, file_id)
    except NotFound:
        raise NotFound(
            f"Vector store {store.identifier!r} has no file {file_id!r}.", field="file_id"
        ) from None


AttachedOf = Annotated[Job, Depends(_attached)]
"""The newest job of the file that a path names."""


@router.post("", summary="Attach a file")
async def create(request: AttachFile, store: StoreOf, stack: StackOf) -> VectorStoreFileObject:
    """Add a file to the store; its earlier chunks are replaced.

    Answers as soon as that is done, or after `ingestion.wait_seconds` with `in_progress`: the file
    is then read in the background.
    """
    await check_files(stack, [request.file_id], "file_id")
    return shown(await attach_one(stack, store, request), store.registered)


@router.get("", summary="List the files of a vector store")
async def list_all(
    store: StoreOf, cursor: CursorOf, stack: StackOf, status: StatusFilter = None
) -> Page[VectorStoreFileObject]:
    """Return the files of a store in the order in which they were attached, page by page."""
    return await page_of(stack, store, cursor, status, **FILES)


@router.get("/{file_id}", summary="Show a file of a vector store")
async def retrieve(job: AttachedOf, store: StoreOf, response: Response) -> VectorStoreFileObject:
    """Return a file's status and progress."""
    file = shown(job, store.registered)
    if file.status == "in_progress":
        response.headers[POLL_HEADER] = POLL_MILLISECONDS
    return file


@router.post("/{file_id}", summary="Change a file's attributes")
async def update(
    _: AttachedOf, request: UpdateAttributes, store: StoreOf, stack: StackOf, file_id: FileIdInPath
) -> VectorStoreFileObject:
    """Replace a file's attributes without reading or embedding it again."""
    attributes = request.attributes or {}
    changed = await stack.ingestion.set_attributes(store.identifier, file_id, attributes)
    return shown(changed, store.registered)


@router.delete("/{file_id}", summary="Detach a file")
async def delete(
    _: AttachedOf, store: StoreOf, stack: StackOf, file_id: FileIdInPath
) -> DeletedStoreFile:
    """Delete a file's chunks from the store; the file itself stays under /v1/files."""
    await stack.ingestion.remove(store.identifier, file_id)
    return DeletedStoreFile(id=file_id)


IncludeEmbeddings = Annotated[bool, Query(description="Add the embedding of each chunk.")]
IncludeMetadata = Annotated[
    bool, Query(description="Add `metadata` and `chunk_metadata` of each chunk.")
]


async def _contents(
    job: AttachedOf,
    stack: StackOf,
    include_embeddings: IncludeEmbeddings = False,
    include_metadata: IncludeMetadata = False,
) -> list[StoredContent]:
    """Return the text of a job's document, in pieces that join to the whole."""
    index = await stack.index(job.vector_db_id)
    chunks: list[Chunk] = []
    for name in (job.document_id, *await parts_of(index, job.document_id)):
        document = await read_document(index, name, WHOLE, include_embeddings=include_embeddings)
        chunks += document.chunks if document else ()
    audit.current().returns(job.vector_db_id, [chunk.chunk_id for chunk in chunks])
    return [
        StoredContent(
            text=text,
            embedding=chunk.embedding,
            chunk_metadata=chunk.chunk_metadata if include_metadata else None,
            metadata=chunk.metadata if include_metadata else None,
        )
        for text, chunk in zip(joining(chunks), chunks, strict=True)
    ]


ContentsOf = Annotated[list[StoredContent], Depends(_contents)]
"""The text of the file in the path, in pieces."""


@router.get("/{file_id}/content", summary="Read a file of a vector store")
async def content(contents: ContentsOf) -> FileContentPage:
    """Return a file's parsed text, in parts to join."""
    return FileContentPage(data=contents)


def joining(chunks: Sequence[Chunk]) -> list[str]:
    """Return the texts of the chunks of documents, without overlaps between chunks."""
    texts, reached = [], 0
    for chunk in chunks:
        record = chunk.chunk_metadata
        reached = reached if record and record.position else 0  # a new document starts
        if record is None or record.char_start is None:
            texts.append(chunk.content)
            continue
        text = chunk.content[record.repeated_characters or 0 :]
        gap = record.gap_before or "" if record.char_start >= reached else ""
        texts.append(gap + text[max(0, reached - record.char_start) :])
        reached = max(reached, record.char_start + len(text))
    return texts
