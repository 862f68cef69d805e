"""Search in a vector store."""

from __future__ import annotations

from fastapi import APIRouter

from corral.api.document_names import filename_of
from corral.api.errors import InvalidRequest
from corral.api.hits import Hit, QueryChunksResponse
from corral.api.options import RetrievalOptions, checked
from corral.api.rag import LLMQueryGenerator
from corral.providers.rag.query_generator import generate_query
from corral.providers.stack.stack import Stack
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.openai.citing import attributes_of, file_id_of
from corral.server.openai.objects import SearchPage, SearchResult, TextContent
from corral.server.openai.requests import SearchVectorStore
from corral.server.openai.routes import OpenAIRoute, StoreOf
from corral.server.routing import RetrievalOf, StackOf

router = APIRouter(
    prefix="/v1/vector_stores", tags=["Vector stores"], route_class=OpenAIRoute, responses=ERRORS
)

REWRITE = (
    "Rewrite the question below as one short search query for a collection of documents. Keep "
    "names, numbers and quoted phrases as they are. Answer with the query alone.\n\n{query}"
)


@router.post("/{vector_store_id:id}/search", summary="Search a vector store", dependencies=[READER])
async def search(
    request: SearchVectorStore, store: StoreOf, stack: StackOf, retrieval: RetrievalOf
) -> SearchPage:
    """Return the best chunks of the store's files, best first, each with its score in [0, 1]."""
    given = [request.query] if isinstance(request.query, str) else request.query
    queries = await _rewritten(given, stack) if request.rewrite_query else given
    reply = await retrieval.search(
        store.identifier,
        queries[0],
        k=request.max_num_results,
        options=_options(request, queries[1:]),
    )
    return _page(reply, queries, explain=request.explain)


def _options(request: SearchVectorStore, more: list[str]) -> RetrievalOptions:
    shared = RetrievalOptions.model_fields.keys() & SearchVectorStore.model_fields.keys()
    options = {name: getattr(request, name) for name in shared}
    return checked(RetrievalOptions, {**options, "mode": request.search_mode, "queries": more})


async def _rewritten(queries: list[str], stack: Stack) -> list[str]:
    """Let the first configured language model rewrite the queries.

    Raises:
        InvalidRequest: No language model is configured.
        ProviderError: The model failed, or returned no query.
    """
    models = stack.inference_models()
    if not models:
        raise InvalidRequest(
            "Query rewriting is not available: no language model is configured.",
            hint="Leave rewrite_query out, or add one under providers.inference in run.yaml.",
            field="rewrite_query",
        )
    generator = LLMQueryGenerator(type="llm", model=models[0][1], template=REWRITE)
    return [(await generate_query(query, generator, stack)).query for query in queries]


def _page(reply: QueryChunksResponse, queries: list[str], *, explain: bool) -> SearchPage:
    return SearchPage(
        search_query=queries,
        data=[_result(hit, explain=explain) for hit in reply.hits],
        confidence=reply.confidence,
        reason=reply.reason,
        notes=reply.notes,
        steps=reply.steps if explain else None,
    )


def _result(hit: Hit, *, explain: bool) -> SearchResult:
    return SearchResult(
        file_id=file_id_of(hit.chunk),
        filename=filename_of(hit.chunk),
        score=hit.score,
        attributes=attributes_of(hit.chunk.metadata),
        content=[TextContent(text=hit.chunk.content)],
        explanation=hit.explanation if explain else None,
    )
