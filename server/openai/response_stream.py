"""A response during generation: converts the events of an answer to events of the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from corral.providers.rag.answer_events import (
    Arguments,
    Cited,
    Ended,
    Event,
    FunctionCall,
    Refusal,
    Searched,
    Searching,
    Text,
    Usage,
)
from corral.server.openai.citing import annotation, search_result
from corral.server.openai.response_items import Item, new_id

WireEvent: TypeAlias = dict[str, Any]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reason of an incomplete response, by the model's reason to stop."""


def shown_item(item: Mapping[str, Any], *, with_results: bool) -> Item:
    """Return an item as a client sees it: the results of a search only on request."""
    if item["type"] == "file_search_call" and not with_results:
        return {**item, "results": None}
    return {**item}


class ResponseWriter:
    """Writes one response.

    Args:
        echo: The fields that repeat the request.
        with_results: True to show the results of searches.

    Attributes:
        response: The response so far, with all results.
    """

    def __init__(self, echo: Mapping[str, Any], *, with_results: bool) -> None:
        self.response: dict[str, Any] = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            **echo,
        }
        self._with_results = with_results
        self._count = 0
        self._output: list[Item] = self.response["output"]
        self._message: Item = {}  # the open one, if any
        self._search: Item = {}
        self._calls: dict[str, Item] = {}
        self._generated: list[str] = []
        self._found: Mapping[str, Any] = {}

    # --- what is shown -------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """Return the response as the client sees it."""
        output = [shown_item(each, with_results=self._with_results) for each in self._output]
        return {**self.response, "output": deepcopy(output)}

    def begin(self) -> list[WireEvent]:
        """Return the first events."""
        names = ("response.created", "response.in_progress")
        return [self._event(name, response=self.shown()) for name in names]

    def write(self, event: Event) -> Iterator[WireEvent]:
        """Yield the events of the wire for an event of the answer."""
        match event:
            case Searching(queries):
                yield from self._close_message()
                yield from self._begin_search(queries)
            case Searched():
                yield from self._end_search(event)
            case Text(text):
                yield from self._open("output_text")
                yield from self._add("output_text", text)
            case Refusal(text):
                yield from self._open("refusal")
                yield from self._add("refusal", text)
            case Cited():
                yield from self._open("output_text")
                yield self._cite(event)
            case FunctionCall(call_id, name):
                yield from self._close_message()
                yield self._begin_call(call_id, name)
            case Arguments(call_id, text):
                call = self._calls[call_id]
                call["arguments"] += text
                yield self._of_item("response.function_call_arguments.delta", call, delta=text)
            case Ended():
                yield from self._close_all(event)

    @property
    def is_searching(self) -> bool:
        """True while a search has not ended."""
        return bool(self._search)

    def end(self, ended: Ended) -> list[WireEvent]:
        """Return the last event, after the answer has ended."""
        reason = _INCOMPLETE.get(ended.reason)
        status = "incomplete" if reason else "completed"
        self.response |= {
            "status": status,
            "completed_at": None if reason else int(time.time()),
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": _usage(ended.usage),
            "corral": self._about_the_search(),
        }
        return [self._event(f"response.{status}", response=self.shown())]

    def fail(self, code: str, message: str) -> list[WireEvent]:
        """Return the last events of a response that failed."""
        events = []
        if self._search:
            self._search["status"] = "failed"
            events.append(self._done(self._search))
            self._search = {}
        events += self._close_message("incomplete")
        for call in self._calls.values():
            call["status"] = "incomplete"
            events.append(self._done(call))
        self._calls = {}
        self.response |= {"status": "failed", "error": {"code": code, "message": message}}
        return [*events, self._event("response.failed", response=self.shown())]

    def _about_the_search(self) -> dict[str, Any] | None:
        if not self._found and not self._generated:
            return None
        numbers = ("token_count", "max_tokens")
        context = {name: self._found[name] for name in numbers if name in self._found}
        return {
            "confidence": self._found.get("confidence"),
            "generated_queries": self._generated,
            "context": {
                **context,
                "included": len(self._found.get("included_chunks", ())),
                "dropped": self._found.get("dropped", 0),
            },
        }

    # --- events --------------------------------------------------------------------------------

    def _event(self, kind: str, /, **fields: Any) -> WireEvent:
        event = {"type": kind, "sequence_number": self._count, **fields}
        self._count += 1
        return event

    def _place(self, item: Item) -> int:
        return next(n for n, each in enumerate(self._output) if each is item)

    def _of_item(self, kind: str, item: Item, /, **fields: Any) -> WireEvent:
        place = {"output_index": self._place(item), "item_id": item["id"]}
        return self._event(kind, **place, **fields)

    def _of_part(self, kind: str, /, **fields: Any) -> WireEvent:
        index = len(self._message["content"]) - 1
        return self._of_item(kind, self._message, content_index=index, **fields)

    def _whole(self, name: str, item: Item) -> WireEvent:
        """Return the event that adds or completes an item."""
        shown = deepcopy(shown_item(item, with_results=self._with_results))
        extra = {"response_id": self.response["id"]}  # OGX's clients read it
        return self._event(name, output_index=self._place(item), item=shown, **extra)

    def _begin_item(self, item: Item) -> WireEvent:
        self._output.append(item)
        return self._whole("response.output_item.added", item)

    def _done(self, item: Item) -> WireEvent:
        return self._whole("response.output_item.done", item)

    # --- searches ------------------------------------------------------------------------------

    def _begin_search(self, queries: Sequence[str]) -> Iterator[WireEvent]:
        item: Item = {
            "type": "file_search_call",
            "id": new_id("file_search_call"),
            "status": "in_progress",
            "queries": [],
            "results": None,
        }
        self._search = item
        yield self._begin_item(item)
        yield self._of_item("response.file_search_call.in_progress", item)
        item["status"], item["queries"] = "searching", list(queries)
        yield self._of_item("response.file_search_call.searching", item)

    def _end_search(self, event: Searched) -> Iterator[WireEvent]:
        item = self._search
        item["status"] = "completed"
        item["results"] = [search_result(each) for each in event.results]
        self._generated += event.queries
        self._found = event.metadata
        self._search = {}
        yield self._of_item("response.file_search_call.completed", item)
        yield self._done(item)

    # --- messages ------------------------------------------------------------------------------

    def _open(self, kind: str) -> Iterator[WireEvent]:
        """Start a message, and a part of this kind, unless one is open."""
        if not self._message:
            self._message = {
                "type": "message",
                "id": new_id("message"),
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
            yield self._begin_item(self._message)
        content = self._message["content"]
        if content and content[-1]["type"] == kind:
            return
        yield from self._close_part()
        part: Item = {"type": kind, "refusal": ""}
        if kind == "output_text":
            part = {"type": kind, "text": "", "annotations": [], "logprobs": []}
        content.append(part)
        extra = {"response_id": self.response["id"]}
        yield self._of_part("response.content_part.added", part=deepcopy(part), **extra)

    def _add(self, kind: str, text: str) -> Iterator[WireEvent]:
        part = self._message["content"][-1]
        if kind == "refusal":
            part["refusal"] += text
            yield self._of_part("response.refusal.delta", delta=text)
            return
        part["text"] += text
        yield self._of_part("response.output_text.delta", delta=text, logprobs=[])

    def _cite(self, cited: Cited) -> WireEvent:
        part = self._message["content"][-1]
        citation = annotation(cited, len(part["text"]))
        part["annotations"].append(citation)
        index = len(part["annotations"]) - 1
        name = "response.output_text.annotation.added"
        return self._of_part(name, annotation_index=index, annotation=dict(citation))

    def _close_part(self) -> Iterator[WireEvent]:
        content = self._message["content"]
        if not content:
            return
        part = content[-1]
        if part["type"] == "refusal":
            yield self._of_part("response.refusal.done", refusal=part["refusal"])
        else:
            yield self._of_part("response.output_text.done", text=part["text"], logprobs=[])
        extra = {"response_id": self.response["id"]}
        yield self._of_part("response.content_part.done", part=deepcopy(part), **extra)

    def _close_message(self, status: str = "completed") -> Iterator[WireEvent]:
        if not self._message:
            return
        yield from self._close_part()
        message, self._message = self._message, {}
        message["status"] = status
        yield self._done(message)

    # --- function calls ------------------------------------------------------------------------

    def _begin_call(self, call_id: str, name: str) -> WireEvent:
        item = {
            "type": "function_call",
            "id": new_id("function_call"),
            "call_id": call_id,
            "name": name,
            "arguments": "",
            "status": "in_progress",
        }
        self._calls[call_id] = item
        return self._begin_item(item)

    def _close_all(self, ended: Ended) -> Iterator[WireEvent]:
        """Close all open parts; an answer without text or function calls is an empty message."""
        if not self._calls and (not self._output or self._output[-1]["type"] != "message"):
            yield from self._open("output_text")
        status = "incomplete" if ended.reason in _INCOMPLETE else "completed"
        yield from self._close_message(status)
        for call in self._calls.values():
            call["status"] = status
            arguments = call["arguments"]
            yield self._of_item(
                "response.function_call_arguments.done",
                call,
                arguments=arguments,
                name=call["name"],
            )
            yield self._done(call)
        self._calls = {}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
