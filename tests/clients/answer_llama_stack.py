"""The newest Llama Stack client's side of a test: responses with file_search, and conversations.

Run with its folder on PYTHONPATH and the address of a Corral server. Prints its answers as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import llama_stack_client

ASKED: dict[str, Any] = {
    "model": "tiny",
    "input": "What keeps the sheep in?",
    "tools": [{"type": "file_search", "vector_store_ids": ["notes"]}],
    "include": ["file_search_call.results"],
}


def main(address: str) -> dict[str, Any]:
    """Return an answer, a streamed one, and one in a conversation."""
    client: Any = llama_stack_client.LlamaStackClient(base_url=address, timeout=60)
    whole = validated(client.responses.create(**ASKED))
    assert whole.output_text == shown(whole.output)["text"]
    events = [validated(event) for event in client.responses.create(**ASKED, stream=True)]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    streamed = shown(events[-1].response.output)
    assert "".join(deltas) == streamed["text"]

    conversation = validated(client.conversations.create(metadata={"a": "b"}))
    assert client.conversations.retrieve(conversation.id).metadata == {"a": "b"}
    client.responses.create(**ASKED, conversation=conversation.id)
    items = client.conversations.items.list(conversation.id, order="desc")
    inputs = client.responses.input_items.list(whole.id)
    assert [item.type for item in inputs.data] == ["message"]
    assert validated(client.responses.retrieve(whole.id)).id == whole.id
    listed = [each.id for each in client.responses.list(limit=2)]
    assert (len(listed), listed[-1]) == (3, whole.id)
    assert client.responses.delete(whole.id).deleted
    return {
        "whole": shown(whole.output),
        "streamed": streamed,
        "conversation": [validated(item).type for item in items],
    }


def validated(value: Any) -> Any:
    """Return an object of the client, validated: it builds its objects without looking."""
    type(value).model_validate(value.to_dict(), strict=True)
    return value


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
