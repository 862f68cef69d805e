"""Snapshots of vector DBs: one file out, one file in."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from corral.api.vector_dbs import VectorDB
from corral.api.wire import Identifier
from corral.providers.copying.snapshots import export, restore
from corral.server.access.roles import ADMIN
from corral.server.errors import ERRORS
from corral.server.limits import SNAPSHOTS
from corral.server.routing import ContractRoute, PathId, StackOf

MEDIA_TYPE = "application/zip"

WRITE_BYTES = 1 << 20
"""Bytes of a body per write."""

router = APIRouter(
    prefix=SNAPSHOTS,
    tags=["Vector DBs"],
    route_class=ContractRoute,
    responses=ERRORS,
    dependencies=[ADMIN],
)


class ImportReply(BaseModel):
    """A vector DB created from a snapshot."""

    vector_db: VectorDB
    chunks: int
    notes: list[str] = Field(description="Warnings.")


@router.get(
    "/{vector_db_id:id}",
    summary="Export a vector DB",
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {}}, "description": "The snapshot."}},
)
async def export_snapshot(vector_db_id: PathId, stack: StackOf) -> StreamingResponse:
    """Stream a snapshot: registration, chunks, metadata, embeddings and checksums in one zip file.

    If the backend fails during the export, the connection breaks; an import detects the truncated
    file.
    """
    pieces = export(stack, vector_db_id)
    first = await anext(pieces)  # an error at the start becomes an error response

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(content(), media_type=MEDIA_TYPE)


@router.post(
    "",
    summary="Import a snapshot",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def import_snapshot(
    request: Request,
    stack: StackOf,
    vector_db_id: Annotated[
        Identifier | None, Query(description="Id of the new vector DB; absent: the snapshot's.")
    ] = None,
    provider_id: Annotated[
        str | None,
        Query(
            description="Provider of the new vector DB; absent: the snapshot's if configured, "
            "else the first one."
        ),
    ] = None,
) -> ImportReply:
    """Register a vector DB and fill it from a snapshot, all or nothing.

    The body is the file, up to `server.limits.max_snapshot_mib`. The whole file is checked first,
    and the vector DB appears when it has every chunk.
    """
    file = tempfile.TemporaryFile(dir=stack.home)  # noqa: SIM115 - closed in a thread below
    try:
        await _receive(request.stream(), file)
        done = await restore(stack, file, vector_db_id=vector_db_id, provider_id=provider_id)
    finally:
        await asyncio.shield(asyncio.to_thread(file.close))  # deleting large files takes a while
    return ImportReply(vector_db=done.vector_db, chunks=done.chunks, notes=list(done.notes))


async def _receive(pieces: AsyncIterator[bytes], file: IO[bytes]) -> None:
    """Write a body to a file, off the event loop."""
    held = bytearray()
    async for piece in pieces:
        held += piece
        if len(held) >= WRITE_BYTES:
            await asyncio.to_thread(file.write, bytes(held))
            held.clear()
    await asyncio.to_thread(file.write, bytes(held))
