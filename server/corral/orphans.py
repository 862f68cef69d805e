"""Orphans: data in the engines that no registration holds. List, remove."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.wire import Strict
from corral.providers.orphans import find_orphans, remove_orphans
from corral.server.access.roles import OPERATOR
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, StackOf

router = APIRouter(
    prefix="/v1/orphans",
    tags=["Vector DBs"],
    route_class=ContractRoute,
    responses=ERRORS,
    dependencies=[OPERATOR],
)


class OrphanName(Strict):
    """One orphan."""

    provider_id: str
    name: str = Field(description="Of the file, folder, table or collection.")


class OrphanInfo(OrphanName):
    """One orphan, and what is known of it."""

    vector_db_id: str | None = Field(description="What it was made for, where the engine knows.")
    shared: bool = Field(
        description="Whether it is on a server, where another Corral's data looks the same."
    )


class UnansweredProvider(BaseModel):
    """A provider that could not be asked."""

    provider_id: str
    message: str


class OrphanList(BaseModel):
    """What no registration holds, and who could not be asked."""

    data: list[OrphanInfo]
    failures: list[UnansweredProvider]


class RemoveOrphans(Strict):
    """The orphans to delete, as they were listed."""

    orphans: list[OrphanName] = Field(min_length=1, max_length=10_000)


@router.get("", summary="List data that no registration holds")
async def list_orphans(stack: StackOf) -> OrphanList:
    """Return what a process left that was killed between making a vector DB and registering it.

    On a server that several Corrals share, each with registrations of its own, the vector DBs of
    the others are among them.
    """
    looked = await find_orphans(stack)
    return OrphanList(
        data=[
            OrphanInfo(
                provider_id=one.entry.provider_id,
                name=orphan.name,
                vector_db_id=orphan.vector_db_id,
                shared=one.entry.provider_type.startswith("remote::"),
            )
            for one in looked
            for orphan in one.orphans
        ],
        failures=[
            UnansweredProvider(provider_id=one.entry.provider_id, message=one.failure)
            for one in looked
            if one.failure
        ],
    )


@router.post("/remove", summary="Delete data that no registration holds")
async def remove(request: RemoveOrphans, stack: StackOf) -> None:
    """Delete orphans for good. One that is none, or none any more, is a 400; nothing is deleted."""
    await remove_orphans(stack, [(one.provider_id, one.name) for one in request.orphans])
