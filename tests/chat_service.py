"""A language model service that replays scripted chat streams, on 127.0.0.1."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from .providers.json_service import served

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def piece(content: Any = None, finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk with that text, and other fields of its delta."""
    choice = {"index": 0, "delta": {"content": content, **delta}, "finish_reason": finish_reason}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}


def events(*objects: Any, end: bool = True) -> bytes:
    """Return a stream of server-sent events, as a chat service sends it."""
    lines = [f"data: {json.dumps(each)}\n\n" for each in objects]
    return "".join([*lines, "data: [DONE]\n\n"] if end else lines).encode()


@dataclass
class Pause:
    """The stream stands still until it is released.

    Attributes:
        is_silent: False to send comments until then; a write fails once the client has left.
    """

    is_silent: bool = False
    released: threading.Event = field(default_factory=threading.Event)


@dataclass
class Script:
    """One answer of the service.

    Attributes:
        status: HTTP status.
        events: Chunks, texts that are sent as they are, and pauses; then `[DONE]`.
        body: What is sent instead, as JSON.
        is_cut: Whether the connection is closed before `[DONE]`.
    """

    events: Sequence[Any] = ()
    status: int = 200
    body: Any = None
    is_cut: bool = False


def said(*pieces: str) -> Script:
    """Return the script of a text in pieces."""
    end = [piece(finish_reason="stop"), {"choices": [], "usage": USAGE}]
    return Script([*map(piece, pieces), *end])


@dataclass
class ChatService:
    """The running service.

    Attributes:
        url: Its address, with `/v1`.
        scripts: The answers to the next requests; the last one stays.
        requests: The bodies that it got.
        left: Set when a client closed the connection before the end.
    """

    scripts: list[Script] = field(default_factory=lambda: [said("Hello", " there")])
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, request: dict[str, Any]) -> Script:
        """Record a request, and return its answer."""
        with self.lock:
            self.requests.append(request)
            return self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]


def _handler(service: ChatService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            script = service.next(request)
            self.close_connection = True
            self.send_response(script.status)
            streams = script.body is None and script.status == 200
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            if not streams:
                self.wfile.write(json.dumps(script.body).encode())
                return
            try:
                for event in script.events:
                    self._send(event)
                if not script.is_cut:
                    self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                service.left.set()

        def _send(self, event: Any) -> None:
            if isinstance(event, Pause):
                while not event.released.wait(0.02):
                    if event.is_silent:
                        continue
                    self.wfile.write(b": waiting\n\n")
                    self.wfile.flush()
                return
            text = event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
            self.wfile.write(text.encode())
            self.wfile.flush()

    return Handler


@contextmanager
def running_chat() -> Iterator[ChatService]:
    """Run a service on a free port."""
    service = ChatService()
    with served(_handler(service)) as service.url:
        yield service
