"""The outermost layer of the server: request ids, the access log, and unexpected exceptions."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.api.spans import Watcher, span, watched_by
from corral.server.errors import error_response, internal_error
from corral.server.request import REQUEST_ID, request_id, template_of

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Headers of every response that does not set them itself, as pages do. Replies contain documents,
so caches must not store them, and no other origin may frame them."""
CLIENT_LEFT = 499
"""Status in the access log if the client closed the connection before its body was complete."""
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

access_log = logging.getLogger("corral.access")


class Envelope:
    """ASGI middleware around everything else.

    * Every response carries `x-request-id`: the caller's, or a new one; and `SECURITY_HEADERS`.
      While the server stops, it also ends the connection.
    * One line per request at INFO: method, route, status, time, id. The route is the template, not
      the path, so neither names nor query strings nor bodies are logged. An unknown path is logged
      up to its last known part: `/v1/*`.
    * An unexpected exception becomes a 500 in the common form.
    * The watchers see the request and the spans in it.

    Args:
        app: The next layer.
        routes: The routes of the app.
        watchers: Metrics and traces; may change while the app runs.
    """

    def __init__(
        self, app: ASGIApp, routes: Sequence[APIRoute], watchers: Sequence[Watcher] = ()
    ) -> None:
        self.app = app
        self._routes = routes
        self._watchers = watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID, "")
        own_id = given if _ACCEPTED_ID.fullmatch(given) else uuid.uuid4().hex
        scope[REQUEST_ID] = own_id
        request_id.set(own_id)
        about = {"method": scope["method"], "traceparent": headers.get("traceparent", "")}
        with watched_by(*self._watchers), span("request", **about) as seen:
            seen["status"] = await self._answer(scope, receive, send, own_id)
            seen["route"], seen["request_id"] = template_of(scope, self._routes), own_id

    async def _answer(self, scope: Scope, receive: Receive, send: Send, own_id: str) -> int:
        """Serve one request, log it, and return the response's status."""
        started = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = own_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["app"].state.draining:
                    headers["connection"] = "close"
            await send(message)

        try:
            await self._serve(scope, receive, sending)
        except ClientDisconnect:
            status = CLIENT_LEFT  # the client is gone
        except Exception as error:  # noqa: BLE001 - a bug becomes a 500 in the common form
            response = internal_error(error)
            if status == 0:  # otherwise the response has started, and it can only be cut off
                await response(scope, receive, sending)
        finally:
            route = template_of(scope, self._routes)
            elapsed = (time.perf_counter() - started) * 1000
            method = scope["method"]
            about = {"method": method, "route": route, "status": status, "milliseconds": elapsed}
            access_log.info(
                "%s %s %d %.1f ms %s", method, route, status, elapsed, own_id, extra=about
            )
        return status

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_text(scope.get("raw_path") or b""):
            await self.app(scope, receive, send)
            return
        # Servers decode such a path to U+FFFD, under which another vector DB may be registered.
        refusal = error_response(400, "invalid_request", "The path is not percent-encoded UTF-8.")
        await refusal(scope, receive, send)


def _is_text(raw_path: bytes) -> bool:
    try:
        unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
