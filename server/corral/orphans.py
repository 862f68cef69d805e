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
    name: str = Field(description="Name of the file, folder, table or collection.")


class OrphanInfo(OrphanName):
    """Stored data that belongs to no vector DB."""

    vector_db_id: str | None = Field(
        description="The vector DB that it was made for, if the engine knows."
    )
    shared: bool = Field(
        description="True if it is on a server, where another installation's data looks the same."
    )


class UnansweredProvider(BaseModel):
    """A provider that could not be checked."""

    provider_id: str
    message: str


class OrphanList(BaseModel):
    """Data that belongs to no vector DB, and the providers that could not be checked."""

    data: list[OrphanInfo]
    failures: list[UnansweredProvider]


class RemoveOrphans(Strict):
    """The orphans to delete, as listed."""

    orphans: list[OrphanName] = Field(min_length=1, max_length=10_000)


@router.get("", summary="List data that belongs to no vector DB")
async def list_orphans(stack: StackOf) -> OrphanList:
    """Return data left by processes that were killed while they registered a vector DB.

    If several Corral installations share a database server, the list includes the others' vector
    DBs.
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


@router.post("/remove", summary="Delete data that belongs to no vector DB")
async def remove(request: RemoveOrphans, stack: StackOf) -> None:
    """Delete orphans for good. If one of them is not an orphan, the answer is a 400 and nothing is
    deleted.
    """
    await remove_orphans(stack, [(one.provider_id, one.name) for one in request.orphans])
