"""remote::chat against a live service: what is sent, what comes back, how it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from corral.api.errors import (
    NotFound,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    Refused,
    Unavailable,
)
from corral.api.provider import ChatChunk, Health, delta_text
from corral.providers.inference.chat.config import ChatConfig
from corral.providers.inference.chat.model import ChatProvider, create

from ...chat_service import USAGE, events, piece
from ..json_service import KEY, Reply, Service, closed_port

T = TypeVar("T")


def configured(url: str, **settings: Any) -> ChatConfig:
    """Return settings with one model `tiny`, quick retries and a key."""
    defaults: dict[str, Any] = {"models": ["tiny"], "retry_delay_seconds": 0.001, "api_key": KEY}
    return ChatConfig.model_validate({"base_url": url, **defaults, **settings})


async def with_provider(config: ChatConfig, work: Callable[[ChatProvider], Awaitable[T]]) -> T:
    """Run work with a provider and close it."""

    provider = create("llm", config, Path())
    try:
        return await work(provider)
    finally:
        await provider.close()


async def complete(config: ChatConfig, prompt: str = "hello") -> str:
    """Return the model's answer to one prompt."""
    return await with_provider(config, lambda provider: provider.complete("tiny", prompt))


async def chunks(config: ChatConfig, **request: Any) -> list[ChatChunk]:
    """Return the chunks of an answer."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], **request}

    async def collected(provider: ChatProvider) -> list[ChatChunk]:
        return [chunk async for chunk in provider.chat(body)]

    return await with_provider(config, collected)


async def test_a_prompt_is_answered(service: Service) -> None:
    """The request is what every compatible service takes: one message, bounded, temperature 0."""
    assert await complete(configured(service.url)) == "HELLO"
    assert service.paths == ["/v1/chat/completions"]
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"
    assert service.requests == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 128,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_a_chat_is_passed_on(service: Service) -> None:
    """The service gets the fields that it was sent; its chunks come back as they are.

    If this fails: a service's own options or fields are lost on the way.
    """
    said = {**piece("hi", "stop"), "system_fingerprint": "f"}
    service.always = Reply(body=events(said))
    assert await chunks(configured(service.url), top_k=7, max_tokens=3) == [said]
    sent = service.requests[0]
    assert (sent["top_k"], sent["max_tokens"], sent["stream"]) == (7, 3, True)


async def test_the_last_chunk_has_the_usage(service: Service) -> None:
    """The tokens are asked for, and passed on."""
    assert (await chunks(configured(service.url)))[-1]["usage"] == USAGE


async def test_an_answer_that_is_left_ends_the_request(service: Service) -> None:
    """A caller that stops reading closes the connection; the next request is served.

    If this fails: a model keeps generating for a client that has left.
    """

    async def first_piece(provider: ChatProvider) -> str:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
        async with aclosing(provider.chat(body)) as stream:
            async for chunk in stream:
                return delta_text(chunk)
        return ""

    async def twice(provider: ChatProvider) -> list[str]:
        return [await first_piece(provider), await first_piece(provider)]

    assert await with_provider(configured(service.url), twice) == ["HE", "HE"]


async def test_a_model_that_thinks_gets_its_own_bound(service: Service) -> None:
    """OpenAI's reasoning models refuse `max_tokens` and any temperature; neither is sent."""
    await complete(configured(service.url, reasoning=True, max_output_tokens=2000))
    assert service.requests[0]["max_completion_tokens"] == 2000
    assert not {"max_tokens", "temperature"} & set(service.requests[0])


async def test_lone_surrogates_are_made_harmless(service: Service) -> None:
    """What is no character is sent as a question mark."""
    assert await complete(configured(service.url), "a\ud800") == "A?"


async def test_no_text_is_an_empty_answer(service: Service) -> None:
    """A null, as of a model that only thought, is an empty text; the caller decides what it is."""
    service.always = Reply(body=events(piece(None, "stop")))
    assert await complete(configured(service.url)) == ""


async def test_only_configured_models_are_asked(service: Service) -> None:
    """An unknown model is refused with the known ones; nothing is sent."""
    with pytest.raises(NotFound, match="tiny"):
        await with_provider(
            configured(service.url), lambda provider: provider.complete("other", "hello")
        )
    assert service.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"choices": [{"message": {"content": "not a stream"}}]}',
        b"data: null",
        b"data: []",
        b"data: 7",
        b"data: {",
        b"data: " + b"[" * 100_000,
        events({}),
        events({"choices": None}),
        events({"choices": [{"text": "old style"}]}),
        events({"choices": [{"delta": "text"}]}),
        events(piece(7)),
        events(piece(["text"])),
        events(piece("cut off"), end=False),
        events({"error": {"message": "my secret", "code": "model_crashed"}}),
    ],
)
async def test_garbage_is_a_provider_error(service: Service, body: bytes) -> None:
    """Whatever is no whole stream of chat chunks is refused, and quotes nothing."""
    service.always = Reply(body=body)
    with pytest.raises(ProviderError, match=r"llm \(remote::chat\)") as caught:
        await complete(configured(service.url))
    assert type(caught.value) is ProviderError
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "kind", "requests"),
    [
        (Reply(status=401), ProviderError, 1),
        (Reply(status=500), ProviderError, 1),
        (Reply(status=503), Unavailable, 1),
        (Reply(status=429, headers={"retry-after": "1"}), Overloaded, 1),
        (Reply(status=400), Refused, 1),
        (Reply(hang_up=True), Unavailable, 3),
    ],
)
async def test_only_connections_are_tried_again(
    service: Service, reply: Reply, kind: type[ProviderError], requests: int
) -> None:
    """Somebody waits: what a service has answered is not asked for twice."""
    service.always = reply
    with pytest.raises(ProviderError) as caught:
        await complete(configured(service.url, max_retries=2))
    assert type(caught.value) is kind
    assert len(service.requests) == requests


async def test_a_slow_service_times_out(service: Service) -> None:
    """No answer within `timeout_seconds` gives ProviderTimeout."""
    service.always = Reply(delay_seconds=30)
    with pytest.raises(ProviderTimeout, match=r"0\.2 seconds"):
        await complete(configured(service.url, timeout_seconds=0.2))


async def test_health(service: Service) -> None:
    """A service that lists its models is well; a refused key and nobody at all are not."""
    config = configured(service.url)
    assert await with_provider(config, lambda provider: provider.health()) == Health("OK")
    service.always = Reply(status=401)
    assert (await with_provider(config, lambda provider: provider.health())).status == "Error"
    nobody = configured(closed_port())
    assert (await with_provider(nobody, lambda provider: provider.health())).status == "Error"


async def test_neither_text_nor_key_leaks(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors and logs never show the service's message, the prompt or the key."""
    caplog.set_level(logging.DEBUG)
    quote = {"error": {"message": "bad prompt: my secret", "code": "context_length_exceeded"}}
    service.always = Reply(status=400, body=json.dumps(quote).encode())
    with pytest.raises(ProviderError, match="context_length_exceeded") as caught:
        await complete(configured(service.url), "my secret")
    assert "secret" not in str(caught.value)
    corral = [record for record in caplog.records if record.name.startswith("corral")]
    assert not [record for record in corral if "secret" in record.getMessage()]


@pytest.mark.parametrize(
    "change",
    [
        {"models": []},
        {"models": ["tiny", "tiny"]},
        {"models": [""]},
        {"max_output_tokens": 0},
        {"timeout_seconds": 0},
        {"temperature": 1},
        {"base_url": "ftp://127.0.0.1"},
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    """Values out of range and unknown keys are refused."""
    with pytest.raises(ValidationError):
        ChatConfig.model_validate({"base_url": "http://127.0.0.1:1", "models": ["tiny"]} | change)


def test_the_key_stays_secret() -> None:
    """The key appears in no representation or dump of the settings."""
    config = configured("http://127.0.0.1:1")
    assert KEY not in repr(config) + str(config.model_dump()) + config.model_dump_json()
