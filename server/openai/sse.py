"""Server-sent events: a stream of JSON objects with keep-alive comments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse

KEEP_ALIVE_SECONDS = 15.0
"""Pause after which a comment keeps the connection open; clients ignore it."""

DONE = "data: [DONE]\n\n"


def stream(events: AsyncGenerator[Mapping[str, Any], None], *, named: bool) -> StreamingResponse:
    """Return the response that sends events, then `[DONE]`.

    Args:
        events: Must not raise. An object with only `error` is the last one; no `[DONE]` follows.
        named: True to write the `type` of each as the name of its event.
    """
    return StreamingResponse(
        _lines(events, named),
        media_type="text/event-stream; charset=utf-8",
        headers={"cache-control": "no-cache"},
    )


async def _lines(
    events: AsyncGenerator[Mapping[str, Any], None], named: bool
) -> AsyncIterator[str]:
    waiting: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(maxsize=1)
    # A separate task ends the model's call, because code canceled by a disconnect cannot await.
    reader = asyncio.create_task(_read(events, waiting))
    try:
        while True:
            try:
                event = await asyncio.wait_for(waiting.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                if reader.done() and waiting.empty():
                    await reader  # It failed: end the connection with the error.
                yield ": keep-alive\n\n"
                continue
            if event is None:
                yield DONE
                return
            name = f"event: {event['type']}\n" if named else ""
            # ASCII, because a model may emit half a character.
            yield f"{name}data: {json.dumps(event)}\n\n"
            if event.keys() == {"error"}:
                return
    finally:
        reader.cancel()


async def _read(
    events: AsyncGenerator[Mapping[str, Any], None],
    waiting: asyncio.Queue[Mapping[str, Any] | None],
) -> None:
    async with aclosing(events):
        async for event in events:
            await waiting.put(event)
    await waiting.put(None)
