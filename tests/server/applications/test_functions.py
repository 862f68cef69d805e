"""The tools as functions of OpenAI's APIs: strict schemas, and calls that are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..harness import InProcess, Json, run_config

KNOWN_KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
    "$ref", "$defs", "description", "minimum", "maximum", "minItems", "maxItems", "pattern",
    "format",
}  # fmt: skip
"""What strict calls accept, by OpenAI's documentation of structured outputs."""


def check_strict(schema: Json, where: str) -> None:
    """Check the rules of strict calls in a schema and all below it."""
    assert set(schema) <= KNOWN_KEYWORDS, (where, set(schema) - KNOWN_KEYWORDS)
    assert {"type", "anyOf", "$ref"} & set(schema), (where, "says no type")
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False, where
        assert sorted(schema["required"]) == sorted(schema["properties"]), where
    for name, part in {**schema.get("properties", {}), **schema.get("$defs", {})}.items():
        check_strict(part, f"{where}.{name}")
    for part in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        check_strict(part, f"{where}[]")


def call(app: InProcess, name: str, **arguments: Any) -> Any:
    """Call a function as a model does and return what the message says."""
    body = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    message = app.ok("POST", "/v1/tools/openai/call", body)
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    return json.loads(message["content"])


def test_the_schemas_are_strict(tmp_path: Path) -> None:
    """Every function of every tool keeps the rules of strict calls.

    If this fails: OpenAI's API refuses the whole request.
    """
    with InProcess(tmp_path, run_config(server={"tools": {"writes": True}})) as app:
        tools = app.ok("GET", "/v1/tools/openai")["data"]
    assert {tool["function"]["name"] for tool in tools} >= {"search", "insert", "delete"}
    for tool in tools:
        assert (tool["type"], tool["function"]["strict"]) == ("function", True)
        check_strict(tool["function"]["parameters"], tool["function"]["name"])
    told = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    assert told["list_vector_dbs"]["description"] == "No arguments."


def test_calls_are_answered(app: InProcess) -> None:
    """A strict call, which sends null for what it leaves out, is served."""
    app.register("notes")
    app.rag_insert({"document_id": "fence.md", "content": "A fence keeps cattle in."}, db="notes")
    found = call(
        app, "search", query="cattle", vector_db_ids=None, mode=None, filters=None,
        max_results=None,
    )  # fmt: skip
    assert found["results"][0]["id"] == "notes/fence.md"
    assert call(app, "fetch", id="notes/fence.md", offset=None)["text"]


def test_wrong_calls_are_answered_too(app: InProcess) -> None:
    """An unknown function, bad arguments and an unknown scope say to the model what to do."""
    assert "Known: search" in call(app, "sing")["error"]
    assert "server.tools.writes" in call(app, "delete")["error"]
    assert "query" in call(app, "search")["error"]
    assert "Known: none" in call(app, "search", query="x", vector_db_ids=["a"])["error"]
    body = {"id": "1", "function": {"name": "search", "arguments": "{"}}
    message = app.ok("POST", "/v1/tools/openai/call", body)
    assert "JSON object" in message["content"]
