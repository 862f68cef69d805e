"""Documents, and the tool that puts them into a library in memory."""

from __future__ import annotations

from typing import Any

from corral.api.rag import URL, RAGDocument
from corral.providers.rag.tool import InsertReport, RagTool

from .fake_library import FakeLibrary


def document(document_id: str, content: str | URL, **fields: Any) -> RAGDocument:
    """Return a document."""
    return RAGDocument(document_id=document_id, content=content, **fields)


async def insert(library: FakeLibrary, *documents: RAGDocument, **options: Any) -> InsertReport:
    """Insert documents into the vector DB `db`."""
    return await RagTool(library).insert(documents, "db", **options)
