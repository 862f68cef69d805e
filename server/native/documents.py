"""Documents of a vector DB: list, show, delete, set the acl. (The RAG tool inserts them.)"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from corral.api.chunks import Acl, Chunk
from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import Strict
from corral.providers.base.documents import (
    Page,
    change_acl,
    delete_document,
    list_documents,
    names_of,
    read_document,
    unknown_document,
)
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.native.document_paths import DocumentRoute
from corral.server.routing import PathId, StackOf

MAX_DOCUMENTS = 10_000
MAX_NAMED = 100
MAX_CHUNKS = 1000

router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Documents"], route_class=DocumentRoute, responses=ERRORS
)

After = Annotated[
    str, Query(description="`last_id` of the previous page; empty: start at the beginning.")
]
Documents = Annotated[
    int, Query(ge=1, le=MAX_DOCUMENTS, description="Maximum number of documents per page.")
]
Names = Annotated[
    bool,
    Query(description=f"Also return each document's name; then `limit` is at most {MAX_NAMED}."),
]
Chunks = Annotated[
    int, Query(ge=0, le=MAX_CHUNKS, description="Maximum number of chunks to return.")
]
Offset = Annotated[int, Query(ge=0, description="Number of chunks to skip.")]


class DocumentSummary(BaseModel):
    """A document in a list."""

    document_id: str
    chunk_count: int
    name: str | None = Field(
        default=None, description="Its title and file, else another name; only if `names` is true."
    )


class DocumentList(BaseModel):
    """A page of documents, in order of id."""

    data: list[DocumentSummary]
    has_more: bool = Field(description="True if there is another page.")
    last_id: str = Field(description="`after` of the next page.")


class Document(BaseModel):
    """A stored document."""

    vector_db_id: str
    document_id: str
    chunk_count: int = Field(description="Number of all its chunks.")
    metadata: dict[str, Any] = Field(description="The document's metadata, from its first chunk.")
    chunks: list[Chunk] = Field(description="Chunks in order, from `offset`, at most `limit`.")


class DeletedDocument(BaseModel):
    """A deleted document."""

    document_id: str
    chunk_count: int = Field(description="Number of chunks deleted.")
    deleted: bool = True


class DocumentChange(Strict):
    """Changes to a document that need no new embeddings."""

    acl: Acl | None = Field(
        description="Who may read it: a reader needs one of these tokens; null: the vector DB's "
        "`default_acl`."
    )


class ChangedDocument(BaseModel):
    """A document whose acl was changed."""

    document_id: str
    chunk_count: int = Field(description="Chunks that were changed.")
    acl: list[str] | None


@router.get(
    "/{vector_db_id:id}/documents",
    summary="List the documents of a vector DB",
    response_model_exclude_none=True,
)
async def list_all(
    vector_db_id: PathId,
    stack: StackOf,
    after: After = "",
    limit: Documents = 100,
    names: Names = False,
) -> DocumentList:
    """Return documents in order of id, page by page, each with its number of chunks.

    Chunks without `document_id` in their metadata belong to no document. Some backends (memory,
    Qdrant, Milvus, Weaviate) read every chunk for each page, so request large pages from them.
    """
    if names and limit > MAX_NAMED:
        raise InvalidRequest(
            f"limit must be <= {MAX_NAMED} with names (got {limit}).", field="limit"
        )
    index = await stack.index(vector_db_id)
    page = await list_documents(index, after, limit)
    named = await names_of(index, [each.document_id for each in page.items]) if names else {}
    data = [
        DocumentSummary(
            document_id=each.document_id,
            chunk_count=each.chunks,
            name=named.get(each.document_id),
        )
        for each in page.items
    ]
    return DocumentList(data=data, has_more=page.has_more, last_id=page.last_id)


@router.get("/{vector_db_id:id}/documents/{document_id:id}", summary="Show a document")
async def retrieve(
    vector_db_id: PathId,
    document_id: PathId,
    stack: StackOf,
    offset: Offset = 0,
    limit: Chunks = 100,
) -> Document:
    """Return a document's metadata and its chunks in order, without embeddings."""
    page = Page(offset, limit)
    document = await read_document(await stack.index(vector_db_id), document_id, page)
    if document is None:
        raise _unknown(vector_db_id, document_id)
    audit.current().returns(vector_db_id, [chunk.chunk_id for chunk in document.chunks])
    return Document(
        vector_db_id=vector_db_id,
        document_id=document_id,
        chunk_count=document.chunk_count,
        metadata=document.metadata,
        chunks=document.chunks,
    )


@router.delete("/{vector_db_id:id}/documents/{document_id:id}", summary="Delete a document")
async def delete(vector_db_id: PathId, document_id: PathId, stack: StackOf) -> DeletedDocument:
    """Delete a document with all its chunks, in one write; a failed write deletes nothing."""
    deleted = await delete_document(await stack.index(vector_db_id), document_id)
    if not deleted:
        raise _unknown(vector_db_id, document_id)
    return DeletedDocument(document_id=document_id, chunk_count=deleted)


@router.patch("/{vector_db_id:id}/documents/{document_id:id}", summary="Change a document's acl")
async def change(
    vector_db_id: PathId, document_id: PathId, request: DocumentChange, stack: StackOf
) -> ChangedDocument:
    """Set who may read a document, in one write and without embedding it again.

    Only admins can use tokens that they do not have.
    """
    changed = await change_acl(await stack.index(vector_db_id), document_id, request.acl)
    if not changed:
        raise _unknown(vector_db_id, document_id)
    return ChangedDocument(document_id=document_id, chunk_count=changed, acl=request.acl)


def _unknown(vector_db_id: str, document_id: str) -> NotFound:
    hint = "GET /v1/vector-dbs/ID/documents lists them."
    return unknown_document(vector_db_id, document_id, hint)
