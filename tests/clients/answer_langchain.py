"""LangChain's side of a test: `ChatOpenAI` on responses, with the tool file_search.

Run by the interpreter of the frameworks with the address of a Corral server. Prints its answers as
JSON.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from operator import add
from typing import Any

from langchain_openai import ChatOpenAI

QUESTION = "What keeps the sheep in?"


def main(address: str) -> dict[str, Any]:
    """Return an answer, a streamed one, and one to a question that follows."""
    settings: dict[str, Any] = {"base_url": f"{address}/v1", "api_key": "none"}
    chat = ChatOpenAI(
        model="tiny", use_responses_api=True, include=["file_search_call.results"], **settings
    )
    model: Any = chat.bind_tools([{"type": "file_search", "vector_store_ids": ["notes"]}])
    whole = model.invoke(QUESTION)
    streamed = reduce(add, model.stream(QUESTION))
    again = model.invoke([("user", QUESTION), whole, ("user", "Sure?")])
    return {"whole": shown(whole), "streamed": shown(streamed), "again": cited(again)}


def shown(message: Any) -> dict[str, Any]:
    """Return the text of a message, the files that it cites, and the results of its search."""
    found = [block for block in message.content_blocks if block["type"] == "server_tool_result"]
    results = [result["text"] for block in found for result in block["output"]]
    return {"text": message.text, "cited": cited(message), "results": results}


def cited(message: Any) -> list[str]:
    """Return the names of the files that a message cites."""
    texts = [block for block in message.content_blocks if block["type"] == "text"]
    return [citation["title"] for block in texts for citation in block["annotations"]]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 - the test reads it
