"""The list of stored responses, which the clients of OGX and Llama Stack have."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from ...chat_service import ChatService, said
from ..harness import Json
from .answers import QUESTION, searching

TOOL: Any = {"type": "file_search", "vector_store_ids": ["notes"]}


def ask(client: openai.OpenAI, **fields: Any) -> str:
    """Return the id of the response to the question."""
    response: Response = client.responses.create(**{"model": "tiny", "input": QUESTION, **fields})
    return response.id


def page_of(client: openai.OpenAI, **parameters: Any) -> Json:
    """Return a page of the list."""
    answered = httpx.get(f"{client.base_url}responses", params=parameters, timeout=60)
    page: Json = answered.json()
    return page


def test_stored_responses_are_listed(service: ChatService, answering: openai.OpenAI) -> None:
    """The newest is first, each with its input and, on request, the results of its searches."""
    service.scripts = [searching("sheep"), said("A fence [1].")]
    searched = ask(answering, tools=[TOOL])
    other = ask(answering, input="Who?")
    ask(answering, store=False)
    page = page_of(answering)
    assert [each["id"] for each in page["data"]] == [other, searched]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (other, searched, False)
    texts = [each["input"][0]["content"][0]["text"] for each in page["data"]]
    assert texts == ["Who?", QUESTION]
    assert page["data"][1]["output"][0]["results"] is None
    full = page_of(answering, include="file_search_call.results")
    assert len(full["data"][1]["output"][0]["results"]) > 1


def test_the_list_has_pages(service: ChatService, answering: openai.OpenAI) -> None:
    """A page begins after the last of the one before it, and can have one model's responses only.

    If this fails: a client that walks through the list misses responses, or never ends.
    """
    made = [ask(answering, input=text) for text in "abc"]
    ask(answering, model="corral/notes")
    first = page_of(answering, order="asc", limit=2, model="tiny")
    assert ([each["id"] for each in first["data"]], first["has_more"]) == (made[:2], True)
    last = page_of(answering, order="asc", limit=2, model="tiny", after=first["last_id"])
    assert ([each["id"] for each in last["data"]], last["has_more"]) == (made[2:], False)
    newest = page_of(answering, after=made[1])
    assert [each["id"] for each in newest["data"]] == [made[0]]
    empty = page_of(answering, model="none")
    assert (empty["data"], empty["first_id"], empty["last_id"]) == ([], "", "")
    assert page_of(answering, after="resp_0")["error"]["param"] == "after"


def test_an_unknown_response(answering: openai.OpenAI) -> None:
    """The refusal begins as OGX's does, word for word, and says why there may be none."""
    with pytest.raises(openai.NotFoundError) as caught:
        answering.responses.retrieve("resp_0")
    wanted = (
        "Response 'resp_0' not found. Use 'client.responses.list()' to list available Responses."
    )
    assert wanted in str(caught.value)
    assert "answers.retention_days" in str(caught.value)
