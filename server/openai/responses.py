"""Responses: answers with citations from vector stores, streamed or whole, and stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from corral.api.errors import (
    Conflict,
    CorralError,
    NotFound,
    ProviderError,
)
from corral.providers.rag.answer import Answerer
from corral.providers.rag.answer_events import Ended, Usage
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack
from corral.server.access.roles import READER
from corral.server.errors import ERRORS, WireError, log_failure
from corral.server.openai import sse
from corral.server.openai.chat import model_failure, while_connected
from corral.server.openai.file_search import search_failure
from corral.server.openai.paging import (
    After,
    CursorOf,
    Limit,
    Ordered,
    continued,
    page_of_items,
)
from corral.server.openai.response_asking import Work, prepared
from corral.server.openai.response_requests import CreateResponse, WithResults
from corral.server.openai.response_stream import WireEvent, shown_item
from corral.server.openai.routes import OpenAIRoute, json_response
from corral.server.routing import RagToolOf, StackOf

router = APIRouter(
    prefix="/v1/responses", tags=["Answers"], route_class=OpenAIRoute, responses=ERRORS
)

DEFAULT_LIMIT = 50
"""Maximum responses of a page; OGX's limit."""
FIRST_SECONDS = 1.0
"""During this time a failure of the model is an HTTP error; then the stream starts."""

_BEFORE = frozenset(
    f"response.{name}"
    for name in (
        "created",
        "in_progress",
        "file_search_call.in_progress",
        "file_search_call.searching",
    )
)
"""Events that reveal neither output of the model nor the outcome of a search."""

_CODES = {
    "rate_limit_exceeded": "rate_limit_exceeded",
    "vector_store_timeout": "vector_store_timeout",
    "context_length_exceeded": "invalid_prompt",
    "invalid_prompt": "invalid_prompt",
}
"""Codes of a failed response by the codes of errors; `server_error` for the others."""


@router.post("", summary="Create a response", dependencies=[READER])
async def create(
    request: CreateResponse, http: Request, stack: StackOf, tool: RagToolOf
) -> Response:
    """Answer a question, and search vector stores for it with the tool `file_search`.

    The model `corral/ID` answers from the vector DB of that id without a tool.
    """
    work = await prepared(request, stack)
    events = written(work, stack, tool)
    if request.stream:
        waiting: asyncio.Queue[WireEvent | Exception | None] = asyncio.Queue()
        reader = asyncio.create_task(_read(events, waiting))
        try:
            first = await while_connected(http, _first(waiting))
        except CorralError as error:
            raise failure(error, work) from error
        except BaseException:
            reader.cancel()
            raise
        return sse.stream(_rest(first, waiting, reader, work), named=True)

    async def whole() -> None:
        async with aclosing(events):
            async for _ in events:
                pass

    try:
        await while_connected(http, whole())
    except CorralError as error:
        raise failure(error, work) from error
    return json_response(work.writer.shown())


async def written(work: Work, stack: Stack, tool: RagTool) -> AsyncGenerator[WireEvent, None]:
    """Yield the events of a response; it is stored before the last one.

    Raises:
        CorralError: The search or the model failed, or the conversation is busy.
    """
    conversation_id = work.request.conversation_id
    conversations, writer = stack.conversations, work.writer
    answerer = Answerer(tool.on(work.library), work.library)
    if conversation_id is not None:
        await conversations.lock(conversation_id, work.newest)
    try:
        for event in writer.begin():
            yield event
        ended = Ended("stop", Usage())
        async with aclosing(answerer.answer(work.ask)) as events:
            async for each in events:
                for event in writer.write(each):
                    yield event
                ended = each if isinstance(each, Ended) else ended
        last = writer.end(ended)
        is_stored = work.request.store is not False
        if is_stored or conversation_id is not None:
            await conversations.save(
                writer.response, work.inputs, conversation_id, is_stored=is_stored
            )
            conversation_id = None
        for event in last:
            yield event
    finally:
        if conversation_id is not None:
            await conversations.unlock(conversation_id)


async def _read(
    events: AsyncGenerator[WireEvent, None], waiting: asyncio.Queue[WireEvent | Exception | None]
) -> None:
    """Put the events into a queue, then None or the error."""
    try:
        async with aclosing(events):
            async for event in events:
                await waiting.put(event)
    except Exception as error:  # noqa: BLE001 - the reader of the queue raises or reports it
        await waiting.put(error)
    else:
        await waiting.put(None)


async def _first(waiting: asyncio.Queue[WireEvent | Exception | None]) -> list[WireEvent]:
    """Return the events up to the first informative one, waiting at most `FIRST_SECONDS`.

    Raises:
        Exception: The failure, if one occurred by then.
    """
    first: list[WireEvent] = []
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            while not first or first[-1]["type"] in _BEFORE or _begins_search(first[-1]):
                event = await waiting.get()
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    break
                first.append(event)
    except TimeoutError:
        pass
    return first


def _begins_search(event: WireEvent) -> bool:
    return bool(event.get("item", {}).get("type") == "file_search_call")


async def _rest(
    first: Sequence[WireEvent],
    waiting: asyncio.Queue[WireEvent | Exception | None],
    reader: asyncio.Task[None],
    work: Work,
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Yield all events of a stream; after a failure, the events that report it."""
    try:
        for event in first:
            yield event
        while (following := await waiting.get()) is not None:
            if isinstance(following, Exception):
                for event in _failed(following, work):
                    yield event
                return
            yield following
    finally:
        reader.cancel()


def _failed(error: Exception, work: Work) -> list[WireEvent]:
    if not isinstance(error, CorralError):
        log_failure(error)
        return work.writer.fail("server_error", "The server failed.")
    shown = failure(error, work)
    code = shown.code if isinstance(shown, WireError) else ""
    return work.writer.fail(_CODES.get(code, "server_error"), str(shown))


def failure(error: CorralError, work: Work) -> CorralError:
    """Return the error for a failed search, model or conversation."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, Conflict):
        return WireError(
            409, "conversation_locked", error.message, hint=error.hint, field=error.field
        )
    if work.writer.is_searching:
        return search_failure(error, f"{work.place}.vector_store_ids" if work.place else "model")
    if isinstance(error, ProviderError):
        refusal = model_failure(error)
        refusal.field = "input" if refusal.field == "messages" else refusal.field
        return refusal
    return error


# --- stored responses ----------------------------------------------------------------------


@router.get("", summary="List responses")
async def list_responses(
    stack: StackOf,
    with_results: WithResults,
    after: After = None,
    limit: Limit = DEFAULT_LIMIT,
    order: Ordered = "desc",
    model: Annotated[str | None, Query(description="Only responses of this model.")] = None,
) -> Response:
    """Return a page of the caller's stored responses, each with its input.

    OGX and Llama Stack have this route; OpenAI does not.
    """
    with continued():
        stored = await stack.conversations.responses(
            after=after, limit=limit + 1, order=order, model=model
        )
    page = [_shown(each, with_results) for each in stored[:limit]]
    return json_response(
        {
            "object": "list",
            "data": page,
            # OGX's client refuses null here.
            "first_id": page[0]["id"] if page else "",
            "last_id": page[-1]["id"] if page else "",
            "has_more": len(stored) > limit,
        }
    )


@router.get("/{response_id}", summary="Get a response")
async def retrieve(
    response_id: str,
    stack: StackOf,
    with_results: WithResults,
    stream: Annotated[bool, Query(description="Must be false.")] = False,
) -> Response:
    """Return a stored response."""
    if stream:
        raise WireError(
            400, "unsupported_value", "A stored response is not streamed again.", field="stream"
        )
    return json_response(_shown(await _stored(response_id, stack), with_results))


@router.delete("/{response_id}", summary="Delete a response", dependencies=[READER])
async def delete(response_id: str, stack: StackOf) -> Response:
    """Delete a stored response."""
    with _not_found():
        await stack.conversations.delete_response(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


@router.post("/{response_id}/cancel", summary="Cancel a response", dependencies=[READER])
async def cancel(response_id: str, stack: StackOf) -> Response:
    """Refuse: only responses generated in the background can be canceled."""
    await _stored(response_id, stack)
    raise WireError(
        409, "response_not_cancellable", "The response is complete.", field="response_id"
    )


@router.get("/{response_id}/input_items", summary="List the input of a response")
async def list_inputs(
    response_id: str,
    stack: StackOf,
    cursor: CursorOf,
    with_results: WithResults,
) -> Response:
    """Return a page of the items of a request."""
    with _not_found():
        items = await stack.conversations.inputs(response_id)
    shown = [shown_item(each, with_results=with_results) for each in items]
    return json_response(page_of_items(shown, cursor))


def _shown(response: Mapping[str, Any], with_results: bool) -> dict[str, Any]:
    """Return a stored response as a client sees it."""
    items = {
        name: [shown_item(each, with_results=with_results) for each in response[name]]
        for name in ("input", "output")
        if name in response
    }
    return {**response, **items}


async def _stored(response_id: str, stack: Stack) -> dict[str, Any]:
    with _not_found():
        return await stack.conversations.response(response_id)


@contextmanager
def _not_found() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise WireError(
            404, "response_not_found", error.message, hint=error.hint, field="response_id"
        ) from None
