"""Rebuilds of vector DBs: another model, language or field weights, step by step, while in use."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.vector_dbs import VectorDB
from corral.api.wire import Strict
from corral.providers.copying.steps import WRITTEN_AT_ONCE
from corral.server.access.roles import ADMIN
from corral.server.corral.copies import After, CopyReply, StepLimit
from corral.server.errors import ERRORS
from corral.server.routing import InsertRoute, PathId, StackOf

router = APIRouter(
    prefix="/v1/vector-dbs",
    tags=["Vector DBs"],
    route_class=InsertRoute,
    responses=ERRORS,
    dependencies=[ADMIN],
)


class RebuildRequest(Strict):
    """What is to change. Fields that are left out stay as they are."""

    embedding_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Embed every chunk again with this model. The registered one: as it is "
        "configured now.",
    )
    language: str | None = Field(default=None, description="ISO code or English name.")
    field_weights: dict[str, float] | None = Field(
        default=None, description="Keyword weights by field; `content` is one of them."
    )


class RebuildReply(BaseModel):
    """A rebuild that has begun, or was under way with the same settings."""

    needed: bool = Field(description="False if nothing would change; there is no rebuild then.")
    changes: dict[str, Any] = Field(description="Settings as they will be registered.")
    embeds: bool = Field(description="Whether chunks are embedded again.")


class RebuildStepRequest(Strict):
    """One step of a rebuild."""

    after: After = ""
    limit: StepLimit = WRITTEN_AT_ONCE


class SwitchReply(BaseModel):
    """A rebuild that is done."""

    vector_db: VectorDB
    note: str = Field(description="What could not be deleted of the old index; empty: nothing.")


@router.post("/{vector_db_id:id}/rebuild", summary="Begin to rebuild a vector DB")
async def begin(vector_db_id: PathId, request: RebuildRequest, stack: StackOf) -> RebuildReply:
    """Begin a second index beside the one that serves, or take up the one that was begun.

    Then take steps until `done`, and switch. Queries and inserts go on all the while; what is
    written meanwhile is carried over. With other settings than a rebuild that is under way it is a
    409.
    """
    settings = request.model_dump(exclude_none=True)
    rebuild = await stack.rebuilds.begin(await stack.vector_db(vector_db_id), settings)
    if rebuild is None:
        return RebuildReply(needed=False, changes={}, embeds=False)
    return RebuildReply(needed=True, changes=dict(rebuild.changes), embeds=rebuild.embeds)


@router.post("/{vector_db_id:id}/rebuild/step", summary="Build the next chunks")
async def step(vector_db_id: PathId, request: RebuildStepRequest, stack: StackOf) -> CopyReply:
    """Build the next chunks by id, and say where to go on.

    A rebuild that was interrupted is begun again and passes over what is built.
    """
    vector_db = await stack.vector_db(vector_db_id)
    taken = await stack.rebuilds.step(vector_db, request.after, request.limit)
    return CopyReply(**asdict(taken))


@router.post("/{vector_db_id:id}/rebuild/switch", summary="Put the new index into service")
async def switch(vector_db_id: PathId, stack: StackOf) -> SwitchReply:
    """Carry over what was written meanwhile, switch in one transaction, delete the old index."""
    done = await stack.rebuilds.switch(await stack.vector_db(vector_db_id))
    return SwitchReply(vector_db=done.vector_db, note=done.note)


@router.post("/{vector_db_id:id}/rebuild/abandon", summary="Give a rebuild up")
async def abandon(vector_db_id: PathId, stack: StackOf) -> None:
    """Delete what was built; the old index goes on serving."""
    await stack.rebuilds.abandon(await stack.vector_db(vector_db_id))
