"""Vector DBs: register, list, show, copy, unregister."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query

from corral.api.errors import CorralError
from corral.api.principal import Role
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.base.documents import count_documents
from corral.providers.stack.stack import Stack
from corral.server.access.roles import ADMIN
from corral.server.errors import ERRORS
from corral.server.llama_stack.wire import CountedVectorDB, UnregisterReply, VectorDBList
from corral.server.routing import ContractRoute, PathId, StackOf

COUNT_SECONDS = 10.0
"""Timeout for the counts of one vector DB, in seconds."""

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=ContractRoute, responses=ERRORS
)


@router.post("", summary="Register a vector DB")
async def register(registration: VectorDBRegistration, stack: StackOf) -> VectorDB:
    """Register a vector DB with its search mode, ranker and other settings, and return it.

    Repeating a registration returns the stored one; with other settings it fails with 409. A failed
    registration leaves nothing behind.
    """
    return await stack.register(registration)


Counts = Annotated[
    bool,
    Query(
        description="Add `chunk_count`, `document_count` and, for admins, `disk_bytes` and "
        "`searcher`, if the backend answers in time."
    ),
]


@router.get("", summary="List the vector DBs")
async def list_vector_dbs(stack: StackOf, counts: Counts = False) -> VectorDBList:
    """Return all registered vector DBs, in order of identifier."""
    vector_dbs = await stack.vector_dbs()
    return VectorDBList(
        data=await asyncio.gather(*(_shown(stack, each, counts=counts) for each in vector_dbs))
    )


@router.get("/{vector_db_id:id}", summary="Show a vector DB")
async def retrieve(vector_db_id: PathId, stack: StackOf, counts: Counts = False) -> CountedVectorDB:
    """Return a registered vector DB with all its settings."""
    return await _shown(stack, await stack.vector_db(vector_db_id), counts=counts)


async def _shown(stack: Stack, vector_db: VectorDB, *, counts: bool) -> CountedVectorDB:
    shown = CountedVectorDB.model_construct(**dict(vector_db))
    if not stack.principal.may(Role.WRITER):
        shown.default_acl = None
    if counts:
        with suppress(CorralError, TimeoutError):  # an unavailable backend does not hide the others
            async with asyncio.timeout(COUNT_SECONDS):
                index = await stack.index(vector_db.identifier, active=False)
                shown.chunk_count = await index.count()
                shown.document_count = await count_documents(index)
                if stack.principal.reads_all:
                    provider = stack.vector_io(vector_db.provider_id)
                    shown.disk_bytes = await provider.disk_bytes(vector_db)
                    shown.searcher = await index.searcher_state()
    return shown


@router.delete("/{vector_db_id:id}", summary="Unregister a vector DB", dependencies=[ADMIN])
async def unregister(vector_db_id: PathId, stack: StackOf) -> UnregisterReply | None:
    """Wait for the requests that use a vector DB, then delete it with all its chunks.

    If its provider is no longer in run.yaml, only the registration is deleted, and the reply has a
    note; otherwise the reply is null. If a request is still running after 30 s, nothing is deleted
    and the answer is a 503.
    """
    note = await stack.unregister(vector_db_id)
    return UnregisterReply(note=note) if note else None
