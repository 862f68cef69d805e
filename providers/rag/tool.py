"""The RAG tool: from a question to a context within a token budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from corral.api.errors import InvalidRequest
from corral.api.library import Library
from corral.api.rag import RAGQueryConfig, RAGQueryResult
from corral.api.recording import record_chunks, record_question
from corral.api.spans import span
from corral.api.wire import TextItem
from corral.providers.base.config import Limits
from corral.providers.rag.context import Context, assemble
from corral.providers.rag.search import ContextMaterial, Retrieval
from corral.providers.rag.selection import ContextHit


@dataclass(frozen=True, slots=True)
class FoundContext:
    """A context, and the hits it was made from.

    Attributes:
        hits: The hits selected for the context, best first. The metadata of the result lists the
            ones that fitted.
        result: The context.
    """

    hits: list[ContextHit]
    result: RAGQueryResult


class RagTool:
    """The RAG tool, for server, command line and benchmark.

    Args:
        library: The vector DBs and models; usually a `Stack`.
        limits: Limits of one request; None for the defaults.
    """

    def __init__(self, library: Library, *, limits: Limits | None = None) -> None:
        self.library = library
        self._limits = limits or Limits()
        self.retrieval = Retrieval(library, self._limits.max_k)

    def on(self, library: Library) -> Self:
        """Return a copy of this tool with another library, such as a user's view of the stack."""
        return type(self)(library, limits=self._limits)

    async def query(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig | None = None,
    ) -> RAGQueryResult:
        """Return the context that answers a question from one or several vector DBs.

        Args:
            content: The question. The query generator joins several texts with its separator. If it
                is empty and `filters` or `order_by` is set, the context lists the chunks that pass.
            vector_db_ids: The vector DBs to search; see `Retrieval.search_many` for several.
            config: Options for searching and assembling; None for the defaults.

        Raises:
            NotFound: One of the vector DBs does not exist.
            InvalidRequest: An option is invalid, a language model is not configured, or the request
                has too many vector DBs.
            ProviderError: An embedder, a language model or a backend failed.
        """
        return (await self.find(content, vector_db_ids, config or RAGQueryConfig())).result

    async def find(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig,
        *,
        first_marker: int | None = None,
    ) -> FoundContext:
        """Return a context and its hits, as `query` does.

        Args:
            first_marker: See `assemble`.
        """
        record_question(content if isinstance(content, str) else "\n".join(content), vector_db_ids)
        limit = self._limits.max_vector_dbs_per_query
        with span("tool"):
            if len(vector_db_ids) > limit:
                raise InvalidRequest(
                    f"The request has {len(vector_db_ids)} vector DBs.",
                    hint=f"At most {limit} are allowed (server.limits.max_vector_dbs_per_query).",
                    field="vector_db_ids",
                )
            material = await self.retrieval.search_for_context(content, vector_db_ids, config)
            context = await _context(material, first_marker)
        for each in context.metadata.get("included_chunks", ()):
            merged = (other["chunk_id"] for other in each.get("merged", ()))
            chunk_ids = [each["chunk_id"], *merged, *each.get("expanded", ())]
            record_chunks(each["vector_db_id"], chunk_ids)
        metadata = {**context.metadata, **_search_metadata(material)}
        items = None if context.items is None else [TextItem(text=item) for item in context.items]
        return FoundContext(
            material.selection.hits, RAGQueryResult(content=items, metadata=metadata)
        )


async def _context(material: ContextMaterial, first_marker: int | None) -> Context:
    plan = material.plan
    with span("context") as traced:
        context = await asyncio.to_thread(
            assemble,
            plan.question.text,
            material.selection,
            plan.request,
            plan.tokenizer,
            material.neighbors,
            first_marker,
        )
        traced["tokens"] = int(context.metadata.get("token_count", 0))
    return context


def _search_metadata(material: ContextMaterial) -> dict[str, Any]:
    """Return the search's part of the metadata; with evidence and steps if `explain` is set."""
    retrieved = material.retrieved
    metadata: dict[str, Any] = {"notes": retrieved.notes} if retrieved.notes else {}
    if retrieved.evidence.confidence is not None:
        metadata["confidence"] = retrieved.evidence.confidence
    if retrieved.reason is not None:
        metadata["reason"] = retrieved.reason
    if material.plan.request.explain:
        metadata["evidence"] = asdict(retrieved.evidence)
        metadata["steps"] = {
            name: list(map(asdict, steps)) for name, steps in retrieved.steps.items()
        }
    if material.plan.question.generated is not None:
        metadata["generated_query"] = material.plan.question.generated
    return metadata
