"""Orphans: data in the engines without a registration. List, remove."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.provider import Orphan
from corral.api.wire import Strict
from corral.providers.stack.orphans import UNKNOWN, ProviderOrphans, find_orphans, remove_orphans
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
    """Stored data that belongs to no vector DB here."""

    vector_db_id: str | None = Field(
        description="The vector DB that it was made for, if the engine knows."
    )
    installation: str = Field(
        description="Id of the installation that made it, or `unknown`: made before there were ids."
    )


class UnansweredProvider(BaseModel):
    """A provider that could not be checked."""

    provider_id: str
    message: str


class OrphanList(BaseModel):
    """Data that belongs to no vector DB here, and the providers that could not be checked."""

    installation: str = Field(description="Id of this installation.")
    data: list[OrphanInfo] = Field(description="Made by this installation: orphans.")
    others: list[OrphanInfo] = Field(
        description="Made by other installations that share an engine; may be in use there."
    )
    failures: list[UnansweredProvider]


class RemoveOrphans(Strict):
    """The orphans to delete, as listed."""

    orphans: list[OrphanName] = Field(min_length=1, max_length=10_000)
    installation: str | None = Field(
        default=None,
        max_length=64,
        description="Id of the installation that made them, or `unknown` (default: this one).",
    )


@router.get("", summary="List data that belongs to no vector DB")
async def list_orphans(stack: StackOf) -> OrphanList:
    """Return data left by processes that were killed while they registered a vector DB.

    If several Corral installations share an engine, `others` lists their data, which includes
    vector DBs in use.
    """
    looked = await find_orphans(stack)
    return OrphanList(
        installation=await stack.installation(),
        data=[_info(one, orphan) for one in looked for orphan in one.orphans],
        others=[_info(one, orphan) for one in looked for orphan in one.others],
        failures=[
            UnansweredProvider(provider_id=one.entry.provider_id, message=one.failure)
            for one in looked
            if one.failure
        ],
    )


@router.post("/remove", summary="Delete data that belongs to no vector DB")
async def remove(request: RemoveOrphans, stack: StackOf) -> None:
    """Delete orphans for good. If one of them is not an orphan, the answer is a 400 and nothing is
    deleted; if one was made by another installation than `installation`, or another process deletes
    orphans, a 409.
    """
    names = [(one.provider_id, one.name) for one in request.orphans]
    await remove_orphans(stack, names, request.installation)


def _info(provider: ProviderOrphans, orphan: Orphan) -> OrphanInfo:
    return OrphanInfo(
        provider_id=provider.entry.provider_id,
        name=orphan.name,
        vector_db_id=orphan.vector_db_id,
        installation=orphan.installation or UNKNOWN,
    )
