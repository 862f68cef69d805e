"""The tools that write: insert and delete. Disabled by default."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from corral.api.options import checked
from corral.api.rag import RAGDocument
from corral.api.wire import Identifier, NullsAreDefaults
from corral.providers.base.documents import delete_document, unknown_document
from corral.server.tools.reading import scope
from corral.server.tools.tool import ToolServices

Target = Annotated[Identifier, Field(description="One that list_vector_dbs names.")]


class NewDocument(NullsAreDefaults):
    """A text to store."""

    document_id: Identifier = Field(description="A known one is replaced.")
    text: str = Field(min_length=1)
    title: str | None = Field(default=None, description="null: its first heading.")
    url: str | None = Field(default=None, description="Where people can open it.")


class InsertArguments(NullsAreDefaults):
    """Arguments of `insert`."""

    vector_db_id: Target
    documents: list[NewDocument] = Field(min_length=1)


class InsertAnswer(BaseModel):
    """The result of an insert."""

    chunks: dict[str, int] = Field(description="Number of chunks by document_id.")


class DeleteArguments(NullsAreDefaults):
    """Arguments of `delete`."""

    vector_db_id: Target
    document_id: Identifier


class DeleteAnswer(BaseModel):
    """The result of a deletion."""

    document_id: str
    chunk_count: int = Field(description="Number of chunks deleted.")


async def insert(services: ToolServices, arguments: InsertArguments) -> InsertAnswer:
    """Split, embed and store documents, all or none."""
    [vector_db_id] = await scope(services, [arguments.vector_db_id])
    documents = [_document(each) for each in arguments.documents]
    report = await services.stack.ingestion.insert(documents, vector_db_id)
    return InsertAnswer(chunks=report.chunks)


async def delete(services: ToolServices, arguments: DeleteArguments) -> DeleteAnswer:
    """Delete a document with all its chunks."""
    [vector_db_id] = await scope(services, [arguments.vector_db_id])
    deleted = await delete_document(await services.stack.index(vector_db_id), arguments.document_id)
    if not deleted:
        raise unknown_document(vector_db_id, arguments.document_id)
    return DeleteAnswer(document_id=arguments.document_id, chunk_count=deleted)


def _document(new: NewDocument) -> RAGDocument:
    metadata = {"title": new.title, "url": new.url}
    fields = {
        "document_id": new.document_id,
        "content": {"type": "text", "text": new.text},  # never an address to fetch
        "metadata": {key: value for key, value in metadata.items() if value},
    }
    return checked(RAGDocument, fields)
