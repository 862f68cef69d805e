"""A small service on 127.0.0.1 that answers JSON as a function of the request, or misbehaves."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-very-secret"


@dataclass
class Reply:
    """What the service answers instead of its proper answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    hang_up: bool = False


@dataclass
class Service:
    """The running service: what it got, and what it shall answer.

    Attributes:
        url: Its address.
        answer: The proper answer to a request; bytes are a stream of events.
        requests: The bodies that it got; GETs are not among them.
        paths: The paths of these.
        headers: Their headers, names in lower case.
        replies: What the next requests are answered instead, GETs included.
        always: What every request is answered instead, once `replies` are used up.
    """

    answer: Callable[[dict[str, Any]], Any]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    always: Reply | None = None
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Reply | None:
        with self.lock:
            return self.replies.pop(0) if self.replies else self.always


def _proper(answer: Any) -> Reply:
    """Return an answer as JSON; an answer of bytes is a stream of events."""
    if isinstance(answer, bytes):
        return Reply(body=answer, headers={"content-type": "text/event-stream"})
    return Reply(body=json.dumps(answer).encode())


class Replying(BaseHTTPRequestHandler):
    """Sends replies, and logs nothing: the tests look at the log of the code under test."""

    protocol_version = "HTTP/1.1"
    released: threading.Event

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def json_body(self) -> dict[str, Any]:
        """Return the body of the request."""
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return body

    def reply(self, reply: Reply) -> None:
        """Send a reply, at once after `released`; the connection closes, and says so."""
        self.released.wait(reply.delay_seconds)
        self.close_connection = True
        if reply.hang_up:
            return
        self.send_response(reply.status)
        headers = {"content-length": str(len(reply.body)), "connection": "close"}
        for name, value in (headers | reply.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)


def _handler(service: Service) -> type[Replying]:
    class Handler(Replying):
        released = service.released

        def do_GET(self) -> None:
            with service.lock:
                service.paths.append(self.path)
            self.reply(service.take() or Reply(body=b"{}"))

        def do_POST(self) -> None:
            request = self.json_body()
            with service.lock:
                service.requests.append(request)
                service.paths.append(self.path)
                service.headers.append({k.lower(): v for k, v in self.headers.items()})
            self.reply(service.take() or _proper(service.answer(request)))

    return Handler


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on a free port of 127.0.0.1, and yield its address with `/v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that left
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running_service(answer: Callable[[dict[str, Any]], Any]) -> Iterator[Service]:
    """Run a service that answers so."""
    service = Service(answer)
    with served(_handler(service)) as service.url:
        try:
            yield service
        finally:
            service.released.set()


def closed_port() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
