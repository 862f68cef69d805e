"""Copies of vector DBs: the next chunks, and the comparison at the end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, TypeAlias

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.wire import MAX_ID_LENGTH, Identifier, Strict
from corral.providers.copying.copy import copy_batch, verify_copy
from corral.providers.stack.copy_steps import MAX_BATCH, WRITTEN_AT_ONCE
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.routing import InsertRoute, PathId, StackOf

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=InsertRoute, responses=ERRORS
)


After: TypeAlias = Annotated[
    str,
    Field(
        max_length=MAX_ID_LENGTH,
        description="`last_id` of the previous step; empty: start at the beginning.",
    ),
]
StepLimit: TypeAlias = Annotated[
    int, Field(ge=1, le=MAX_BATCH, description="Number of chunks to look at.")
]


class CopyRequest(Strict):
    """One step of a copy. The first one, without `after`, registers the target."""

    target_id: Identifier = Field(
        description="Id of the copy, which is registered like the source."
    )
    provider_id: str | None = Field(
        default=None,
        description="Provider of the target; null: the source's provider.",
    )
    after: After = ""
    limit: StepLimit = WRITTEN_AT_ONCE


class CopyReply(BaseModel):
    """The result of a step, and where the next one starts."""

    seen: int = Field(description="Chunks that this step looked at.")
    copied: int = Field(description="Chunks that were missing or different in the target.")
    last_id: str = Field(description="`after` of the next step.")
    done: bool = Field(description="True if this was the last step.")
    total: int = Field(description="Chunks in the source, now.")


class VerifyCopyRequest(Strict):
    """A copy to compare with its source."""

    target_id: Identifier


class VerifyCopyReply(BaseModel):
    """The result of verifying a copy."""

    source_count: int
    target_count: int
    sampled: int = Field(description="Number of chunks compared and searched for.")
    exact: bool = Field(description="True if both sides always search vectors exactly.")
    vector_overlap: float | None = Field(description="Mean share of common hits of vector queries.")
    keyword_overlap: float | None = Field(
        description="Mean share of common hits of keyword queries."
    )


@router.post("/{vector_db_id:id}/copy", summary="Copy the next chunks to another vector DB")
async def copy(vector_db_id: PathId, request: CopyRequest, stack: StackOf) -> CopyReply:
    """Copy the next chunks with their embeddings, in order of id, and return where to continue.

    Repeat with `last_id` as `after` until `done`, then verify. To resume an interrupted copy, start
    from the beginning: it skips chunks that the target already has. Each step counts as an insert
    toward `server.limits.max_concurrent_inserts`.
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
    """Compare settings and ids and, for a sample of chunks, contents and answers to queries.

    If they differ, the answer is a 409 that says how.
    """
    checks = asdict(await verify_copy(stack, vector_db_id, request.target_id))
    del checks["differences"]
    return VerifyCopyReply(**checks)
