"""Replies about documents and about how many there are."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB


class DocumentSummary(BaseModel):
    """A document in a list."""

    document_id: str
    chunk_count: int


class DocumentList(BaseModel):
    """A page of documents, by id."""

    data: list[DocumentSummary]
    has_more: bool = Field(description="Whether there is another page.")
    last_id: str = Field(description="`after` of the next page.")


class Document(BaseModel):
    """A stored document."""

    vector_db_id: str
    document_id: str
    chunk_count: int = Field(description="All its chunks.")
    metadata: dict[str, Any] = Field(description="The document's own, as its first chunk has it.")
    chunks: list[Chunk] = Field(description="In their order; `offset` and `limit` choose.")


class DeletedDocument(BaseModel):
    """A document that is gone."""

    document_id: str
    chunk_count: int = Field(description="Chunks that it had.")
    deleted: bool = True


class CountedVectorDB(VectorDB):
    """A registered vector DB, with counts where they were asked for and its backend answered."""

    chunk_count: int | None = Field(default=None, exclude_if=lambda count: count is None)
    document_count: int | None = Field(
        default=None,
        exclude_if=lambda count: count is None,
        description="Documents: the `document_id`s in the metadata of its chunks.",
    )


class VectorDBList(BaseModel):
    """All registered vector DBs, by identifier."""

    data: list[CountedVectorDB]
