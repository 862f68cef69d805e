"""Unmodified clients of responses, conversations and chats, with a scripted model and the notes."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from ...chat_service import ChatService, said
from .answers import NOTES, QUESTION, searching
from .other_clients import run_client, run_framework

ANSWER = {"text": "A fence.", "cited": ["fence.md"]}
TOOL: Any = {"type": "file_search", "vector_store_ids": ["notes"]}
INCLUDED: Any = ["file_search_call.results"]


def answer_times(count: int, service: ChatService) -> None:
    """Let the model search and cite a source, for that many responses."""
    service.scripts = [searching("sheep"), said("A fence", " [1", "].")] * count


def address_of(client: openai.OpenAI) -> str:
    """Return the address of a client's server."""
    return str(client.base_url).removesuffix("/v1/")


def check(told: Any) -> None:
    """Check an answer: no marker in the text, the right file, all results."""
    assert {name: told[name] for name in ANSWER} == ANSWER
    assert set(told["results"]) == set(NOTES.values())
    assert told["results"][0] == NOTES["fence.md"]


@pytest.mark.parametrize("name", ["ogx", "llama-stack"])
def test_clients_of_a_stack(name: str, service: ChatService, answering: openai.OpenAI) -> None:
    """The newest clients of OGX and Llama Stack get answers that fit their types.

    If this fails: an application written for them cannot ask Corral by responses.
    """
    answer_times(3, service)
    script = f"answer_{name.replace('-', '_')}.py"
    told = json.loads(run_client(name, script, address_of(answering)))
    check(told["whole"])
    check(told["streamed"])
    assert told["conversation"] == ["message", "file_search_call", "message"]


def test_litellm(service: ChatService, answering: openai.OpenAI) -> None:
    """LiteLLM gets responses, and chats of a vector DB, whose annotations it validates.

    If this fails: whoever has LiteLLM in front of its models cannot have Corral among them.
    """
    answer_times(2, service)
    service.scripts += [said("Oak [1].")]
    told = json.loads(run_client("litellm", "answer_litellm.py", address_of(answering)))
    check(told["whole"])
    check(told["streamed"])
    assert told["chat"] == told["chat_streamed"]
    assert told["chat"].startswith("Oak [1].\n\nSources:\n\n- [1] fence.md")
    fields = told["chat_fields"]
    assert [citation["filename"] for citation in fields["citations"]] == ["fence.md"]
    assert len(fields["search_results"]) == len(NOTES)


def test_the_agents_sdk(service: ChatService, answering: openai.OpenAI) -> None:
    """An agent with the hosted tool cites, streams, and goes on from each kind of history.

    If this fails: an agent of OpenAI's SDK cannot search Corral with `FileSearchTool`.
    """
    answer_times(2, service)
    service.scripts += [said("Yes [1].")]
    told = json.loads(run_framework("answer_agents.py", address_of(answering)))
    check(told["whole"])
    check(told["streamed"])
    assert told["again"] == told["stored"] == ["fence.md"]
    roles = [[each["role"] for each in sent["messages"]] for sent in service.requests[-4:]]
    assert roles[0] == roles[1] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert roles[3] == ["system", "user", "assistant", "user"]
    assert told["session"] == ["user", "assistant", "user", "assistant"]


def test_langchain(service: ChatService, answering: openai.OpenAI) -> None:
    """`ChatOpenAI(use_responses_api=True)` cites, streams, and sends its history back.

    If this fails: a chain on OpenAI's file_search cannot move to Corral by its address alone.
    """
    answer_times(2, service)
    service.scripts += [said("Yes [1].")]
    told = json.loads(run_framework("answer_langchain.py", address_of(answering)))
    check(told["whole"])
    check(told["streamed"])
    assert told["again"] == ["fence.md"]
    sent = service.requests[-1]["messages"]
    assert NOTES["fence.md"] in sent[-3]["content"]
    assert sent[-2]["content"] == "A fence [1]."


async def test_openai_async(service: ChatService, answering: openai.OpenAI) -> None:
    """`AsyncOpenAI` gets whole responses, streams them both ways, and streams chats.

    If this fails: an application on asyncio cannot use what the sync client can.
    """
    answer_times(3, service)
    service.scripts += [said("Oak", " [1].")]
    asked: Any = {"model": "tiny", "input": QUESTION, "tools": [TOOL], "include": INCLUDED}
    async with openai.AsyncOpenAI(base_url=answering.base_url, api_key="none") as client:
        outputs = [(await client.responses.create(**asked)).output]
        events = [event async for event in await client.responses.create(**asked, stream=True)]
        assert events[-1].type == "response.completed"
        outputs.append(events[-1].response.output)
        async with client.responses.stream(**asked) as stream:
            deltas = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            outputs.append((await stream.get_final_response()).output)
        chunks = await client.chat.completions.create(
            model="corral/notes", messages=[{"role": "user", "content": QUESTION}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    assert "".join(deltas) == ANSWER["text"]
    assert text.startswith("Oak [1].\n\nSources:\n\n- [1] fence.md")
    for output in outputs:
        search, message = (item.to_dict() for item in output)
        part: Any = message["content"][0]
        results: Any = search["results"]
        check(
            {
                "text": part["text"],
                "cited": [each["filename"] for each in part["annotations"]],
                "results": [each["text"] for each in results],
            }
        )
