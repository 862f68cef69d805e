"""Files: upload, list, show, read, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, File, Form, Path, Query, UploadFile
from fastapi.responses import StreamingResponse
from pydantic import Field, Json

from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import Strict
from corral.providers.files.store import StoredFile
from corral.providers.ingestion.read.mime_types import split_mime_type
from corral.providers.stack.stack import Stack
from corral.server.errors import ERRORS
from corral.server.openai.objects import DeletedFile, FileObject
from corral.server.openai.paging import MAX_FILES, After, FileLimit, Ordered, Page, ends
from corral.server.openai.routes import OpenAIRoute
from corral.server.routing import StackOf

READ_BYTES = 1 << 20

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


Seconds = Annotated[int, Field(ge=3600, le=2_592_000)]


class FileExpiry(Strict):
    """Expiry of a file, in seconds after its upload."""

    anchor: Literal["created_at"]
    seconds: Seconds


router = APIRouter(prefix="/v1/files", tags=["Files"], route_class=OpenAIRoute, responses=ERRORS)

FileIdInPath = Annotated[str, Path(description="`file-` and 24 hex digits.")]


@router.post("", summary="Upload a file")
async def create(
    stack: StackOf,
    file: Annotated[UploadFile, File(description="At most `files.max_mib`.")],
    purpose: Annotated[Purpose, Form(description="assistants or user_data for vector stores.")],
    anchor: Annotated[Literal["created_at"] | None, Form(alias="expires_after[anchor]")] = None,
    seconds: Annotated[Seconds | None, Form(alias="expires_after[seconds]")] = None,
    expires_after: Annotated[
        Json[FileExpiry] | None, Form(description="Both as one JSON object, as OGX's client sends.")
    ] = None,
) -> FileObject:
    """Store a file and return it; identical contents are stored once."""
    if expires_after is not None:
        if anchor is not None or seconds is not None:
            raise InvalidRequest(
                "expires_after and its fields are both there.",
                hint="Send one of them.",
                field="expires_after",
            )
        anchor, seconds = expires_after.anchor, expires_after.seconds
    if (anchor is None) != (seconds is None):
        raise InvalidRequest(
            "expires_after needs both anchor and seconds.",
            hint="Send anchor created_at and 3600 to 2592000 seconds.",
            field="expires_after",
        )
    stored = await stack.files.add(
        _pieces(file),
        filename=file.filename or "",
        purpose=purpose,
        expires_after_seconds=seconds,
        tenant=stack.principal.tenant,
        charset=split_mime_type(file.content_type)[1] or "",
    )
    return _shown(stored)


@router.get("", summary="List the files")
async def list_all(
    stack: StackOf,
    after: After = None,
    limit: FileLimit = MAX_FILES,
    order: Ordered = "desc",
    purpose: Annotated[str | None, Query(description="Only files with this purpose.")] = None,
) -> Page[FileObject]:
    """Return files in order of upload, page by page."""
    files, has_more = await stack.files.page(
        purpose=purpose, after=after, limit=limit, order=order, tenant=stack.principal.tenant
    )
    data = [_shown(file) for file in files]
    return Page[FileObject](data=data, has_more=has_more, **ends(data))


@router.get("/{file_id}", summary="Show a file")
async def retrieve(file_id: FileIdInPath, stack: StackOf) -> FileObject:
    """Return a file's name, size, purpose and times."""
    return _shown(await own_file(stack, file_id))


@router.delete("/{file_id}", summary="Delete a file")
async def delete(file_id: FileIdInPath, stack: StackOf) -> DeletedFile:
    """Delete a file. Vector stores keep the chunks made from it."""
    file = await own_file(stack, file_id)
    await stack.files.delete(file.file_id)
    return DeletedFile(id=file_id)


@router.get(
    "/{file_id}/content",
    summary="Read a file",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "Its bytes."}},
)
async def content(file_id: FileIdInPath, stack: StackOf) -> StreamingResponse:
    """Return the contents of a file as uploaded; if it is damaged, the response is cut short."""
    file = await own_file(stack, file_id)
    named = f"attachment; filename*=utf-8''{quote(file.filename, safe='')}"
    return StreamingResponse(
        await stack.files.read(file),
        media_type="application/octet-stream",
        headers={"content-disposition": named, "content-length": str(file.bytes)},
    )


async def own_file(stack: Stack, file_id: str, field: str = "file_id") -> StoredFile:
    """Return a file of the principal's tenant.

    Raises:
        NotFound: The file in the request's `field` does not exist, or belongs to another tenant.
    """
    try:
        file = await stack.files.get(file_id)
    except NotFound:
        file = None
    if file is None or file.tenant != stack.principal.tenant:
        raise NotFound(
            f"There is no file {file_id!r}.", hint="GET /v1/files lists them.", field=field
        )
    return file


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(READ_BYTES):
        yield piece


def _shown(file: StoredFile) -> FileObject:
    return FileObject(
        id=file.file_id,
        bytes=file.bytes,
        created_at=file.created_at,
        filename=file.filename,
        purpose=file.purpose,
        status="processed",
        expires_at=file.expires_at,
    )
