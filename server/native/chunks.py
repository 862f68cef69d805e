"""Chunks by id: read, list, delete. (Llama Stack's wire inserts and queries chunks.)"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.api.chunks import Chunk
from corral.api.filters import WireFilter
from corral.api.wire import Identifier, Strict
from corral.server.access import audit
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, StackOf

MAX_CHUNKS = 1000

router = APIRouter(
    prefix="/v1/vector-io", tags=["Chunks"], route_class=ContractRoute, responses=ERRORS
)


class ChunkNames(Strict):
    """Chunks of a vector DB."""

    vector_db_id: Identifier
    chunk_ids: list[Identifier] = Field(max_length=MAX_CHUNKS)


class WantedChunks(ChunkNames):
    """Chunks to return."""

    include_embeddings: bool = False


class ChunkPage(Strict):
    """The chunks of a vector DB to list."""

    vector_db_id: Identifier
    after: str = Field(
        default="", description="`last_id` of the previous page; empty: start at the beginning."
    )
    limit: int = Field(
        default=100, ge=1, le=MAX_CHUNKS, description="Maximum number of chunks per page."
    )
    filters: WireFilter | None = Field(
        default=None, description="Only chunks whose metadata passes, in the format of a query."
    )
    include_embeddings: bool = False


class Chunks(BaseModel):
    """Chunks, in the order of the ids; without those that do not exist."""

    data: list[Chunk]


class ListedChunks(Chunks):
    """A page of chunks, in order of id."""

    has_more: bool = Field(description="True if there is another page.")
    last_id: str = Field(description="`after` of the next page.")


class DeletedChunks(BaseModel):
    """The result of a deletion."""

    deleted: int = Field(description="Number of chunks deleted.")


@router.post("/get", summary="Get chunks", dependencies=[READER])
async def get(request: WantedChunks, stack: StackOf) -> Chunks:
    """Return the chunks with these ids, in the order of the ids; unknown ids are skipped."""
    index = await stack.index(request.vector_db_id)
    embeddings = request.include_embeddings
    chunks = await index.get_chunks(request.chunk_ids, include_embeddings=embeddings)
    audit.current().returns(request.vector_db_id, [chunk.chunk_id for chunk in chunks])
    return Chunks(data=chunks)


@router.post("/list", summary="List chunks", dependencies=[READER])
async def list_all(request: ChunkPage, stack: StackOf) -> ListedChunks:
    """Return chunks in order of id, page by page; a page is full unless it is the last.

    Some backends (Qdrant, Milvus, Weaviate) read all chunks until those that pass `filters` fill
    the page.
    """
    index = await stack.index(request.vector_db_id)
    ids = await index.chunk_ids(request.after, request.limit + 1, filters=request.filters)
    page = ids[: request.limit]
    chunks = await index.get_chunks(page, include_embeddings=request.include_embeddings)
    audit.current().returns(request.vector_db_id, [chunk.chunk_id for chunk in chunks])
    return ListedChunks(
        data=chunks,
        has_more=len(ids) > len(page),
        last_id=page[-1] if page else "",
    )


@router.post("/delete", summary="Delete chunks")
async def delete(request: ChunkNames, stack: StackOf) -> DeletedChunks:
    """Delete the chunks with these ids, all or none; unknown ids are skipped."""
    index = await stack.index(request.vector_db_id)
    there = len(await index.get_chunks(request.chunk_ids))
    await index.delete_chunks(request.chunk_ids)
    return DeletedChunks(deleted=there)
