"""The side of OpenAI's Agents SDK in a test: an agent with the hosted tool file_search.

Run by the interpreter of the frameworks with the address of a Corral server. Prints its answers as
JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from agents import (
    Agent,
    FileSearchTool,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

QUESTION = "What keeps the sheep in?"


async def main(address: str) -> dict[str, Any]:
    """Return an answer, a streamed one, those to questions that follow, and a session's items."""
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
    search = FileSearchTool(vector_store_ids=["notes"], include_search_results=True)
    model = OpenAIResponsesModel("tiny", client)
    agent: Any = Agent(name="notes", instructions="Be brief.", model=model, tools=[search])
    whole: Any = await Runner.run(agent, QUESTION)
    running: Any = Runner.run_streamed(agent, QUESTION)
    deltas = [
        event.data.delta
        async for event in running.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == running.final_output
    asked = [*whole.to_input_list(), {"role": "user", "content": "Sure?"}]
    again: Any = await Runner.run(agent, asked)
    stored: Any = await Runner.run(agent, "Sure?", previous_response_id=whole.last_response_id)
    session = OpenAIConversationsSession(openai_client=client)
    for question in ("Hello?", "Still there?"):
        await Runner.run(agent, question, session=session)
    items: Any = await session.get_items()
    await session.clear_session()
    await client.close()
    return {
        "whole": shown(whole.new_items),
        "streamed": shown(running.new_items),
        "again": cited(again.new_items[-1]),
        "stored": cited(stored.new_items[-1]),
        "session": [item["role"] for item in items],
    }


def shown(items: Sequence[Any]) -> dict[str, Any]:
    """Return the text of a run, the files that it cites, and the results of its search."""
    search, message = items
    results = [result.text for result in search.raw_item.results]
    return {"text": message.raw_item.content[0].text, "cited": cited(message), "results": results}


def cited(message: Any) -> list[str]:
    """Return the names of the files that a message cites."""
    return [citation.filename for citation in message.raw_item.content[0].annotations]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))  # noqa: T201 - the test reads it
