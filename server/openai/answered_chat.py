"""Chat completions with a search: vector DBs as models, and the tool file_search."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from corral.api.errors import CorralError, InvalidRequest
from corral.api.options import checked
from corral.api.provider import ChatChunk
from corral.providers.base.config import AnswerSettings
from corral.providers.rag.answer import Ask, numbered
from corral.providers.rag.answer_events import (
    Arguments,
    Cited,
    Ended,
    Event,
    FunctionCall,
    Refusal,
    Searched,
    Searching,
    Source,
    Text,
    Usage,
)
from corral.providers.stack.stack import Stack
from corral.server.errors import WireError
from corral.server.openai.citing import annotation, search_result
from corral.server.openai.file_search import (
    FileSearchTool,
    check_stores,
    in_field,
    search_failure,
)

PREFIX = "corral/"
"""Prefix of the name of a model that is a vector DB."""

_OWN = frozenset({"model", "messages", "tools", "tool_choice", "stream", "stream_options", "n"})


async def ask_of(sent: Mapping[str, Any], stack: Stack) -> Ask | None:
    """Return the question of a request that needs a search.

    None if a language model answers it alone.

    Args:
        sent: The body of the request.

    Raises:
        InvalidRequest: The tool is malformed, or there are two.
        WireError: 404 for an unknown vector store.
    """
    tools: Any = sent.get("tools") or []
    if not isinstance(tools, list):
        raise InvalidRequest("tools must be a list.", field="tools")
    places = [
        place
        for place, each in enumerate(tools)
        if isinstance(each, dict) and each.get("type") == "file_search"
    ]
    vector_db_ids = await vector_dbs_of(sent["model"], stack)
    if not places and vector_db_ids is None:
        return None
    if len(places) > 1 or (places and vector_db_ids):
        raise InvalidRequest(
            "A request searches with one tool file_search, or by the model corral/ID.",
            hint="Name all vector stores in one tool.",
            field=f"tools[{places[-1]}]",
        )
    shared: dict[str, Any] = {
        "messages": sent["messages"],
        "functions": [
            _function(each, f"tools[{place}]")
            for place, each in enumerate(tools)
            if place not in places
        ],
        "tool_choice": sent.get("tool_choice"),
        "options": {name: value for name, value in sent.items() if name not in _OWN},
        "cites": sent.get("response_format") in (None, {"type": "text"}),
    }
    if vector_db_ids is not None:
        model = stack.answering_model()
        return Ask(model=model, vector_db_ids=vector_db_ids, search="first", **shared)
    tool = await _search_tool(tools[places[0]], stack, f"tools[{places[0]}]")
    always = stack.config.answers.file_search == "always"
    return Ask(
        model=sent["model"],
        vector_db_ids=tool.vector_store_ids,
        config=tool.config(),
        search="first" if always else "auto",
        **shared,
    )


async def _search_tool(given: Mapping[str, Any], stack: Stack, field: str) -> FileSearchTool:
    """Return the tool file_search, checked with its vector stores.

    Raises:
        InvalidRequest: The tool is malformed.
        WireError: 404 for an unknown vector store.
    """
    try:
        tool = checked(FileSearchTool, given)
        tool.config()
    except InvalidRequest as error:
        raise in_field(error, field) from None
    await check_stores(tool.vector_store_ids, stack, f"{field}.vector_store_ids")
    return tool


def _function(tool: Any, field: str) -> dict[str, Any]:
    """Return a tool as a function of the client.

    Raises:
        InvalidRequest: The tool is not a function.
    """
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest(
            f"{field} is no function and no file_search.",
            hint='Send {"type": "function", "function": {"name": ..., "parameters": ...}}.',
            field=field,
        )
    return {**tool}


async def vector_dbs_of(model: str, stack: Stack) -> list[str] | None:
    """Return the vector DBs that a model name refers to; None for other models.

    `corral/A+B` refers to A and B, unless a vector DB is called `A+B`.
    """
    name = model.removeprefix(PREFIX)
    if name == model:
        return None
    parts = [name] if await stack.registered([name]) else list(dict.fromkeys(name.split("+")))
    registered = await stack.registered(parts)
    unknown = [part for part in parts if part not in registered]
    if unknown:
        raise WireError(
            404,
            "model_not_found",
            f"Model {model!r} not found. Use 'client.models.list()' to list available Models.",
            hint=f"There is no vector DB {unknown[0]!r}.",
            field="model",
        )
    await check_stores(parts, stack, "model")
    return parts


async def answered(
    events: AsyncGenerator[Event, None], settings: AnswerSettings, field: str
) -> AsyncGenerator[ChatChunk, None]:
    """Yield the chunks of an answer.

    The last ones have its sources: in the text if configured, as citations in
    `provider_specific_fields`, and as annotations if they have an address, because clients that
    validate chats reject annotations of another type.

    Args:
        field: The request's field with the vector stores.

    Raises:
        CorralError: The search or the model failed.
    """
    writer = _Writer(settings.numbered_sources)
    has_begun = is_searching = False
    try:
        async with aclosing(events):
            async for event in events:
                is_searching = isinstance(event, Searching)
                # Before the model's first output, a failure is an HTTP error.
                if not has_begun and not isinstance(event, Searching | Searched):
                    has_begun = True
                    yield _chunk({"role": "assistant", "content": ""})
                if delta := writer.delta(event):
                    yield _chunk(delta)
                if isinstance(event, Ended):
                    for chunk in writer.end(event):
                        yield chunk
    except CorralError as error:
        raise (search_failure(error, field) if is_searching else error) from error


class _Writer:
    """The answer so far: length, citations, function calls."""

    def __init__(self, shows_numbers: bool) -> None:
        self._shows_numbers = shows_numbers
        self._length = 0
        self._cited: dict[int, Source] = {}
        self._citations: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._calls: list[str] = []

    def delta(self, event: Event) -> dict[str, Any]:
        """Return the part of the message that an event adds; {} for none."""
        match event:
            case Text(text):
                return self._text(text)
            case Cited(source):
                self._cited[source.number] = source
                self._cite(event)
                return self._text(f" [{source.number}]") if self._shows_numbers else {}
            case Searched(results=results):
                self._results += map(search_result, results)
            case Refusal(text):
                return {"refusal": text}
            case FunctionCall(call_id, name):
                self._calls.append(call_id)
                function = {"name": name, "arguments": ""}
                return self._call(call_id, id=call_id, type="function", function=function)
            case Arguments(call_id, text):
                return self._call(call_id, function={"arguments": text})
        return {}

    def end(self, ended: Ended) -> list[ChatChunk]:
        """Return the last chunks."""
        chunks: list[ChatChunk] = []
        if self._shows_numbers and self._cited:
            chunks.append(_chunk(self._text(numbered(self._cited))))
        shown = {"search_results": self._results, "citations": self._citations}
        fields = {name: value for name, value in shown.items() if value}
        delta = {
            **({"annotations": self._annotations} if self._annotations else {}),
            **({"provider_specific_fields": fields} if fields else {}),
        }
        chunks.append(_chunk(delta, "tool_calls" if self._calls else ended.reason))
        chunks.append({"choices": [], "usage": _usage(ended.usage)})
        return chunks

    def _text(self, text: str) -> dict[str, Any]:
        self._length += len(text)
        return {"content": text}

    def _cite(self, cited: Cited) -> None:
        self._citations.append(annotation(cited, self._length))
        url = cited.source.place.get("url")
        if url is None:
            return
        place = {"start_index": self._length, "end_index": self._length}
        shown = {**place, "url": url, "title": cited.source.place.get("title") or url}
        self._annotations.append({"type": "url_citation", "url_citation": shown})

    def _call(self, call_id: str, **fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": self._calls.index(call_id), **fields}]}


def _chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": reason}
    return {"choices": [choice]}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
