"""Copies of vector DBs: the next chunks, and the comparison at the end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, TypeAlias

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.wire import MAX_ID_LENGTH, Identifier, Strict
from corral.providers.copying.copy import copy_batch, verify_copy
from corral.providers.copying.steps import MAX_BATCH, WRITTEN_AT_ONCE
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.routing import InsertRoute, PathId, StackOf

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=InsertRoute, responses=ERRORS
)


After: TypeAlias = Annotated[
    str,
    Field(max_length=MAX_ID_LENGTH, description="`last_id` of the step before; empty: begin."),
]
StepLimit: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_BATCH, description="Chunks to go through.")
]


class CopyRequest(Strict):
    """One step of a copy. The first one, without `after`, registers the target."""

    target_id: Identifier = Field(description="The copy; registered like the source.")
    provider_id: str | None = Field(
        default=None,
        description="Provider of the target; null: the source's provider.",
    )
    after: After = ""
    limit: StepLimit = WRITTEN_AT_ONCE


class CopyReply(BaseModel):
    """What a step did, and where the next one begins."""

    seen: int = Field(description="Chunks that the step went through.")
    copied: int = Field(description="Those of them that were not in the target as they are.")
    last_id: str = Field(description="`after` of the next step.")
    done: bool = Field(description="True if this was the last step.")
    total: int = Field(description="Chunks in the source, now.")


class VerifyCopyRequest(Strict):
    """A copy to be compared with its source."""

    target_id: Identifier


class VerifyCopyReply(BaseModel):
    """A copy that is good: what was compared."""

    source_count: int
    target_count: int
    sampled: int = Field(description="Chunks that were compared and searched for.")
    exact: bool = Field(description="Whether both sides search vectors exactly, always.")
    vector_overlap: float | None = Field(
        description="Mean share of the hits that both sides found, of vector queries."
    )
    keyword_overlap: float | None = Field(description="The same of keyword queries.")


@router.post("/{vector_db_id:id}/copy", summary="Copy the next chunks to another vector DB")
async def copy(vector_db_id: PathId, request: CopyRequest, stack: StackOf) -> CopyReply:
    """Copy chunks with their embeddings, in the order of their ids, and say where to go on.

    Repeat it with `last_id` as `after` until `done`, then verify. A copy that was interrupted is
    started again from the beginning and passes over what the target holds. Each step counts as an
    insert: `server.limits.max_concurrent_inserts` of them work at once between two providers.
    """
    step = await copy_batch(
        stack,
        vector_db_id,
        request.target_id,
        provider_id=request.provider_id,
        after=request.after,
        limit=request.limit,
    )
    return CopyReply(**asdict(step))


@router.post(
    "/{vector_db_id:id}/copy/verify",
    summary="Compare a copy with its source",
    dependencies=[READER],
)
async def verify(
    vector_db_id: PathId, request: VerifyCopyRequest, stack: StackOf
) -> VerifyCopyReply:
    """Compare settings and ids, and for a sample of chunks their contents and answers to queries.

    Where they differ it is a 409 that says in what.
    """
    checks = asdict(await verify_copy(stack, vector_db_id, request.target_id))
    del checks["differences"]
    return VerifyCopyReply(**checks)
