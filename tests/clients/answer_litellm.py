"""LiteLLM's side of a test: responses with file_search, and a vector DB as a model.

Run with its folder on PYTHONPATH and the address of a Corral server. Prints its answers as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import litellm

QUESTION = "What keeps the sheep in?"
ASKED: dict[str, Any] = {
    "model": "openai/tiny",
    "input": QUESTION,
    "tools": [{"type": "file_search", "vector_store_ids": ["notes"]}],
    "include": ["file_search_call.results"],
}


def main(address: str) -> dict[str, Any]:
    """Return an answer and a streamed one, of a response and of a chat."""
    place: dict[str, Any] = {"api_base": f"{address}/v1", "api_key": "none"}
    whole: Any = litellm.responses(**ASKED, **place)
    deltas, completed = [], None
    for event in litellm.responses(**ASKED, **place, stream=True):
        deltas.append(event.delta if event.type == "response.output_text.delta" else "")
        completed = event.response if event.type == "response.completed" else completed
    assert completed is not None
    streamed = shown(completed.output)
    assert "".join(deltas) == streamed["text"]

    chat: dict[str, Any] = {
        "model": "openai/corral/notes",
        "messages": [{"role": "user", "content": QUESTION}],
        **place,
    }
    message = litellm.completion(**chat).choices[0].message
    chunks = litellm.completion(**chat, stream=True)
    return {
        "whole": shown(whole.output),
        "streamed": streamed,
        "chat": message.content,
        "chat_streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "chat_fields": message.provider_specific_fields,
    }


def shown(output: Sequence[Any]) -> dict[str, Any]:
    """Return the text of an output, the files that it cites, and the results of its search."""
    search, message = output
    (part,) = message.content
    return {
        "text": part.text,
        "cited": [citation.filename for citation in part.annotations],
        "results": [result.text for result in search.results],
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 - the test reads it
