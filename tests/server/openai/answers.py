"""A server with a vector DB of notes and a scripted language model, for the tests of answers."""

from __future__ import annotations

from typing import Any

import httpx

from corral.providers.base.config import RunConfig

from ...chat_service import USAGE, ChatService, Script, piece
from ..harness import Json, run_config

NOTES = {
    "fence.md": "A fence keeps the sheep in. It is built of oak.",
    "keys.md": "API keys are rotated every ninety days.",
    "gate.md": "The gate of the fence is painted green.",
}
QUESTION = "What keeps the sheep in?"


def with_model(service: ChatService, **sections: Any) -> RunConfig:
    """Return the configuration with the service's model `tiny`, and the one that quotes."""
    config: Json = {"base_url": service.url, "models": ["tiny", "seeing"], "max_retries": 0}
    config["image_models"] = ["seeing"]
    inference = [
        {"provider_id": "llm", "provider_type": "remote::chat", "config": config},
        {"provider_id": "extractive", "provider_type": "inline::extractive"},
    ]
    providers = run_config().model_dump(mode="json")["providers"]
    return run_config(providers={**providers, "inference": inference}, **sections)


def add_notes(url: str, vector_db_id: str = "notes", **texts: str) -> None:
    """Register a vector DB, and insert documents: the notes unless there are others."""
    with httpx.Client(base_url=url, timeout=60) as http:
        body: Json = {"vector_db_id": vector_db_id, "embedding_model": "hashing"}
        http.post("/v1/vector-dbs", json=body).raise_for_status()
        documents = [
            {"document_id": name, "content": text, "metadata": {"title": name}}
            for name, text in (texts or NOTES).items()
        ]
        inserted = {
            "vector_db_id": vector_db_id,
            "documents": documents,
            "chunk_size_in_tokens": 64,
        }
        http.post("/v1/tool-runtime/rag-tool/insert", json=inserted).raise_for_status()


def searching(*queries: str, call_id: str = "call_1") -> Script:
    """Return the script of a model that calls the search, with its arguments in two pieces."""
    arguments = '{"queries": [' + ", ".join(f'"{query}"' for query in queries) + "]}"
    return calling("file_search", arguments, call_id)


def calling(name: str, arguments: str, call_id: str = "call_1") -> Script:
    """Return the script of a model that calls a function."""
    half = len(arguments) // 2
    begun = {"index": 0, "id": call_id, "type": "function", "function": {"name": name}}
    halves = (arguments[:half], arguments[half:])
    pieces = [{"index": 0, "function": {"arguments": part}} for part in halves]
    return Script(
        [
            piece(role="assistant", tool_calls=[begun]),
            *(piece(tool_calls=[each]) for each in pieces),
            piece(finish_reason="tool_calls"),
            {"choices": [], "usage": USAGE},
        ]
    )
