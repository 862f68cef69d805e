"""Chat completions by a language model of the server's own process, with OpenAI's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from ...language_model import model_settings
from ..harness import live_server, run_config
from .answers import NOTES, QUESTION, add_notes

ASKED: Any = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server with the model `tiny`."""
    settings = {"models": [model_settings(context_tokens=2048)], "threads": 1}
    entry = {"provider_id": "local", "provider_type": "inline::llama-cpp", "config": settings}
    providers = run_config().model_dump(mode="json")["providers"]
    config = run_config(providers={**providers, "inference": [entry]})
    with (
        live_server(config, tmp_path_factory.mktemp("home")) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        add_notes(url)
        yield made


def test_a_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    """The pieces of a stream join to the answer that is not streamed, with the same counts."""
    whole = client.chat.completions.create(
        model="tiny", messages=ASKED, temperature=0, max_tokens=12
    )
    options: Any = {"include_usage": True}
    with client.chat.completions.create(
        model="tiny",
        messages=ASKED,
        temperature=0,
        max_tokens=12,
        stream=True,
        stream_options=options,
    ) as stream:
        *pieces, last = list(stream)
    texts = [piece.choices[0].delta.content or "" for piece in pieces]
    assert len(texts) > 5
    assert "".join(texts) == whole.choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.usage == whole.usage
    assert whole.model == "tiny"


def test_it_is_listed(client: openai.OpenAI) -> None:
    """The model is listed as a language model of its provider."""
    listed = {model.id: model for model in client.models.list()}
    assert listed["tiny"].owned_by == "local"
    metadata: Any = listed["tiny"].to_dict()["custom_metadata"]
    assert metadata["model_type"] == "llm"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_is_400(client: openai.OpenAI, stream: bool) -> None:
    """Clients shorten a conversation at the code `context_length_exceeded`."""
    long: Any = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=long, stream=stream)
    assert caught.value.code == "context_length_exceeded"


def test_a_client_that_leaves_frees_the_model(client: openai.OpenAI) -> None:
    """After a client has closed its stream, the next one is answered.

    If this fails: a model keeps generating for a client that has left.
    """
    with client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as stream:
        next(iter(stream))
    answer = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"


def test_it_answers_from_vector_dbs_through_every_door(client: openai.OpenAI) -> None:
    """Responses, a stream of them and chat: an answer, with citations of what was sent to it.

    If this fails: the scripted model of the other tests hides what a real one needs.
    """
    greedy: Any = {"model": "corral/notes", "temperature": 0}
    response = client.responses.create(
        **greedy, input=QUESTION, max_output_tokens=40, include=["file_search_call.results"]
    )
    search, message = response.output
    shown = {each.text for each in getattr(search, "results", None) or ()}
    assert shown == set(NOTES.values())
    part: Any = message.to_dict()["content"]
    assert part[0]["text"]
    assert all(each["quote"] in shown for each in part[0]["annotations"])
    with client.responses.stream(**greedy, input=QUESTION, max_output_tokens=40) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(deltas) > 3
    assert "".join(deltas) == final.output_text == response.output_text
    messages: Any = [{"role": "user", "content": QUESTION}]
    with client.chat.completions.create(
        **greedy, messages=messages, max_tokens=40, stream=True
    ) as chunks:
        text = "".join(each.choices[0].delta.content or "" for each in chunks)
    numbers = [number for number in "123" if f"[{number}]" in text]
    assert len(numbers) >= bool(part[0]["annotations"])
    assert text.startswith(response.output_text[:20])
    follow: Any = client.responses.create(
        **greedy, input="Why?", previous_response_id=response.id, max_output_tokens=16
    )
    assert follow.status in ("completed", "incomplete")
