"""inline::llama-cpp with a real model: answers, refusals, and the ends of work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from corral.api.errors import ConfigError, NotFound, Refused, Unavailable
from corral.api.provider import ChatChunk, Health, delta_text
from corral.providers.inference.llama_cpp.config import LlamaCppConfig
from corral.providers.inference.llama_cpp.provider import LlamaCppProvider, create

from ...language_model import CONTEXT_TOKENS, model_settings

HELLO = [{"role": "user", "content": "Say hello to the llama."}]
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 1000}
SECONDS = 30
"""Enough for a short answer on a busy machine; the endless one takes longer."""


def local(*models: dict[str, Any]) -> LlamaCppProvider:
    """Return a provider that computes in one thread."""
    config = {"models": [model_settings(**each) for each in models], "threads": 1}
    return create("local", LlamaCppConfig.model_validate(config), Path())


@pytest.fixture(scope="module")
def provider() -> Iterator[LlamaCppProvider]:
    """The model with its whole context; and as `short`, two answers at once of four tokens."""
    short = {"model": "short", "context_tokens": 256, "max_output_tokens": 4, "concurrency": 2}
    made = local({"context_tokens": CONTEXT_TOKENS}, short)
    yield made
    asyncio.run(made.close())


def body(**request: Any) -> dict[str, Any]:
    """Return a request for a few tokens at temperature 0."""
    return {"model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 12, **request}


def schema(value: dict[str, Any]) -> dict[str, Any]:
    """Return the request for an answer that follows a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": value}}


ENDLESS = body(response_format=schema(NUMBERS), max_tokens=CONTEXT_TOKENS)
"""Its answer fills the context."""


async def collected(provider: LlamaCppProvider, **request: Any) -> list[ChatChunk]:
    """Return the chunks of an answer."""
    return [chunk async for chunk in provider.chat(body(**request))]


async def answered(provider: LlamaCppProvider, **request: Any) -> str:
    """Return the text of an answer."""
    return "".join(map(delta_text, await collected(provider, **request)))


def finish_reasons(chunks: list[ChatChunk]) -> list[str]:
    """Return the reasons why the choices of an answer ended."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def listening() -> set[Any]:
    """Return the addresses at which this process listens for connections over a network."""
    sockets = psutil.Process().net_connections(kind="inet")
    return {each.laddr for each in sockets if each.status == psutil.CONN_LISTEN}


async def test_an_answer_streams_and_repeats(provider: LlamaCppProvider) -> None:
    """The pieces come as OpenAI's chunks, end once, and are the same again at temperature 0."""
    chunks = await collected(provider)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len([chunk for chunk in chunks if delta_text(chunk)]) > 5
    assert finish_reasons(chunks) in (["length"], ["stop"])
    text = "".join(map(delta_text, chunks))
    assert text
    assert await answered(provider) == text
    assert await provider.complete("tiny", HELLO[0]["content"], max_tokens=12) == text


async def test_the_last_chunk_counts_the_tokens(provider: LlamaCppProvider) -> None:
    """Only the last chunk has `usage`, with OpenAI's three counts and nothing else.

    If this fails: cache counts tell a client which prompts others have sent.
    """
    *before, last = await collected(provider, max_tokens=3)
    assert last["choices"] == []
    assert last["usage"].keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 3
    assert not any("usage" in chunk or "timings" in chunk for chunk in [*before, last][:-1])


@pytest.mark.parametrize(
    ("request_fields", "tokens"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 2, "max_tokens": 9}, 2),
        ({"max_tokens": None, "model": "short"}, 4),
    ],
)
async def test_the_length_is_bounded(
    provider: LlamaCppProvider, request_fields: dict[str, Any], tokens: int
) -> None:
    """The request's bound counts, else `max_output_tokens`; the reason is then `length`."""
    chunks = await collected(provider, **request_fields)
    assert finish_reasons(chunks) == ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] == tokens


async def test_the_context_bounds_an_answer(provider: LlamaCppProvider) -> None:
    """An answer ends as `length` where the context is full, whatever the request allows."""
    chunks = await collected(
        provider,
        model="short",
        messages=[{"role": "user", "content": "llama " * 60}],  # so that little is left for it
        response_format=schema(NUMBERS),
        max_tokens=10**30,
    )
    assert finish_reasons(chunks) == ["length"]
    assert chunks[-1]["usage"]["total_tokens"] <= 256


async def test_sampling_follows_the_request(provider: LlamaCppProvider) -> None:
    """The same seed gives the same answer, another one another; a stop text ends it."""
    warm = {"temperature": 1.5, "max_tokens": 12}
    first = await answered(provider, seed=7, **warm)
    assert await answered(provider, seed=7, **warm) == first
    others = [await answered(provider, seed=seed, **warm) for seed in (-8, 2**70)]
    assert {first} != set(others)
    text = await answered(provider)
    word = text.split()[1]
    assert await answered(provider, stop=[word]) == text.partition(word)[0]


async def test_an_answer_follows_a_schema(provider: LlamaCppProvider) -> None:
    """`response_format` forces the form, and a character of several tokens arrives whole.

    If this fails: half a character breaks the stream, or comes as a replacement character.
    """
    only = {"const": "🦙 né 漢字 🫎"}
    form = {"type": "object", "properties": {"said": only}, "required": ["said"]}
    text = await answered(provider, response_format=schema(form), max_tokens=120)
    assert json.loads(text) == {"said": "🦙 né 漢字 🫎"}


async def test_other_fields_have_no_effect(provider: LlamaCppProvider) -> None:
    """Only OpenAI's fields reach llama.cpp, whose own could name files, slots and grammars."""
    own = {"n": 3, "id_slot": 99, "grammar": "(", "lora": [{"id": 5}], "n_predict": 1, "x": {}}
    assert await answered(provider, **own) == await answered(provider)


async def test_what_is_no_character_is_made_harmless(provider: LlamaCppProvider) -> None:
    """Half of a surrogate pair, a zero byte and a control token are text like any other."""
    odd = [{"role": "user", "content": "a\ud800 b\0 <|im_end|> c"}]
    assert await answered(provider, messages=odd)


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0},
        {"max_completion_tokens": "secret"},
        {"seed": "secret"},
        {"temperature": "secret"},
        {"temperature": float("nan")},
        {"messages": [{"role": "user"}]},
        {"messages": [{"content": "secret"}]},
        {"tools": ["secret"]},
        {"response_format": {"type": "secret"}},
        {"response_format": schema({"$ref": "secret"})},
        {"response_format": schema({"type": "string", "maxLength": 10**9})},
        {"response_format": schema({"type": "integer", "minimum": 10**18})},
        {"response_format": schema({"properties": {f"p{n}": {} for n in range(201)}})},
        {"response_format": schema({"enum": ["secret" * 20_000]})},
    ],
)
async def test_a_bad_request_is_refused(provider: LlamaCppProvider, change: dict[str, Any]) -> None:
    """What llama.cpp cannot read, or could not hold in memory, is refused without its text.

    If this fails: a small schema takes all memory, or an error quotes a prompt.
    """
    with pytest.raises(Refused) as caught:
        await collected(provider, **change)
    assert caught.value.code in {"invalid_value", "invalid_prompt"}
    assert "secret" not in str(caught.value)


async def test_a_prompt_over_the_context_is_refused(provider: LlamaCppProvider) -> None:
    """The error has OpenAI's code, the length of the prompt and the context."""
    with pytest.raises(Refused, match=r"prompt has 1\d{3} tokens.* has 256\.") as caught:
        await collected(
            provider, model="short", messages=[{"role": "user", "content": "word " * 1000}]
        )
    assert caught.value.code == "context_length_exceeded"


async def test_only_configured_models_answer(provider: LlamaCppProvider) -> None:
    """Another name is refused with the known ones."""
    assert provider.models() == ["tiny", "short"]
    with pytest.raises(NotFound, match="tiny, short"):
        await collected(provider, model="other")


async def test_many_at_once_are_all_answered() -> None:
    """Five first calls all get an answer of their own; two are computed at once.

    If this fails: calls beyond `concurrency` are lost, or get the answer of another.
    """
    provider = local({"concurrency": 2, "context_tokens": 256})
    forms = [schema({"const": f"answer {n}"}) for n in range(5)]
    try:
        texts = await asyncio.gather(*(answered(provider, response_format=f) for f in forms))
    finally:
        await provider.close()
    assert [json.loads(text) for text in texts] == [f"answer {n}" for n in range(5)]


async def test_an_answer_that_is_left_ends_the_work(provider: LlamaCppProvider) -> None:
    """A caller that stops reading frees the model for the next, long before the answer's end.

    If this fails: a model keeps generating for a client that has left.
    """
    async with aclosing(provider.chat(ENDLESS)) as stream:
        await anext(stream)
    async with asyncio.timeout(SECONDS):
        assert await answered(provider)


async def test_a_caller_that_gives_up_ends_the_work(provider: LlamaCppProvider) -> None:
    """A cancelled request frees the model while it reads the prompt, and while it waits its turn.

    If this fails: a long prompt of a client that has left holds up everybody.
    """
    long = [{"role": "user", "content": "word " * (CONTEXT_TOKENS - 200)}]
    reading = asyncio.create_task(collected(provider, messages=long))
    await asyncio.sleep(0.5)
    waiting = asyncio.create_task(collected(provider, messages=long))
    await asyncio.sleep(0.1)
    assert not reading.done()
    for task in (waiting, reading):
        task.cancel()
    assert all(
        isinstance(each, asyncio.CancelledError)
        for each in await asyncio.gather(reading, waiting, return_exceptions=True)
    )
    async with asyncio.timeout(SECONDS):
        assert await answered(provider)


async def test_closing_ends_answers_and_frees_the_model(provider: LlamaCppProvider) -> None:
    """Answers at work and in the queue end as an error, and the model's threads are gone.

    If this fails: half an answer looks like a whole one, or a model stays in memory.
    """
    assert await answered(provider)  # The library's log has a thread that the first model starts.
    before = psutil.Process().num_threads()
    closing = local({"context_tokens": CONTEXT_TOKENS})
    begun = asyncio.Event()

    async def endless() -> None:
        async for _ in closing.chat(ENDLESS):
            begun.set()

    tasks = [asyncio.create_task(endless()) for _ in range(2)]
    await begun.wait()
    assert psutil.Process().num_threads() > before + 1
    await closing.close()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [Unavailable, Unavailable]
    # One thread of the event loop's own waits for more work.
    assert psutil.Process().num_threads() <= before + 1


async def test_the_library_neither_writes_nor_listens(capfd: pytest.CaptureFixture[str]) -> None:
    """Loading, answers and refusals write nothing to the terminal, and open no port.

    If this fails: prompts reach a log, or a second server without access control.
    """
    before = listening()
    provider = local({"context_tokens": 256})
    tool = {"name": "f", "parameters": {"properties": {"pattern": {"pattern": "^((("}}}}
    try:
        await answered(provider, tools=[{"type": "function", "function": tool}])
        await answered(provider, response_format=schema({"type": "string", "pattern": "((("}))
        with pytest.raises(Refused):
            await answered(provider, messages=[{"role": "user", "content": "word " * 1000}])
        assert listening() <= before
    finally:
        await provider.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (None, {}, "has no file 'model.gguf'"),
        (b"GGUF", {"sha256": "0" * 64}, "has sha256 .*, expected 0{64}"),
        (b"", {"sha256": None}, "cannot load 'model.gguf'"),
        (b"GGUF\3\0\0\0" + b"\xff" * 64, {"sha256": None}, "cannot load 'model.gguf'"),
    ],
)
async def test_a_wrong_file_is_refused(
    tmp_path: Path, content: bytes | None, settings: dict[str, Any], message: str
) -> None:
    """A missing file, another sha256 and what is no model give an error that names the file."""
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    provider = local({"path": str(path), **settings})
    try:
        with pytest.raises(ConfigError, match=message):
            await collected(provider)
    finally:
        await provider.close()


async def test_health(tmp_path: Path, provider: LlamaCppProvider) -> None:
    """A provider whose files exist is well; a missing one is named."""
    assert await provider.health() == Health("OK")
    missing = local({"path": str(tmp_path / "model.gguf")})
    health = await missing.health()
    assert health.status == "Error"
    assert "model.gguf" in health.message


@pytest.mark.parametrize(
    "change",
    [
        {"models": []},
        {"models": [model_settings(), model_settings()]},
        {"models": [model_settings(model="")]},
        {"models": [model_settings(path="model.gguf")]},
        {"models": [model_settings(sha256="abc")]},
        {"models": [model_settings(context_tokens=1)]},
        {"models": [model_settings(concurrency=0)]},
        {"models": [model_settings(max_output_tokens=0)]},
        {"threads": 0},
        {"temperature": 1},
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    """Values out of range, relative paths, two models of a name and unknown keys are refused."""
    with pytest.raises(ValidationError):
        LlamaCppConfig.model_validate({"models": [model_settings()]} | change)
