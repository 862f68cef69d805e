"""Rewrites refusals from the common format to others, for applications and browsers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

Rewrite: TypeAlias = Callable[[int, bytes], tuple[bytes, Mapping[str, str]]]
"""Returns the body and the headers to set for the (status, body) of a refusal."""


class RefusalRewriter:
    """Forwards a response; rewrites the body of a refusal (a status >= 400).

    Args:
        send: Receives the response.
        rewrite: Called once, with the whole body of a refusal.
    """

    def __init__(self, send: Send, rewrite: Rewrite) -> None:
        self._send, self._rewrite = send, rewrite
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """Forward a message of the response, or hold it until the refusal is complete."""
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        body, headers = self._rewrite(start["status"], self._body)
        MutableHeaders(raw=start["headers"]).update({**headers, "content-length": str(len(body))})
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
