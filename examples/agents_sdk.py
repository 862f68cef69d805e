"""An agent of the OpenAI Agents SDK that reads your documents over MCP.

    pip install openai-agents
    python agents_sdk.py "What keeps cattle in?"

The SDK asks Corral's /mcp for its tools and calls them. `CORRAL_URL`, `CORRAL_KEY`, `MODEL_URL`,
`MODEL_KEY` and `MODEL` say where everything is.
"""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI


async def answer(question: str) -> str:
    """Return what the agent says."""
    env = os.environ.get
    set_tracing_disabled(True)
    url, key = env("CORRAL_URL", "http://127.0.0.1:8321"), env("CORRAL_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    model_url = env("MODEL_URL", "http://127.0.0.1:8000/v1")
    parameters = {"url": f"{url}/mcp", "headers": headers}
    async with (
        AsyncOpenAI(base_url=model_url, api_key=env("MODEL_KEY", "unused")) as client,
        MCPServerStreamableHttp(name="corral", params=parameters, cache_tools_list=True) as corral,
    ):
        agent = Agent(
            name="Librarian",
            instructions="Answer from the user's documents only, and cite their title and url.",
            mcp_servers=[corral],
            model=OpenAIChatCompletionsModel(env("MODEL", "default"), client),
        )
        result = await Runner.run(agent, question)
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(answer(" ".join(sys.argv[1:]))))
