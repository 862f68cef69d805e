"""Advice for routes that other servers have and Corral lacks."""

from __future__ import annotations

import re

from fastapi import Request
from starlette.routing import Match

_CHAT = (
    "For an answer, use POST /v1/responses or POST /v1/chat/completions; for a context, POST "
    "/v1/tool-runtime/rag-tool/query; for tools, GET /v1/tools/openai or /mcp."
)
_CONVERSATION = f"A conversation is at POST /v1/conversations. {_CHAT}"
_INGEST = (
    "To add documents, use POST /v1/tool-runtime/rag-tool/insert, POST /v1/jobs, or POST /v1/files "
    "and POST /v1/vector_stores/{vector_store_id}/files."
)
_SEARCH = (
    "To search, use POST /v1/vector-io/query or POST /v1/vector_stores/{vector_store_id}/search; "
    "for a context, POST /v1/tool-runtime/rag-tool/query."
)
_EMBED = "To embed texts, use POST /v1/embeddings."
_RERANK = "To re-rank, use POST /v1/rerank, POST /v2/rerank or POST /rerank."
_FILES = "To upload a file, use POST /v1/files."
_BATCHES = "To embed or ingest many texts, use POST /v1/embeddings or POST /v1/jobs."
_TOOLS = "For tools, use GET /v1/tool-runtime/list-tools, GET /v1/tools/openai or /mcp."
_VECTOR_DBS = "A collection is a vector DB here: see GET /v1/vector-dbs and POST /v1/vector-dbs."
_HEALTH = "See GET /v1/health and GET /v1/ready."
_MODELS = "See GET /v1/models."
_MCP = "The Model Context Protocol is at /mcp, as Streamable HTTP."
_NOT_SERVED = "Corral retrieves, and serves vector stores, files, embeddings and re-ranking only."

INSTEAD: dict[str, str] = {
    # OpenAI, and Llama Stack (OGX) under the same names
    "/v1/completions": _CHAT,
    "/v1/messages": _CHAT,
    "/v1/realtime": _CHAT,
    "/v1/assistants": _CONVERSATION,
    "/v1/threads": _CONVERSATION,
    "/v1/uploads": _FILES,
    "/v1/batches": _BATCHES,
    "/v1/moderations": _NOT_SERVED,
    "/v1/images": _NOT_SERVED,
    "/v1/audio": _NOT_SERVED,
    "/v1/videos": _NOT_SERVED,
    "/v1/fine_tuning": _NOT_SERVED,
    "/v1/evals": _NOT_SERVED,
    "/v1/containers": _NOT_SERVED,
    "/v1/organization": _NOT_SERVED,
    # Llama Stack and OGX
    "/v1/agents": _CONVERSATION,
    "/v1/inference/embeddings": _EMBED,
    "/v1/inference/rerank": _RERANK,
    "/v1/inference": _CHAT,
    "/v1/toolgroups": _TOOLS,
    "/v1/tools": _TOOLS,
    "/v1/tool-runtime": _TOOLS,
    "/v1/connectors": _TOOLS,
    "/v1/inspect": "See GET /v1/version and GET /openapi.json.",
    "/v1/memory": f"{_INGEST} {_SEARCH}",
    "/v1/memory-banks": _VECTOR_DBS,
    "/v1/safety": _NOT_SERVED,
    "/v1/shields": _NOT_SERVED,
    "/v1/datasets": _NOT_SERVED,
    "/v1/datasetio": _NOT_SERVED,
    "/v1/scoring": _NOT_SERVED,
    "/v1/scoring-functions": _NOT_SERVED,
    "/v1/eval": _NOT_SERVED,
    "/v1/post-training": _NOT_SERVED,
    "/v1/prompts": _NOT_SERVED,
    "/v1/telemetry": "For metrics, use GET /metrics; server.tracing in run.yaml sends traces.",
    # Ollama
    "/api/chat": _CHAT,
    "/api/generate": _CHAT,
    "/api/embed": _EMBED,
    "/api/embeddings": _EMBED,
    "/api/tags": _MODELS,
    # Cohere, Text Embeddings Inference
    "/v1/embed": _EMBED,
    "/v2/embed": _EMBED,
    "/v2/chat": _CHAT,
    "/embed": _EMBED,
    "/generate": _CHAT,
    "/info": "See GET /v1/version and GET /v1/models.",
    # Vector databases
    "/api/v1/collections": _VECTOR_DBS,
    "/api/v2": _VECTOR_DBS,
    "/v1/collections": _VECTOR_DBS,
    "/v1/indexes": _VECTOR_DBS,
    "/indexes": _VECTOR_DBS,
    # Plausible names that no server above has
    "/v1/documents": f"Stored documents: GET /v1/vector-dbs/{{vector_db_id}}/documents. {_INGEST}",
    "/v1/ingest": _INGEST,
    "/v1/insert": _INGEST,
    "/v1/upload": _FILES,
    "/ingest": _INGEST,
    "/insert": _INGEST,
    "/upload": _FILES,
    "/v1/query": _SEARCH,
    "/v1/search": _SEARCH,
    "/v1/retrieve": _SEARCH,
    "/v1/rag": _SEARCH,
    "/v1/ask": _SEARCH,
    "/query": _SEARCH,
    "/search": _SEARCH,
    "/retrieve": _SEARCH,
    "/ask": _SEARCH,
    "/v1/mcp": _MCP,
    "/sse": _MCP,
    "/messages": _MCP,
    "/healthz": _HEALTH,
    "/livez": _HEALTH,
    "/readyz": _HEALTH,
}
"""Advice for paths that start with these segments; the longest match wins."""

_PREFIX = re.compile(r"^/(?:v1/openai/v1|v1alpha|v1beta)(?=/)")


def instead_of(request: Request) -> str:
    """Return advice for a request to a route that does not exist; "" if there is none."""
    path = request.url.path
    beginning = _PREFIX.sub("/v1", path)
    while beginning:
        if instead := INSTEAD.get(beginning):
            return instead
        beginning = beginning.rpartition("/")[0]
    for near in _nearest(path):
        if _is_served(request, near):
            hint = " A client of OpenAI needs a base_url that ends in /v1."
            return f"Did you mean {near}?{hint if near == f'/v1{path}' else ''}"
    return ""


def _nearest(path: str) -> list[str]:
    """Return the paths that differ only in the version, slashes, or hyphens of the first part."""
    first, slash, rest = path.removeprefix("/v1/").partition("/")
    spellings = [first.replace("_", "-"), first.replace("-", "_")]
    near = [f"/v1{path}", path.replace("/v1/v1/", "/v1/", 1), path.rstrip("/")]
    near += [f"/v1/{spelled}{slash}{rest}" for spelled in spellings]
    return [each for each in near if each != path]


def _is_served(request: Request, path: str) -> bool:
    scope = {**request.scope, "path": path, "raw_path": path.encode()}
    return any(route.matches(scope)[0] is not Match.NONE for route in request.app.routes)
