"""The newest OGX client's side of a test: responses with file_search, and conversations.

Run with its folder on PYTHONPATH and the address of a Corral server. Prints its answers as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import ogx_client

ASKED: dict[str, Any] = {
    "model": "tiny",
    "input": "What keeps the sheep in?",
    "tools": [{"type": "file_search", "vector_store_ids": ["notes"]}],
    "include": ["file_search_call.results"],
}


def main(address: str) -> dict[str, Any]:
    """Return an answer, a streamed one, and one in a conversation."""
    client: Any = ogx_client.OgxClient(base_url=address)
    whole = client.responses.create(**ASKED)
    events = list(client.responses.create(**ASKED, stream=True))
    raw = [event for event in events if isinstance(event, dict)]
    assert not raw, raw  # what its types do not fit comes as it is
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    streamed = shown(events[-1].response.output)
    assert "".join(deltas) == streamed["text"]

    conversation = client.conversations.create(metadata={"a": "b"})
    assert client.conversations.retrieve(conversation.id).metadata == {"a": "b"}
    client.responses.create(**ASKED, conversation=conversation.id)
    items = client.conversations.items.list(conversation.id).data
    assert client.responses.retrieve(whole.id).id == whole.id
    assert client.responses.list(model="none").data == []
    assert client.responses.list(limit=3).data[-1].id == whole.id
    client.responses.delete(whole.id)
    return {
        "whole": shown(whole.output),
        "streamed": streamed,
        "conversation": [item.type for item in items],
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
