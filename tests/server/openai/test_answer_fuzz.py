"""Whatever a body of an answer holds, the reply is an answer or a 4xx."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..harness import InProcess

TOOL = {"type": "file_search", "vector_store_ids": ["db"], "max_num_results": 2, "filters": None}
FUNCTION = {"type": "function", "name": "f", "parameters": {}}
PART = {"type": "input_text", "text": "lamb"}
CITED = {"type": "file_citation", "index": 2, "chunk_id": "c", "vector_store_id": "db"}
RESULT = {"file_id": "a", "filename": "b", "score": 1, "text": "x", "attributes": {}, "page": 1}
ITEMS = [
    {"role": "user", "content": [PART]},
    {"type": "file_search_call", "id": "fs_1", "queries": ["x"], "results": [RESULT]},
    {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "abc", "annotations": [CITED]}],
    },
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "x"},
    {"type": "message", "role": "user", "content": "lamb"},
]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"model": "extractive", "input": ITEMS, "tools": [TOOL, FUNCTION],
                       "tool_choice": {"type": "file_search"}, "metadata": {"a": "b"},
                       "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
    ("/v1/responses", {"model": "corral/db", "input": "lamb", "stream": True,
                       "conversation": "conv_x", "previous_response_id": "resp_x"}),
    ("/v1/chat/completions", {"model": "corral/db", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "lamb"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "lamb"}], "tools": [], "stream": False}),
    ("/v1/chat/completions", {"model": "extractive", "tools": [TOOL], "messages": [
        {"role": "system", "content": "x"}, {"role": "user", "content": "lamb"}]}),
    ("/v1/conversations", {"items": ITEMS, "metadata": {"a": "b"}}),
]  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 1e300, "", "x", "\ud800", "\0", "a" * 3000, [], [None], [[]], {},
    {"": ""}, {"type": "x"}, {"type": "message"}, ["db"], "db", "user", "input_file", "conv_\ud800",
]  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a value with one place changed, left out or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(sorted(value))
        rest = {key: each for key, each in value.items() if key != name}
        if rng.random() < 0.15:
            return rest
        if rng.random() < 0.05:
            return {**value, rng.choice(["id", "type", "x"]): rng.choice(ODD)}
        return {**rest, name: mutated(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """The app with a vector DB."""
    with InProcess(tmp_path) as started:
        started.register()
        started.insert("A lamb eats grass.")
        yield started


@pytest.mark.parametrize("seed", range(3))
def test_no_body_is_a_failure(app: InProcess, seed: int) -> None:
    """No status is 5xx, and a reply is JSON or a stream.

    If this fails: a client's mistake is logged as the server's, and its user reads nothing of it.
    """
    rng = random.Random(seed)
    statuses = set()
    for _ in range(300):
        path, body = rng.choice(BODIES)
        for _ in range(rng.choice([0, 1, 1, 2])):
            body = mutated(body, rng)
        reply = app.send("POST", path, body)
        statuses.add(reply.status_code)
        assert reply.status_code < 500, (path, body, reply.text)
        assert "response.failed" not in reply.text, (path, body, reply.text)
    assert {200, 400, 404} <= statuses


@pytest.mark.parametrize(
    "path",
    ["responses/{}", "responses/{}/input_items", "conversations/{}", "conversations/{}/items"],
)
@pytest.mark.parametrize("name", ["%ff", "%00", "conv_%ed%a0%80", "a%2Fb", "%20"])
def test_odd_ids_are_not_found(app: InProcess, path: str, name: str) -> None:
    """An id that nothing can have is a 4xx."""
    assert app.send("GET", f"/v1/{path.format(name)}").status_code in (400, 404)
