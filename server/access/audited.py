"""Retrieval and the RAG tool with what they are asked and what they return in the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from corral.api.library import Library
from corral.api.rag import RAGQueryConfig, RAGQueryResult
from corral.providers.rag.search import Retrieval, Retrieved
from corral.providers.rag.tool import RagTool
from corral.server.access import audit


class AuditedRetrieval(Retrieval):
    """Searches, and notes the question and the chunks that were found.

    Args:
        library: Where the vector DBs are.
        max_k: Most hits of a query that asks for `auto`.
        entry: Of the request that it works for: a task of another's may do the work.
    """

    def __init__(self, library: Library, max_k: int, entry: audit.Entry) -> None:
        super().__init__(library, max_k)
        self._entry = entry

    async def search_many(
        self, vector_db_ids: Sequence[str], query: str, **options: Any
    ) -> Retrieved:
        """Return the best chunks of several vector DBs; see `Retrieval`."""
        self._entry.names(*vector_db_ids)
        self._entry.asks(query)
        found = await super().search_many(vector_db_ids, query, **options)
        for each in found.hits:
            self._entry.returns(each.vector_db_id, [each.hit.chunk.chunk_id])
        return found


class AuditedRagTool(RagTool):
    """Asks, and notes the question and the chunks that are in the context."""

    _entry = audit.Entry()

    def on(self, library: Library) -> Self:
        """Return this tool on another library; see `RagTool`."""
        other = super().on(library)
        other._entry = audit.current()
        other.retrieval = AuditedRetrieval(library, self._limits.max_k, other._entry)
        return other

    async def query(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig | None = None,
    ) -> RAGQueryResult:
        """Return the context that answers a question; see `RagTool`."""
        entry = self._entry
        entry.names(*vector_db_ids)
        entry.asks(content if isinstance(content, str) else "\n".join(content))
        result = await super().query(content, vector_db_ids, config)
        for each in result.metadata.get("included_chunks", ()):
            merged = (one["chunk_id"] for one in each.get("merged", ()))
            entry.returns(
                each["vector_db_id"], [each["chunk_id"], *merged, *each.get("expanded", ())]
            )
        return result
