"""Chat completions: OpenAI's own client, a scripted service, and what fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from corral.providers.base.config import RunConfig

from ...chat_service import USAGE, ChatService, Pause, Script, piece, said
from ..harness import live_server, run_config, wait_until

ASKED: Any = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"


def with_model(service: ChatService, **settings: Any) -> RunConfig:
    """Return the configuration with the service's model `tiny`."""
    config = {"base_url": service.url, "models": ["tiny"], "max_retries": 0, **settings}
    entry = {"provider_id": "llm", "provider_type": "remote::chat", "config": config}
    providers = run_config().model_dump(mode="json")["providers"]
    return run_config(providers={**providers, "inference": [entry]})


@pytest.fixture
def client(service: ChatService, tmp_path: Path) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server with the service's model."""
    with (
        live_server(with_model(service), tmp_path) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def test_a_whole_answer(service: ChatService, client: openai.OpenAI) -> None:
    """The pieces are joined; what Corral does not know reaches the service as it was sent."""
    answer = client.chat.completions.create(
        model="tiny", messages=ASKED, temperature=0.5, extra_body={"top_k": 3}
    )
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "tiny"
    assert answer.usage is not None
    assert answer.usage.total_tokens == USAGE["total_tokens"]
    sent = service.requests[0]
    assert (sent["messages"], sent["temperature"], sent["top_k"]) == (ASKED, 0.5, 3)


def test_a_stream(service: ChatService, client: openai.OpenAI) -> None:
    """Each piece arrives as it is; the tokens only for a client that wants them."""
    with client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as stream:
        chunks = list(stream)
    assert [c.choices[0].delta.content for c in chunks[:2]] == ["Hello", " there"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    options: Any = {"include_usage": True}
    with client.chat.completions.create(
        model="tiny", messages=ASKED, stream=True, stream_options=options
    ) as stream:
        *_, last = stream
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.prompt_tokens == USAGE["prompt_tokens"]


def test_a_tool_call_in_pieces(service: ChatService, client: openai.OpenAI) -> None:
    """A call of a function, whose arguments come in pieces, is joined by its index.

    If this fails: agents get half of the arguments, or two calls as one.
    """
    begun = [
        {"index": n, "id": f"call_{n}", "type": "function", "function": {"name": f"f{n}"}}
        for n in (0, 1)
    ]
    more = [{"index": n, "function": {"arguments": text}} for n, text in ((0, "{"), (1, "[]"))]
    rest = {"index": 0, "function": {"arguments": "}"}}
    service.scripts = [
        Script(
            [
                piece(role="assistant", tool_calls=begun),
                piece(tool_calls=more),
                piece(tool_calls=[rest]),
                piece(finish_reason="tool_calls"),
            ]
        )
    ]
    tool: Any = {"type": "function", "function": {"name": "f0", "parameters": {}}}
    answer = client.chat.completions.create(model="tiny", messages=ASKED, tools=[tool])
    message = answer.choices[0].message
    assert message.content is None
    calls: Any = message.tool_calls
    assert [(c.id, c.function.name, c.function.arguments) for c in calls] == [
        ("call_0", "f0", "{}"),
        ("call_1", "f1", "[]"),
    ]
    assert service.requests[0]["tools"] == [tool]


def test_models_are_listed_with_their_type(client: openai.OpenAI) -> None:
    """The language model stands beside the embedding model, and says what it is."""
    kinds = {model.id: model.to_dict()["custom_metadata"] for model in client.models.list()}
    assert {name: kind["model_type"] for name, kind in kinds.items()} == {  # type: ignore[index]
        "hashing": "embedding",
        "tiny": "llm",
    }
    assert client.models.retrieve("tiny").owned_by == "llm"


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (Script(status=401, body={}), 502, "upstream_error"),
        (Script(status=500, body={}), 502, "upstream_error"),
        (Script(status=503, body={}), 502, "upstream_error"),
        (Script(status=429, body={}), 429, "rate_limit_exceeded"),
        (Script(status=400, body={}), 400, "invalid_prompt"),
        (
            Script(status=400, body={"error": {"message": "secret", "code": "too_long"}}),
            400,
            "too_long",
        ),
        (Script(["data: garbage\n\n"]), 502, "upstream_error"),
        (Script([piece("a") | {"created": float("nan")}]), 502, "upstream_error"),
        (Script([], is_cut=True), 502, "upstream_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_service_that_fails_at_once(
    service: ChatService,
    client: openai.OpenAI,
    script: Script,
    status: int,
    code: str,
    stream: bool,
) -> None:
    """Before the first byte a failure has an HTTP status; the service's words are not passed on.

    If this fails: a client waits for a stream that never begins, or reads a prompt of another.
    """
    service.scripts = [script]
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="tiny", messages=ASKED, stream=stream)
    body: Any = caught.value.body
    assert (caught.value.status_code, body["code"]) == (status, code)
    assert "secret" not in str(body)


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_is_passed_on(
    service: ChatService, client: openai.OpenAI, stream: bool
) -> None:
    """A model may write half of a surrogate pair, which no encoding of Unicode can hold.

    If this fails: the request ends as an internal error, or the stream in the middle.
    """
    service.scripts = [said("a\ud800", "b")]
    body = {"model": "tiny", "messages": ASKED, "stream": stream}
    answer = client.post(PATH.removeprefix("/v1"), cast_to=httpx.Response, body=body)
    assert answer.status_code == 200
    assert "a\\ud800" in answer.text
    assert answer.text.rstrip().endswith("[DONE]" if stream else "}")


def test_a_stream_that_breaks_off_is_an_error(service: ChatService, client: openai.OpenAI) -> None:
    """After the first byte a failure is the last event, which OpenAI's client raises.

    If this fails: half an answer looks like a whole one.
    """
    service.scripts = [Script([piece("Hel")], is_cut=True)]
    got: list[str | None] = []
    with (
        pytest.raises(openai.APIError, match="remote::chat"),
        client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as stream,
    ):
        got.extend(chunk.choices[0].delta.content for chunk in stream)
    assert got == ["Hel"]


def test_a_slow_service(service: ChatService, tmp_path: Path) -> None:
    """A service that says nothing within its time is 504, and the end of a stream that began.

    If this fails: a client waits for ever.
    """
    pauses = [Pause(is_silent=True), Pause(is_silent=True)]
    service.scripts = [Script([pauses[0]]), Script([piece("Hel"), pauses[1]])]
    body = {"model": "tiny", "messages": ASKED, "stream": True}
    with live_server(with_model(service, timeout_seconds=0.3), tmp_path) as url:
        refused = httpx.post(f"{url}{PATH}", json=body, timeout=60)
        broken = httpx.post(f"{url}{PATH}", json=body, timeout=60)
        for pause in pauses:
            pause.released.set()
    assert refused.status_code == 504
    assert refused.json()["error"]["code"] == "upstream_timeout"
    *_, last = filter(None, broken.text.split("\n"))
    assert "upstream_timeout" in last


def test_a_client_that_leaves_ends_the_call(service: ChatService, client: openai.OpenAI) -> None:
    """A client that closes a stream, or gives up waiting, closes the connection to the service.

    If this fails: a model keeps generating for a client that has left.
    """
    service.scripts = [Script([piece("Hel"), Pause()])]
    with client.chat.completions.create(model="tiny", messages=ASKED, stream=True) as stream:
        next(iter(stream))
    wait_until(service.left.is_set)
    service.left.clear()
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(model="tiny", messages=ASKED)
    wait_until(service.left.is_set)


def test_bad_requests_are_refused(service: ChatService, client: openai.OpenAI) -> None:
    """An unknown model is 404 and names the known; a body without messages is 400."""
    with pytest.raises(openai.NotFoundError, match="Language models: tiny") as caught:
        client.chat.completions.create(model="other", messages=ASKED)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    for messages in ([], None, "hi", [1]):
        with pytest.raises(openai.BadRequestError) as refused:
            client.post(
                PATH.removeprefix("/v1"),
                cast_to=object,
                body={"model": "tiny", "messages": messages},
            )
        assert str(refused.value.param).startswith("messages")
    assert service.requests == []


async def test_the_async_client(service: ChatService, tmp_path: Path) -> None:
    """Many streams at once each get their own answer."""
    service.scripts = [said("one", " answer")]
    with live_server(with_model(service), tmp_path) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1/openai/v1", api_key="none") as client:

            async def answer() -> str:
                stream = await client.chat.completions.create(
                    model="tiny", messages=ASKED, stream=True
                )
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            assert set(await asyncio.gather(*(answer() for _ in range(16)))) == {"one answer"}
