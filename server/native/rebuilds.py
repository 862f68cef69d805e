"""Rebuilds of vector DBs with another model, language or field weights, while in use."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.vector_dbs import VectorDB
from corral.api.wire import Strict
from corral.providers.stack.copy_steps import WRITTEN_AT_ONCE
from corral.server.access.roles import ADMIN
from corral.server.errors import ERRORS
from corral.server.native.copies import After, CopyReply, StepLimit
from corral.server.routing import InsertRoute, PathId, StackOf

router = APIRouter(
    prefix="/v1/vector-dbs",
    tags=["Vector DBs"],
    route_class=InsertRoute,
    responses=ERRORS,
    dependencies=[ADMIN],
)


class RebuildRequest(Strict):
    """Settings to change. Absent fields stay as they are."""

    embedding_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Embed every chunk again with this model, which can be the registered one.",
    )
    language: str | None = Field(default=None, description="ISO code or English name.")
    field_weights: dict[str, float] | None = Field(
        default=None, description="Keyword weights by field, including `content`."
    )


class RebuildReply(BaseModel):
    """A new rebuild, or an unfinished one with the same settings."""

    needed: bool = Field(description="False if nothing would change, so no rebuild was started.")
    changes: dict[str, Any] = Field(description="The settings after the rebuild.")
    embeds: bool = Field(description="True if chunks are embedded again.")


class RebuildStepRequest(Strict):
    """One step of a rebuild."""

    after: After = ""
    limit: StepLimit = WRITTEN_AT_ONCE


class SwitchReply(BaseModel):
    """A finished rebuild."""

    vector_db: VectorDB
    note: str = Field(description="Says so if the old index could not be deleted; else empty.")


@router.post("/{vector_db_id:id}/rebuild", summary="Start to rebuild a vector DB")
async def begin(vector_db_id: PathId, request: RebuildRequest, stack: StackOf) -> RebuildReply:
    """Start a second index for a vector DB, or resume an unfinished one.

    Then call `step` until `done`, and `switch`. Queries and inserts continue, and the new
    index gets all writes. If an unfinished rebuild has other settings, the answer is a 409.
    """
    settings = request.model_dump(exclude_none=True)
    rebuild = await stack.rebuilds.begin(await stack.vector_db(vector_db_id), settings)
    if rebuild is None:
        return RebuildReply(needed=False, changes={}, embeds=False)
    return RebuildReply(needed=True, changes=dict(rebuild.changes), embeds=rebuild.embeds)


@router.post("/{vector_db_id:id}/rebuild/step", summary="Build the next chunks")
async def step(vector_db_id: PathId, request: RebuildStepRequest, stack: StackOf) -> CopyReply:
    """Build the next chunks, in order of id, and return where to continue.

    To resume an interrupted rebuild, start from the beginning: it skips chunks that are built.
    While another process works on the rebuild, the answer is a 409.
    """
    vector_db = await stack.vector_db(vector_db_id)
    taken = await stack.rebuilds.step(vector_db, request.after, request.limit)
    return CopyReply(**asdict(taken))


@router.post("/{vector_db_id:id}/rebuild/switch", summary="Switch to the new index")
async def switch(vector_db_id: PathId, stack: StackOf) -> SwitchReply:
    """Apply the remaining writes, switch in one transaction, and delete the old index."""
    done = await stack.rebuilds.switch(await stack.vector_db(vector_db_id))
    return SwitchReply(vector_db=done.vector_db, note=done.note)


@router.post("/{vector_db_id:id}/rebuild/abandon", summary="Discard a rebuild")
async def abandon(vector_db_id: PathId, stack: StackOf) -> None:
    """Delete the new index and keep the old one."""
    await stack.rebuilds.abandon(await stack.vector_db(vector_db_id))
