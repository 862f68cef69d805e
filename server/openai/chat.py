"""Chat completions, by the configured language models and by vector DBs as models."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field
from starlette.requests import ClientDisconnect

from corral.api.errors import (
    CorralError,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    Refused,
)
from corral.api.provider import ChatChunk
from corral.api.wire_numbers import ExactNumbers
from corral.providers.stack.stack import Stack
from corral.server.access.roles import READER
from corral.server.errors import ERRORS, WireError, log_failure
from corral.server.openai import sse
from corral.server.openai.answered_chat import PREFIX, answered, ask_of
from corral.server.openai.routes import OpenAIRoute, json_response
from corral.server.routing import AnswererOf, StackOf

router = APIRouter(prefix="/v1", tags=["Answers"], route_class=OpenAIRoute, responses=ERRORS)

MAX_MESSAGES = 2048

T = TypeVar("T")


class StreamOptions(ExactNumbers):
    """Options of a stream."""

    include_usage: bool = Field(default=False, description="Send a last chunk with the tokens.")


class ChatCompletionRequest(ExactNumbers):
    """A conversation to continue. Fields that are not listed go to the model's service as sent."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=255, description="A model of `GET /v1/models`.")
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None


@router.post("/chat/completions", summary="Continue a conversation", dependencies=[READER])
async def create(
    request: ChatCompletionRequest, http: Request, stack: StackOf, answerer: AnswererOf
) -> Response:
    """Return the answer of a language model, whole or as server-sent events.

    The model `corral/ID` answers from the vector DB of that id, `corral/A+B` from several.
    """
    sent = request.model_dump(exclude_unset=True)
    ask = await ask_of(sent, stack)
    if ask is None:
        check_model(stack, request.model)
        chunks = named(stack.chat(sent), request.model)
    else:
        field = "model" if request.model.startswith(PREFIX) else "tools"
        written = answered(answerer.answer(ask), stack.config.answers, field)
        chunks = named(written, request.model)
    if request.stream:
        options = request.stream_options
        usage = options is not None and options.include_usage
        first = await while_connected(http, anext(chunks, None))  # errors still have a status
        return sse.stream(_events(first, chunks, with_usage=usage), named=False)
    whole = await while_connected(http, completion(chunks))
    return json_response(whole)


def check_model(stack: Stack, model: str) -> None:
    """Refuse a language model that no provider serves.

    Raises:
        WireError: 404, with the known models.
    """
    models = [name for _, name in stack.inference_models(that_quote=True)]
    if model not in models:
        configure = "None is configured: add one under providers.inference in run.yaml."
        raise WireError(
            404,
            "model_not_found",
            f"Model {model!r} not found. Use 'client.models.list()' to list available Models.",
            hint=f"Language models: {', '.join(models)}." if models else configure,
            field="model",
        )


async def named(
    chunks: AsyncGenerator[ChatChunk, None], model: str
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield chunks with a common id, a time, and the model name of the request.

    Raises:
        WireError: The model failed.
    """
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
    }
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield {**head, **chunk, "model": model}
    except ProviderError as error:
        raise model_failure(error) from error


def model_failure(error: ProviderError) -> WireError:
    """Return the error for a failed language model, without the model's message."""
    if isinstance(error, Refused):
        code = error.code or "invalid_prompt"
        return WireError(400, code, error.message, hint=error.hint, field="messages")
    status, code = 502, "upstream_error"
    if isinstance(error, Overloaded):
        status, code = 429, "rate_limit_exceeded"
    elif isinstance(error, ProviderTimeout):
        status, code = 504, "upstream_timeout"
    return WireError(
        status, code, error.message, hint=error.hint, field="model", retryable=error.retryable
    )


async def while_connected(http: Request, work: Awaitable[T]) -> T:
    """Return the result of work, which is canceled if the client disconnects.

    Raises:
        ClientDisconnect: The client disconnected.
    """
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(http))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def _left(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _events(
    first: Mapping[str, Any] | None,
    chunks: AsyncGenerator[dict[str, Any], None],
    *,
    with_usage: bool,
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Yield the chunks in the requested form; an error in the middle is the last one."""
    async with aclosing(chunks):
        try:
            if first is not None:
                yield _shown(first, with_usage)
            async for chunk in chunks:
                if shown := _shown(chunk, with_usage):
                    yield shown
        except CorralError as error:
            yield {"error": _fault(error)}
        except Exception as error:  # noqa: BLE001 - the status is sent already
            log_failure(error)
            yield {"error": {"message": "The server failed.", "type": "server_error"}}


def _shown(chunk: Mapping[str, Any], with_usage: bool) -> dict[str, Any]:
    """Return a chunk in the requested form; {} if nothing is left."""
    if with_usage:
        return {"usage": None, **chunk}
    return (
        {key: value for key, value in chunk.items() if key != "usage"} if chunk["choices"] else {}
    )


def _fault(error: CorralError) -> dict[str, Any]:
    code = error.code if isinstance(error, WireError) else "server_error"
    kind = "rate_limit_error" if code == "rate_limit_exceeded" else "server_error"
    return {"message": str(error), "type": kind, "param": error.field, "code": code}


async def completion(chunks: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
    """Combine chunks into a completion."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            whole.update({key: value for key, value in chunk.items() if value is not None})
            for choice in chunk["choices"]:
                _add(choices.setdefault(choice.get("index", 0), {}), choice)
    joined = [_joined(index, choices[index]) for index in sorted(choices)]
    return {**whole, "object": "chat.completion", "choices": joined}


def _add(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a delta of a choice, or of a part of it: texts and lists are extended."""
    for key, value in piece.items():
        before = whole.get(key)
        if key == "tool_calls" and value:
            whole[key] = before or {}
            _add_calls(whole[key], value)
        elif isinstance(value, dict):
            whole[key] = before or {}
            _add(whole[key], value)
        elif isinstance(value, str) and isinstance(before, str) and key in _CONTINUED:
            whole[key] = before + value
        elif isinstance(value, list) and isinstance(before, list):
            whole[key] = [*before, *value]
        elif value is not None or key not in whole:
            whole[key] = value


_CONTINUED = frozenset({"content", "refusal", "reasoning", "reasoning_content", "arguments"})
"""Texts that arrive in deltas; others arrive whole."""


def _add_calls(whole: dict[int, dict[str, Any]], calls: Sequence[Mapping[str, Any]]) -> None:
    for call in calls:
        _add(whole.setdefault(call.get("index", 0), {}), call)


def _joined(index: int, choice: Mapping[str, Any]) -> dict[str, Any]:
    delta = dict(choice.get("delta") or {})
    calls = delta.pop("tool_calls", None)
    message = {"role": "assistant", "content": None, "refusal": None, **delta}
    if calls:
        message["tool_calls"] = [
            {key: value for key, value in calls[at].items() if key != "index"}
            for at in sorted(calls)
        ]
    rest = {key: value for key, value in choice.items() if key != "delta"}
    return {"finish_reason": None, "logprobs": None, **rest, "index": index, "message": message}
