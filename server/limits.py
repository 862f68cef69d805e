"""Limits of one request: the operator's `server.limits`, each with its refusal.

The body is checked here, before anything reads it; the routes check counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.api.errors import InvalidRequest
from corral.api.options import MaxChunks
from corral.providers.base.config import Limits, RunConfig
from corral.server.errors import error_response

MIB = 1024 * 1024

UPLOAD_PATHS = ("/v1/files", "/v1/openai/v1/files")
FORM_BYTES = 64 * 1024
"""Maximum bytes of the form around an uploaded file."""

SNAPSHOTS = "/v1/snapshots"
"""The route with a whole vector DB as body, which is written to disk as it arrives."""

LINGER_SECONDS = 2.0
"""Time to read and discard a refused body. Many clients read the response only after they have sent
everything, and lose it if the connection closes immediately."""


class _BodyTooLarge(Exception):
    """A body exceeded the limit while it was read."""


class BodyLimit:
    """ASGI middleware that answers 413 to a body over its limit, without waiting for its end.

    That is `server.limits.max_body_mib`, `files.max_mib` for an uploaded file, and
    `server.limits.max_snapshot_mib` for a snapshot. Checks a declared length before the first byte
    and a chunked body while it arrives. Discards the body and closes the connection soon after the
    response.
    """

    def __init__(self, app: ASGIApp, settings: RunConfig) -> None:
        self.app = app
        self._bodies = (settings.server.limits.max_body_mib, "server.limits.max_body_mib")
        self._files = (settings.files.max_mib, "files.max_mib")
        self._snapshots = (
            settings.server.limits.max_snapshot_mib,
            "server.limits.max_snapshot_mib",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_file = scope["method"] == "POST" and scope["path"] in UPLOAD_PATHS
        is_snapshot = scope["path"] == SNAPSHOTS
        bodies = self._snapshots if is_snapshot else self._bodies
        most_mib, setting = self._files if is_file else bodies
        most = int(most_mib * MIB) + (FORM_BYTES if is_file else 0)
        declared = Headers(scope=scope).get("content-length", "")
        read = int(declared[:20]) if declared.isascii() and declared.isdigit() else 0
        if read > most:
            await refuse(_too_large(most_mib, setting), receive, send)
            return
        read = 0

        async def counting() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise _BodyTooLarge
            return message

        async def sending(message: Message) -> None:
            if read <= most:  # a form parser may treat the exception as a malformed form
                await send(message)

        with suppress(_BodyTooLarge):
            await self.app(scope, counting, sending)
        if read > most:
            await refuse(_too_large(most_mib, setting), receive, send)


def _too_large(most_mib: float, setting: str) -> Response:
    message = (
        f"The body is larger than {most_mib:g} MiB. Send less at once; "
        f"the operator's setting is {setting}."
    )
    return error_response(413, "body_too_large", message, headers={"connection": "close"})


async def refuse(response: Response, receive: Receive, send: Send) -> None:
    """Send a response before the request's body was read, and discard the rest of the body."""
    start = {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }
    await send(start)
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def check_count(items: Collection[object], most: int, *, field: str, setting: str) -> None:
    """Refuse a list with more items than a setting of `server.limits` allows.

    Raises:
        InvalidRequest: The list is longer.
    """
    if len(items) > most:
        raise InvalidRequest(
            f"{field} must have <= {most} items (got {len(items)}).",
            hint=f"Send fewer at once; the operator's setting is server.limits.{setting}.",
            field=field,
        )


def check_max_chunks(max_chunks: MaxChunks, limits: Limits, *, field: str) -> None:
    """Refuse a query for more hits than `server.limits.max_k` allows.

    Raises:
        InvalidRequest: The query asks for more.
    """
    if max_chunks != "auto" and max_chunks > limits.max_k:
        raise InvalidRequest(
            f"{field} must be <= {limits.max_k} (got {max_chunks}).",
            hint="Ask for fewer; the operator's setting is server.limits.max_k.",
            field=field,
        )
