"""Documents, and what puts them into a library in memory."""

from __future__ import annotations

from typing import Any

from corral.api.rag import URL, RAGDocument
from corral.providers.base.config import Limits, RagSettings
from corral.providers.ingestion.ingest import Ingester, InsertReport
from corral.providers.ingestion.read.fetching import Fetcher
from corral.providers.rag.frame import metadata_cost

from .fake_library import FakeLibrary


def document(document_id: str, content: str | URL, **fields: Any) -> RAGDocument:
    """Return a document."""
    return RAGDocument(document_id=document_id, content=content, **fields)


def ingester(limits: Limits | None = None, fetcher: Fetcher | None = None) -> Ingester:
    """Return what takes documents in."""
    return Ingester(RagSettings(), metadata_cost, limits, fetcher=fetcher)


async def insert(library: FakeLibrary, *documents: RAGDocument, **options: Any) -> InsertReport:
    """Insert documents into the vector DB `db`."""
    return await ingester().insert(library, documents, "db", **options)
