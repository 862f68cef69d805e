"""An agent that answers from your documents and cites them; it needs httpx and nothing else.

    python agent_loop.py "What keeps cattle in?"

It asks a language model over OpenAI's chat completions, offers it Corral's tools, and hands Corral
the calls that the model makes. `CORRAL_URL`, `CORRAL_KEY`, `MODEL_URL`, `MODEL_KEY` and `MODEL`
say where everything is.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import httpx

INSTRUCTIONS = (
    "Answer from the user's documents only. Search them first. Cite each statement with the title "
    "and url of its document. If they do not answer the question, say so."
)
MAX_TURNS = 8


def answer(question: str, corral: httpx.Client, model: httpx.Client, name: str) -> str:
    """Return what the model says once it calls no more tools."""
    tools = ask(corral, "GET", "/v1/tools/openai")["data"]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": question},
    ]
    for _ in range(MAX_TURNS):
        body = {"model": name, "messages": messages, "tools": tools}
        message = ask(model, "POST", "/chat/completions", body)["choices"][0]["message"]
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            return str(message["content"])
        for call in calls:
            print(f"  {call['function']['name']} {call['function']['arguments']}", file=sys.stderr)
            messages.append(ask(corral, "POST", "/v1/tools/openai/call", call))
    return "The model called tools again and again and did not answer."


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    """Send a request and return what it answers."""
    reply = client.request(method, path, json=body)
    reply.raise_for_status()
    return reply.json()


def client_of(url: str, key: str | None) -> httpx.Client:
    """Return a client with a key, if there is one."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=120)


def main() -> None:
    """Answer the question on the command line."""
    env = os.environ.get
    corral = client_of(env("CORRAL_URL", "http://127.0.0.1:8321"), env("CORRAL_KEY"))
    model = client_of(env("MODEL_URL", "http://127.0.0.1:8000/v1"), env("MODEL_KEY"))
    with corral, model:
        print(answer(" ".join(sys.argv[1:]), corral, model, env("MODEL", "default")))


if __name__ == "__main__":
    main()
