"""Syncs: vector DBs that are kept in step with the sources of run.yaml."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.errors import NotFound
from corral.api.wire import Strict
from corral.providers.stack.syncing import SyncState
from corral.server.access.roles import ADMIN
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, PathId, StackOf

router = APIRouter(
    prefix="/v1/vector-dbs",
    tags=["Documents"],
    route_class=ContractRoute,
    responses=ERRORS,
    dependencies=[ADMIN],
)


class SyncStateRequest(Strict):
    """A sync."""

    source: str = Field(min_length=1, max_length=255, description="`name` of a sync in run.yaml.")


class SyncRequest(SyncStateRequest):
    """A run of a sync."""

    full: bool = Field(
        default=False, description="Whether to read documents again that have not changed."
    )


class SyncedDocument(BaseModel):
    """A document that failed or was skipped."""

    name: str = Field(description="Its document id, or its name in the source.")
    reason: str


class SyncInfo(BaseModel):
    """The newest run of a sync."""

    status: Literal["running", "completed", "failed"] = Field(
        description="failed: the source could not be listed, or the run was broken off."
    )
    error: str = Field(description="Why it failed; empty otherwise.")
    started_at: float = Field(description="Unix seconds.")
    seconds: float = Field(description="Duration; 0 while it runs.")
    listed: int = Field(description="Documents of the source.")
    unchanged: int
    stored: int = Field(description="New and changed documents that were ingested.")
    deleted: int
    failed: int = Field(description="Documents that could not be read or ingested.")
    skipped: int = Field(description="What is no document, or excluded.")
    failures: list[SyncedDocument] = Field(description="The first 100 of the failed documents.")
    skips: list[SyncedDocument] = Field(description="The first 100 of what was skipped.")
    problems: list[str] = Field(description="Why the listing is incomplete; nothing was deleted.")

    @classmethod
    def of(cls, state: SyncState) -> SyncInfo:
        """Return a run in the form of the wire."""
        report = asdict(state.report)
        for name in ("failures", "skips"):
            report[name] = [SyncedDocument(name=key, reason=why) for key, why in report[name]]
        return cls(status=state.status, error=state.error, started_at=state.started_at, **report)


@router.post("/{vector_db_id:id}/sync", summary="Bring a vector DB in step with a source")
async def start(vector_db_id: PathId, request: SyncRequest, stack: StackOf) -> SyncInfo:
    """Start a run in the background, and return its state; `sync/state` shows its progress.

    New and changed documents are ingested, and documents that the source no longer has are
    deleted. If the source cannot be listed completely, nothing is deleted. One run at a time is
    allowed for each vector DB; else the answer is a 409.
    """
    await stack.vector_db(vector_db_id)
    entry = stack.syncs.entry(stack.principal.tenant, vector_db_id, request.source)
    return SyncInfo.of(stack.syncs.start(entry, full=request.full))


@router.post("/{vector_db_id:id}/sync/state", summary="Show the newest run of a sync")
async def show(vector_db_id: PathId, request: SyncStateRequest, stack: StackOf) -> SyncInfo:
    """Return the newest run in this server process."""
    await stack.vector_db(vector_db_id)
    entry = stack.syncs.entry(stack.principal.tenant, vector_db_id, request.source)
    state = stack.syncs.state(entry)
    if state is None:
        raise NotFound(f"The sync {request.source!r} has not run yet.", field="source")
    return SyncInfo.of(state)
