"""Chunks: insert and query, for callers that split documents themselves."""

from __future__ import annotations

from fastapi import APIRouter

from corral.providers.rag.plan import empty_question, is_blank
from corral.providers.stack.expiry import store_expiring
from corral.server.access.acting import acting
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.limits import check_count, check_max_chunks
from corral.server.llama_stack.wire import (
    EmbeddedChunk,
    ExplainedReply,
    InsertChunksRequest,
    QueryChunksReply,
    QueryChunksRequest,
    QueryParams,
    check_registered,
)
from corral.server.routing import ContractRoute, InsertRoute, LimitsOf, RagToolOf, StackOf

router = APIRouter(
    prefix="/v1/vector-io", tags=["Chunks"], route_class=ContractRoute, responses=ERRORS
)
inserts = APIRouter(
    prefix="/v1/vector-io", tags=["Chunks"], route_class=InsertRoute, responses=ERRORS
)


@inserts.post("/insert", summary="Insert chunks")
async def insert(request: InsertChunksRequest, stack: StackOf, limits: LimitsOf) -> None:
    """Store chunks, all or none. The server computes missing embeddings.

    At most `server.limits.max_concurrent_inserts` inserts run at once on each vector_io provider;
    others wait.
    """
    check_count(
        request.chunks,
        limits.max_chunks_per_insert,
        field="chunks",
        setting="max_chunks_per_insert",
    )
    vector_db = await stack.vector_db(request.vector_db_id)
    named = {chunk.embedding_model for chunk in request.chunks}
    others = named - {None, vector_db.embedding_model}
    unknown = others - {info.model for _, info in stack.models()} if others else others
    for number, chunk in enumerate(request.chunks):
        check_registered(chunk, vector_db, f"chunks[{number}].", ignored=unknown)
    await store_expiring(stack, request.vector_db_id, request.chunks, request.ttl_seconds)


@router.post("/query", summary="Query chunks", dependencies=[READER])
async def query(
    request: QueryChunksRequest, stack: StackOf, rag_tool: RagToolOf, limits: LimitsOf
) -> QueryChunksReply | ExplainedReply:
    """Return the best chunks for a question, best first; chunk_id breaks ties.

    Without a question, `order_by` is required. `/v1/vector-io/list` pages through the chunks that
    pass filters.
    """
    params = request.params or QueryParams()
    check_max_chunks(params.max_chunks, limits, field="params.max_chunks")
    if params.order_by is None and is_blank(request.query, params):
        raise empty_question()
    retrieval = rag_tool.on(acting(stack, request.as_user)).retrieval
    result = await retrieval.search(
        request.vector_db_id, request.query, k=params.max_chunks, options=params
    )
    reply = ExplainedReply.of(result) if params.explain else QueryChunksReply.of(result)
    if request.is_newer:
        vector_db = await stack.vector_db(request.vector_db_id)
        reply.chunks = [EmbeddedChunk.of(chunk, vector_db) for chunk in reply.chunks]
    return reply
