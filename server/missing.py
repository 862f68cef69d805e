"""Hints for a missing required field, if the server knows the possible values."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from corral.api.findings import Location
from corral.providers.stack.stack import Stack
from corral.server.routing import stack_of
from corral.server.validation import InvalidBody

MAX_LISTED = 10
"""Maximum number of values in a hint."""

_VECTOR_DBS = ("vector_db_id", "vector_db_ids", "knowledge_id")
_FIXED = {
    ("/v1/vector-dbs", "vector_db_id"): "Send a name for the new vector DB.",
    ("/copy", "target_id"): "Send a name for the copy.",
    ("/v1/files", "purpose"): "Send assistants to attach the file to a vector store.",
    ("/files", "file_id"): "Send the id that POST /v1/files returned; GET /v1/files lists all.",
}
"""Hints by the end of a path and the field."""


async def add_values(refused: InvalidBody, request: Request) -> None:
    """Set the hint of a refusal: the possible values of its first finding, a missing field."""
    first = refused.details[0] if refused.details else {}
    if first.get("type") == "missing":
        place = tuple(first["loc"])
        refused.hint = await _hint(place, request.url.path, stack_of(request.scope))


async def _hint(place: Location, path: str, stack: Stack) -> str:
    field = str(place[-1])
    for (ending, name), hint in _FIXED.items():
        if place == (name,) and path.endswith(ending):
            return hint
    if field in _VECTOR_DBS:
        known = [each.identifier for each in await stack.vector_dbs()]
        none = "No vector DB is registered: register one with POST /v1/vector-dbs."
        return _one_of(known, "GET /v1/vector-dbs", none)
    if field == "model":
        models = {
            "rerank": stack.rerank_models,
            "query_generator_config": stack.inference_models,
            "auto_filters": stack.inference_models,
        }
        parent = str(place[-2]) if len(place) > 1 else ""
        known = [name for _, name in models[parent]()] if parent in models else _embedding(stack)
        return _one_of(known, "GET /v1/models", "No such model is configured in run.yaml.")
    return ""


def _embedding(stack: Stack) -> list[str]:
    return [info.model for _, info in stack.models()]


def _one_of(values: Sequence[str], route: str, none: str) -> str:
    if not values:
        return none
    more = f" {route} lists all {len(values)}." if len(values) > MAX_LISTED else ""
    return f"Send one of: {', '.join(values[:MAX_LISTED])}.{more}"
