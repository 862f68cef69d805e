"""The RAG tool: insert documents, query for a context; and the tool as agents see it."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Query

from corral.api.rag import RAGQueryConfig, RAGQueryResult
from corral.providers.base.config import Limits
from corral.providers.rag.tool import RagTool
from corral.server.access.acting import acting
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.limits import check_max_chunks
from corral.server.llama_stack.wire import (
    KNOWLEDGE_SEARCH,
    RAG_TOOL_GROUP,
    InsertDocumentsReply,
    InsertDocumentsRequest,
    InvokeToolRequest,
    RAGQueryRequest,
    ToolDef,
    ToolInvocationResult,
    ToolList,
    ToolParameter,
)
from corral.server.routing import (
    BaseUrlOf,
    ContractRoute,
    InsertRoute,
    LimitsOf,
    RagToolOf,
    StackOf,
)
from corral.server.tools.places import Place

router = APIRouter(
    prefix="/v1/tool-runtime", tags=["RAG tool"], route_class=ContractRoute, responses=ERRORS
)
inserts = APIRouter(
    prefix="/v1/tool-runtime", tags=["RAG tool"], route_class=InsertRoute, responses=ERRORS
)

TOOL = ToolDef(
    name=KNOWLEDGE_SEARCH,
    description="Search for information in a database.",
    parameters=[
        ToolParameter(
            name="query",
            parameter_type="string",
            description="What to search for: a question in natural language, or words.",
        ),
        ToolParameter(
            name="vector_db_ids",
            parameter_type="array",
            description="The vector DBs to search.",
        ),
        ToolParameter(
            name="query_config",
            parameter_type="object",
            description="How to retrieve and assemble, as in /v1/tool-runtime/rag-tool/query.",
            required=False,
        ),
    ],
)


@inserts.post("/rag-tool/insert", summary="Insert documents")
async def insert(request: InsertDocumentsRequest, stack: StackOf) -> InsertDocumentsReply:
    """Split documents, embed their chunks and store them; an existing document is replaced.

    At most `server.limits.max_concurrent_inserts` inserts run at once on each vector_io provider;
    others wait.
    """
    report = await stack.ingestion.insert(
        request.documents,
        request.vector_db_id,
        request.chunk_size_in_tokens,
        request.overlap_in_tokens,
        request.split_on,
        skip_unchanged=request.skip_unchanged,
        same_origin_only=request.same_origin_only,
    )
    return InsertDocumentsReply(
        chunks=report.chunks,
        unchanged=report.unchanged,
        unread={name: list(what) for name, what in report.unread.items()},
        notes=report.notes,
    )


@router.post("/rag-tool/query", summary="Ask a question", dependencies=[READER])
async def query(
    request: RAGQueryRequest,
    stack: StackOf,
    rag_tool: RagToolOf,
    limits: LimitsOf,
    base_url: BaseUrlOf,
) -> RAGQueryResult:
    """Return a context of at most `max_tokens_in_context` tokens, and a list of what is in it."""
    tool = rag_tool.on(acting(stack, request.as_user))
    result = await _ask(tool, limits, request.content, request.vector_db_ids, request.query_config)
    return _with_pages(result, base_url)


@router.get("/list-tools", summary="List the tools")
async def list_tools(
    tool_group_id: str | None = Query(None, description="Only the tools of this group."),
) -> ToolList:
    """Return the only tool, `knowledge_search`. Remote (MCP) endpoints are not queried."""
    return ToolList(data=[TOOL] if tool_group_id in (None, RAG_TOOL_GROUP) else [])


@router.post("/invoke", summary="Invoke a tool", dependencies=[READER])
async def invoke(
    request: InvokeToolRequest, rag_tool: RagToolOf, limits: LimitsOf, base_url: BaseUrlOf
) -> ToolInvocationResult:
    """Run `knowledge_search`; the context is in `content`, its sources in `metadata`."""
    arguments = request.kwargs
    result = await _ask(
        rag_tool,
        limits,
        arguments.query,
        arguments.vector_db_ids,
        arguments.query_config,
        at="kwargs.",
    )
    result = _with_pages(result, base_url)
    return ToolInvocationResult(content=result.content or [], metadata=result.metadata)


def _with_pages(result: RAGQueryResult, base_url: str) -> RAGQueryResult:
    """Return a context with a URL in each citation: of the document, or of its page here."""
    if "citations" not in result.metadata:
        return result
    cited = [
        {**each, "url": each.get("url") or Place.cited(each).url(base_url, each["chunk_ids"])}
        for each in result.metadata["citations"]
    ]
    return result.model_copy(update={"metadata": {**result.metadata, "citations": cited}})


async def _ask(
    rag_tool: RagTool,
    limits: Limits,
    question: Sequence[str],
    vector_db_ids: Sequence[str],
    config: RAGQueryConfig | None,
    *,
    at: str = "",
) -> RAGQueryResult:
    """Ask the RAG tool within the limits; `at` is the path of the fields in the request."""
    config = config or RAGQueryConfig()
    check_max_chunks(config.max_chunks, limits, field=f"{at}query_config.max_chunks")
    return await rag_tool.query(question, vector_db_ids, config)
