"""The RAG tool: ask a question, get a context within a token budget."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from corral.api.errors import InvalidRequest, NotFound
from corral.api.library import Library
from corral.api.rag import (
    RAGQueryConfig,
    RAGQueryResult,
)
from corral.api.recording import record_chunks, record_question
from corral.api.spans import span
from corral.api.wire import TextItem
from corral.providers.base.config import Limits
from corral.providers.rag.context import make_context
from corral.providers.rag.listing import is_listing, list_for_context
from corral.providers.rag.plan import Plan, no_tokenizer
from corral.providers.rag.query_generator import generate_query
from corral.providers.rag.retrieval import Indexes, Retrieval, Retrieved
from corral.providers.text.tokens import Tokenizer, own_tokenizer, tokenizer


class RagTool:
    """Retrieval's entry for server, command line and benchmark.

    Args:
        library: Where the vector DBs are; a `Stack`.
        limits: How much one request may ask for.
    """

    def __init__(self, library: Library, *, limits: Limits | None = None) -> None:
        self.library = library
        self._limits = limits or Limits()
        self.retrieval = Retrieval(library, self._limits.max_k)

    def on(self, library: Library) -> Self:
        """Return this tool on another library, such as one principal's view of the stack."""
        other = copy.copy(self)
        other.library = library
        other.retrieval = Retrieval(library, self._limits.max_k)
        return other

    async def query(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig | None = None,
    ) -> RAGQueryResult:
        """Return the context that answers a question from one or several vector DBs.

        Args:
            content: The question. Several texts are joined by the query generator's separator.
                Empty, with `filters` or `order_by`: the context is made of the chunks that pass.
            vector_db_ids: Where to look; with several, hits are merged by rank.
            config: How to retrieve and assemble; the defaults where absent.

        Raises:
            NotFound: One of the vector DBs does not exist.
            InvalidRequest: A bad setting, a language model that is not configured, or too many
                vector DBs.
            ProviderError: An embedder, a language model or a backend failed.
        """
        asked = content if isinstance(content, str) else "\n".join(content)
        record_question(asked, vector_db_ids)
        with span("tool"):
            result = await self._answered(content, vector_db_ids, config or RAGQueryConfig())
        for each in result.metadata.get("included_chunks", ()):
            merged = (other["chunk_id"] for other in each.get("merged", ()))
            chunk_ids = [each["chunk_id"], *merged, *each.get("expanded", ())]
            record_chunks(each["vector_db_id"], chunk_ids)
        return result

    async def _answered(
        self, content: str | Sequence[str], vector_db_ids: Sequence[str], config: RAGQueryConfig
    ) -> RAGQueryResult:
        most = self._limits.max_vector_dbs_per_query
        if len(vector_db_ids) > most:
            raise InvalidRequest(
                f"The request has {len(vector_db_ids)} vector DBs.",
                hint=f"At most {most} are allowed (server.limits.max_vector_dbs_per_query).",
                field="vector_db_ids",
            )
        indexes = await self.retrieval.open(vector_db_ids)
        while True:
            try:
                return await self._answer(content, config, indexes)
            except NotFound as error:
                indexes = await self.retrieval.reopened(indexes, error)

    async def _answer(
        self, content: str | Sequence[str], config: RAGQueryConfig, indexes: Indexes
    ) -> RAGQueryResult:
        plan = await self.retrieval.plan(indexes, config, config.max_chunks)
        counter = await self._tokenizer(plan)
        question = await generate_query(content, config, self.library)
        if is_listing(question.searched, config):
            hits, steps, selection = await list_for_context(plan, indexes)
            found = Retrieved(hits, steps)
        else:
            queries = await self.retrieval.queries(plan, question.searched)
            found, selection = await self.retrieval.fill(plan, indexes, queries)
        with span("context") as seen:
            context = await make_context(question.asked, plan, indexes, selection, counter)
            seen["tokens"] = int(context.metadata.get("token_count", 0))
        items = None if context.items is None else [TextItem(text=item) for item in context.items]
        told = _told(found, config)
        if question.generated is not None:
            told["generated_query"] = question.generated
        return RAGQueryResult(content=items, metadata={**context.metadata, **told})

    async def _tokenizer(self, plan: Plan) -> Tokenizer:
        """Return the tokenizer that counts the budget."""
        if plan.tokenizer_model is None:
            return tokenizer(plan.request.tokenizer)
        tokens = (await self.library.embedder(plan.tokenizer_model)).tokenizer
        if tokens is None:
            raise no_tokenizer(
                f"The embedding model {plan.tokenizer_model!r} has no tokenizer here."
            )
        return own_tokenizer(tokens)


def _told(found: Retrieved, config: RAGQueryConfig) -> dict[str, Any]:
    """Return what a search says beside its hits: notes, confidence, and its steps if asked."""
    told: dict[str, Any] = {"notes": found.notes} if found.notes else {}
    if found.evidence.confidence is not None:
        told["confidence"] = found.evidence.confidence
    if found.reason is not None:
        told["reason"] = found.reason
    if config.explain:
        told["evidence"] = asdict(found.evidence)
        told["steps"] = {name: list(map(asdict, each)) for name, each in found.steps.items()}
    return told
