"""Read one call of a language model as its chunks arrive."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.provider import ChatChunk
from corral.providers.rag.answer_events import (
    Arguments,
    Cited,
    Event,
    FunctionCall,
    Refusal,
    Source,
    Text,
    Usage,
)
from corral.providers.rag.markers import CitationMarkers, Part
from corral.providers.text.tokens import tokenizer


@dataclass(slots=True)
class Call:
    """A function call by a model, complete once the turn has ended."""

    call_id: str
    name: str = ""
    arguments: str = ""


class Turn:
    """Converts the chunks of one model call to events, and collects the message for the next call.

    Args:
        sources: The sources that the text can cite, by number.
        functions: Names of the client's functions; calls of other functions produce no events.
    """

    def __init__(self, sources: Mapping[int, Source], functions: set[str]) -> None:
        self._sources, self._functions = sources, functions
        self._markers = CitationMarkers(sources.__contains__)
        self._calls: dict[int, Call] = {}
        self._text = ""
        self._counted: Mapping[str, Any] | None = None
        self.reason = "stop"

    async def read(self, chunks: AsyncIterator[ChatChunk]) -> AsyncIterator[Event]:
        """Yield the events of the model's first choice."""
        async for chunk in chunks:
            self._counted = chunk.get("usage") or self._counted
            for choice in chunk["choices"]:
                if not choice.get("index"):
                    for event in self._events(choice.get("delta") or {}):
                        yield event
                    self.reason = choice.get("finish_reason") or self.reason
        for part in self._markers.end():
            yield self._event(part)

    def calls(self) -> list[Call]:
        """Return the function calls in the model's order."""
        return [self._calls[index] for index in sorted(self._calls)]

    def is_for_client(self, call: Call) -> bool:
        """Return True if a call is to one of the client's functions."""
        return call.name in self._functions

    def message(self) -> dict[str, Any]:
        """Return the model's message, unchanged, to send with the next call."""
        calls = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in self.calls()
        ]
        return {"role": "assistant", "content": self._text or None, "tool_calls": calls}

    def usage(self, messages: Sequence[Mapping[str, Any]]) -> Usage:
        """Return the token counts that the model reported, or else count with cl100k.

        Args:
            messages: The messages that were sent.
        """
        counted = self._counted
        if counted is None:
            written = self._text + "".join(call.name + call.arguments for call in self.calls())
            sent = json.dumps(messages, ensure_ascii=False, default=str)
            count = tokenizer().count
            return Usage(count(sent), count(written))
        return Usage(
            counted.get("prompt_tokens") or 0,
            counted.get("completion_tokens") or 0,
            _detail(counted, "prompt_tokens_details", "cached_tokens"),
            _detail(counted, "completion_tokens_details", "reasoning_tokens"),
        )

    def _events(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        if text := delta.get("content"):
            self._text += text
            yield from map(self._event, self._markers.feed(text))
        if refusal := delta.get("refusal"):
            yield Refusal(refusal)
        for each in delta.get("tool_calls") or ():
            yield from self._called(each)

    def _event(self, part: Part) -> Event:
        return Text(part) if isinstance(part, str) else Cited(self._sources[part])

    def _called(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        index = piece.get("index", 0)
        function = piece.get("function") or {}
        if index not in self._calls:
            self._calls[index] = Call(piece.get("id") or f"call_{uuid.uuid4().hex}")
        call = self._calls[index]
        if function.get("name") and not call.name:
            call.name = function["name"]
            if self.is_for_client(call):
                yield FunctionCall(call.call_id, call.name)
        if arguments := function.get("arguments"):
            call.arguments += arguments
            if self.is_for_client(call):
                yield Arguments(call.call_id, arguments)


def _detail(counted: Mapping[str, Any], part: str, name: str) -> int:
    details = counted.get(part)
    count = details.get(name) if isinstance(details, dict) else None
    return count if isinstance(count, int) else 0
