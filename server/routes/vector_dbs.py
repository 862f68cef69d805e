"""Vector DBs: register, list, show, unregister."""

from __future__ import annotations

from fastapi import APIRouter

from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.server.routes.contract import ERRORS, ContractRoute, PathId, StackOf
from corral.server.wire import VectorDBList

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=ContractRoute, responses=ERRORS
)


@router.post("", summary="Register a vector DB")
async def register(registration: VectorDBRegistration, stack: StackOf) -> VectorDB:
    """Make a vector DB with its search mode, ranker, language and the rest, and return it.

    Registering the same again returns the stored one; with other settings it is a 409. A refused
    registration leaves nothing behind.
    """
    return await stack.register(registration)


@router.get("", summary="List the vector DBs")
async def list_vector_dbs(stack: StackOf) -> VectorDBList:
    """Return every registered vector DB, by identifier."""
    return VectorDBList(data=stack.vector_dbs())


@router.get("/{vector_db_id:id}", summary="Show a vector DB")
async def retrieve(vector_db_id: PathId, stack: StackOf) -> VectorDB:
    """Return a registered vector DB with all its settings."""
    return stack.vector_db(vector_db_id)


@router.delete("/{vector_db_id:id}", summary="Unregister a vector DB")
async def unregister(vector_db_id: PathId, stack: StackOf) -> None:
    """Delete a vector DB with all its chunks."""
    await stack.unregister(vector_db_id)
