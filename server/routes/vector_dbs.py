"""Vector DBs: register, list, show, copy, unregister."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from corral.api.errors import CorralError
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.copying import copy_batch, verify_copy
from corral.providers.documents import count_documents
from corral.providers.stack import Stack
from corral.server.documents_wire import CountedVectorDB, VectorDBList
from corral.server.routes.contract import (
    ERRORS,
    ContractRoute,
    InsertRoute,
    PathId,
    StackOf,
)
from corral.server.wire import (
    CopyReply,
    CopyRequest,
    UnregisterReply,
    VerifyCopyReply,
    VerifyCopyRequest,
)

COUNT_SECONDS = 10.0
"""How long the counts of one vector DB may take."""

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=ContractRoute, responses=ERRORS
)
copies = APIRouter(
    prefix="/v1/vector-dbs", tags=["Vector DBs"], route_class=InsertRoute, responses=ERRORS
)


@router.post("", summary="Register a vector DB")
async def register(registration: VectorDBRegistration, stack: StackOf) -> VectorDB:
    """Make a vector DB with its search mode, ranker, language and the rest, and return it.

    Registering the same again returns the stored one; with other settings it is a 409. A refused
    registration leaves nothing behind.
    """
    return await stack.register(registration)


Counts = Annotated[
    bool,
    Query(description="Add `chunk_count` and `document_count`, where a backend answers in time."),
]


@router.get("", summary="List the vector DBs")
async def list_vector_dbs(stack: StackOf, counts: Counts = False) -> VectorDBList:
    """Return every registered vector DB, by identifier."""
    vector_dbs = await stack.vector_dbs()
    return VectorDBList(
        data=await asyncio.gather(*(_shown(stack, each, counts=counts) for each in vector_dbs))
    )


@router.get("/{vector_db_id:id}", summary="Show a vector DB")
async def retrieve(vector_db_id: PathId, stack: StackOf, counts: Counts = False) -> CountedVectorDB:
    """Return a registered vector DB with all its settings."""
    return await _shown(stack, await stack.vector_db(vector_db_id), counts=counts)


async def _shown(stack: Stack, vector_db: VectorDB, *, counts: bool) -> CountedVectorDB:
    shown = CountedVectorDB.model_validate(vector_db.model_dump())
    if counts:
        with suppress(CorralError, TimeoutError):  # one that is away keeps nobody from the others
            async with asyncio.timeout(COUNT_SECONDS):
                index = await stack.index(vector_db.identifier)
                shown.chunk_count = await index.count()
                shown.document_count = await count_documents(index)
    return shown


@copies.post("/{vector_db_id:id}/copy", summary="Copy the next chunks to another vector DB")
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


@router.post("/{vector_db_id:id}/copy/verify", summary="Compare a copy with its source")
async def verify(
    vector_db_id: PathId, request: VerifyCopyRequest, stack: StackOf
) -> VerifyCopyReply:
    """Compare settings and ids, and for a sample of chunks their contents and answers to queries.

    Where they differ it is a 409 that says in what.
    """
    checks = asdict(await verify_copy(stack, vector_db_id, request.target_id))
    del checks["differences"]
    return VerifyCopyReply(**checks)


@router.delete("/{vector_db_id:id}", summary="Unregister a vector DB")
async def unregister(vector_db_id: PathId, stack: StackOf) -> UnregisterReply | None:
    """Delete a vector DB with all its chunks, once the requests that use it have ended.

    Where its provider has left run.yaml, only the registration goes, and a note says so; otherwise
    the reply is null. A request that still runs after 30 s makes it a 503, and nothing is deleted.
    """
    note = await stack.unregister(vector_db_id)
    return UnregisterReply(note=note) if note else None
