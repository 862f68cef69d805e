"""Conversations: their items, their answers, and whom they exist for."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest

from ...chat_service import ChatService, Pause, Script, piece, said
from ..harness import wait_until
from .answers import QUESTION, searching
from .test_responses import ask


def texts(client: openai.OpenAI, conversation_id: str) -> list[str]:
    """Return the texts of a conversation's messages, the oldest first."""
    items: Any = client.conversations.items.list(conversation_id, order="asc", limit=100)
    return [item.content[0].text for item in items if item.type == "message"]


def test_a_conversation_has_items(answering: openai.OpenAI) -> None:
    """Items are added, listed in both orders and pages, read and deleted by their ids."""
    made = answering.conversations.create(
        items=[{"role": "user", "content": "one", "type": "message"}], metadata={"a": "b"}
    )
    assert made.id.startswith("conv_")
    assert made.metadata == {"a": "b"}
    more: Any = [{"role": "user", "content": text} for text in ("two", "three")]
    added = answering.conversations.items.create(made.id, items=more)
    assert len(added.data) == 2
    assert texts(answering, made.id) == ["one", "two", "three"]
    newest: Any = answering.conversations.items.list(made.id, limit=1)
    assert newest.data[0].content[0].text == "three"
    assert [item.content[0].text for item in newest] == ["three", "two", "one"]
    item: Any = answering.conversations.items.retrieve(
        added.data[0].id or "", conversation_id=made.id
    )
    assert item.content[0].text == "two"
    left = answering.conversations.items.delete(item.id, conversation_id=made.id)
    assert left.id == made.id
    assert texts(answering, made.id) == ["one", "three"]
    changed = answering.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    deleted = answering.conversations.delete(made.id)
    assert (deleted.deleted, deleted.object) == (True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError) as caught:
        answering.conversations.retrieve(made.id)
    assert caught.value.code == "conversation_not_found"
    with pytest.raises(openai.BadRequestError, match="conv_"):
        answering.conversations.retrieve("nope")


def test_a_response_reads_and_extends_its_conversation(
    service: ChatService, answering: openai.OpenAI
) -> None:
    """Its items come before the input; then input and output are added, once and in order."""
    made = answering.conversations.create(items=[{"role": "user", "content": "Hello"}])
    service.scripts = [searching("sheep"), said("A fence [1].")]
    response = ask(answering, conversation=made.id)
    assert response.conversation is not None
    assert response.conversation.id == made.id
    assert texts(answering, made.id) == ["Hello", QUESTION, "A fence."]
    service.scripts = [said("Yes [1].")]
    ask(answering, conversation={"id": made.id}, input="Sure?", store=False)
    roles = [each["role"] for each in service.requests[-1]["messages"]]
    assert roles == ["system", "user", "user", "assistant", "tool", "assistant", "user"]
    assert texts(answering, made.id) == ["Hello", QUESTION, "A fence.", "Sure?", "Yes."]
    service.scripts = [Script([piece("Half"), "data: garbage\n\n"])]
    with pytest.raises(openai.APIStatusError):
        ask(answering, conversation=made.id, input="Lost", tools=[])
    assert "Lost" not in texts(answering, made.id)


def test_one_answer_at_a_time(service: ChatService, answering: openai.OpenAI) -> None:
    """While a response is written in a conversation, another one there gets a 409.

    If this fails: two answers are added in any order, and each knows half of the conversation.
    """
    made = answering.conversations.create()
    pause = Pause()
    service.scripts = [Script([piece("a"), pause, piece(finish_reason="stop")]), said("b")]
    first = threading.Thread(target=lambda: ask(answering, conversation=made.id, tools=[]))
    first.start()
    wait_until(lambda: len(service.requests) == 1)
    with pytest.raises(openai.ConflictError) as caught:
        ask(answering, conversation=made.id, tools=[])
    assert caught.value.code == "conversation_locked"
    assert caught.value.response.headers["x-should-retry"] == "false"
    pause.released.set()
    first.join()
    assert ask(answering, conversation=made.id, tools=[]).output_text == "b"


def test_a_client_that_leaves_frees_the_conversation(
    service: ChatService, answering: openai.OpenAI
) -> None:
    """It cancels the call of the model, stores nothing, and the conversation goes on."""
    made = answering.conversations.create()
    service.scripts = [Script([piece("a"), Pause(), piece(finish_reason="stop")]), said("b")]
    body: Any = {"model": "tiny", "input": "x", "conversation": made.id}
    with answering.responses.create(**body, stream=True) as stream:
        next(iter(stream))
    assert service.left.wait(30)
    wait_until(lambda: _answers(answering, made.id))
    assert texts(answering, made.id) == ["y", "b"]


def _answers(client: openai.OpenAI, conversation_id: str) -> bool:
    try:
        ask(client, conversation=conversation_id, input="y", tools=[])
    except openai.ConflictError:
        return False
    return True
