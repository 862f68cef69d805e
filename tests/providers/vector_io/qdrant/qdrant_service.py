"""A service on 127.0.0.1 that speaks those parts of Qdrant's REST interface that Corral uses.

No Qdrant server can be installed from a package registry. What this one answers comes from the
client's own local mode; what is tested with it is the way there and back, and what happens when
the service is slow, refuses, or is killed. Where a server refuses what the local mode accepts, the
refusal is a rule in `qdrant_rules.py`.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel
from qdrant_client import QdrantClient, models
from qdrant_client.local import local_collection

from .qdrant_masks import mask
from .qdrant_rules import CLOUD, Body, Refused, Schema, check

local_collection.calculate_payload_mask = mask  # type: ignore[attr-defined]  # its own import

_ROUTE = re.compile(r"/collections/([^/?]+)(/[^?]*)?")


@dataclass
class Service:
    """The service: what it stores, what it got, and how it shall misbehave.

    `broken` maps a route such as `PUT /points` to a status, or to 0 for hanging up; `late` maps one
    to the seconds by which its answer comes after the work is done. A proxy before the service
    does not pass the routes in `lacking`. While the service is `optimizing`, counts that are not
    exact are estimates, as those of a segment that is being rewritten.
    """

    port: int = 0
    store: QdrantClient = field(default_factory=lambda: QdrantClient(":memory:"))
    requests: list[str] = field(default_factory=list)
    api_keys: set[str | None] = field(default_factory=set)
    encodings: set[str | None] = field(default_factory=set)
    broken: dict[str, int] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    version: str = "1.19.0"
    strict: Body = field(default_factory=lambda: dict(CLOUD))
    optimizing: bool = False
    asked: list[tuple[str, Body]] = field(default_factory=list)
    indexes: defaultdict[str, Schema] = field(default_factory=lambda: defaultdict(dict))
    late: dict[str, float] = field(default_factory=dict)
    delay_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    counted: dict[str, Any] = field(default_factory=dict)
    server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        self.server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """Close every connection, in the middle of a request too; what is stored stays."""
        server, self.server = self.server, None
        if isinstance(server, _Server):
            server.shutdown()
            server.server_close()
            server.hang_up()

    def answer(self, route: str, name: str, body: Body) -> Any:
        """Return what the store says to a request.

        The local mode looks into every point to count some, where a server has an index; so counts
        are kept until the next write.
        """
        check(self.version, self.strict, self.indexes[name], route, body)
        with self.lock:
            if route in _OWN:
                return _OWN[route](self, name, body)
            if route not in _COUNTING:
                if route not in _READING:
                    self.counted.clear()
                return _ROUTES[route](self.store, name, body)
            request = json.dumps([route, name, body])
            if request not in self.counted:
                self.counted[request] = _ROUTES[route](self.store, name, body)
            return self.estimated(self.counted[request], route, body)

    def estimated(self, result: Any, route: str, body: Body) -> Any:
        """Return a count, too large by half where a server only estimates it."""
        if self.optimizing and route == "POST /points/count" and not body["exact"]:
            return {"count": result.count + (result.count + 1) // 2}
        return result


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # connections that wait to be taken; five are reset on a busy machine

    def __init__(self, *arguments: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def hang_up(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has gone by itself


def _query(store: QdrantClient, name: str, body: Body) -> Any:
    asked = models.QueryRequest.model_validate(body)
    return store.query_points(
        name,
        query=asked.query,
        using=asked.using,
        prefetch=asked.prefetch,
        query_filter=asked.filter,
        limit=asked.limit or 10,
        with_payload=asked.with_payload or False,
        with_vectors=asked.with_vector or False,
    )


def _scroll(store: QdrantClient, name: str, body: Body) -> Any:
    asked = models.ScrollRequest.model_validate(body)
    records, following = store.scroll(
        name,
        scroll_filter=asked.filter,
        limit=asked.limit or 10,
        offset=asked.offset,
        with_payload=asked.with_payload or False,
        with_vectors=asked.with_vector or False,
    )
    return {"points": _plain(records), "next_page_offset": following}


def _retrieve(store: QdrantClient, name: str, body: Body) -> Any:
    asked = models.PointRequest.model_validate(body)
    return store.retrieve(name, asked.ids, asked.with_payload or False, asked.with_vector or False)


def _create(store: QdrantClient, name: str, body: Body) -> Any:
    asked = models.CreateCollection.model_validate(body)
    return store.create_collection(
        name,
        vectors_config=asked.vectors or {},
        sparse_vectors_config=asked.sparse_vectors,
    )


def _count(store: QdrantClient, name: str, body: Body) -> Any:
    return store.count(name, models.CountRequest.model_validate(body).filter)


def _facet(store: QdrantClient, name: str, body: Body) -> Any:
    asked = models.FacetRequest.model_validate(body)
    return store.facet(
        name, asked.key, asked.filter, limit=asked.limit or 10, exact=bool(asked.exact)
    )


def _upsert(store: QdrantClient, name: str, body: Body) -> Any:
    return store.upsert(name, models.PointsList.model_validate(body).points)


def _delete(store: QdrantClient, name: str, body: Body) -> Any:
    return store.delete(name, models.PointIdsList.model_validate(body))


def _info(service: Service, name: str, _: Body) -> Any:
    info: Body = service.store.get_collection(name).model_dump(mode="json")
    info["status"] = "yellow" if service.optimizing else "green"
    info["config"]["strict_mode_config"] = service.strict
    info["payload_schema"] = {
        field: {"data_type": params["type"], "params": params, "points": 0}
        for field, params in service.indexes[name].items()
    }
    return info


def _make_index(service: Service, name: str, body: Body) -> Any:
    schema = body["field_schema"]
    service.store.get_collection(name)
    service.indexes[name][body["field_name"]] = (
        {"type": schema} if isinstance(schema, str) else schema
    )
    return {"operation_id": 0, "status": "completed"}


def _drop_index(service: Service, name: str, body: Body) -> Any:
    service.indexes[name].pop(body["field_name"], None)
    return {"operation_id": 0, "status": "completed"}


_OWN: dict[str, Callable[[Service, str, Body], Any]] = {
    "GET ": _info,
    "PUT /index": _make_index,
    "DELETE /index": _drop_index,
}

_ROUTES: dict[str, Callable[[QdrantClient, str, Body], Any]] = {
    "GET /collections": lambda store, *_: store.get_collections(),  # the one route without a name
    "GET /exists": lambda store, name, _: {"exists": store.collection_exists(name)},
    "PUT ": _create,
    "DELETE ": lambda store, name, _: store.delete_collection(name),
    "PUT /points": _upsert,
    "POST /points": _retrieve,
    "POST /points/query": _query,
    "POST /points/scroll": _scroll,
    "POST /points/count": _count,
    "POST /points/delete": _delete,
    "POST /facet": _facet,
}

_COUNTING = {"POST /points/count", "POST /facet"}
_READING = {*_COUNTING, "GET /exists", "POST /points", "POST /points/query", "POST /points/scroll"}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _pause(seconds: float) -> None:
    if seconds:  # a pause of 0 would give the processor away twice in each request
        time.sleep(seconds)


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer waits for 40 ms
        wbufsize = -1  # an answer is sent in one piece, and the client wakes once

        def respond(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            found = _ROUTE.match(self.path)
            name, rest = (found[1], found[2] or "") if found else ("", self.path)
            body = json.loads(data) if data else {}
            if rest.startswith("/index/"):
                rest, body = "/index", {"field_name": rest.removeprefix("/index/")}
            route = f"{self.command} {rest}"
            service.requests.append(route)
            service.asked.append((route, body))
            service.api_keys.add(self.headers.get("api-key"))
            service.encodings.add(self.headers.get("accept-encoding"))
            _pause(service.delay_seconds)
            status = service.broken.get(route, 200)
            if status == 0:
                self.close_connection = True
            elif route in service.lacking:
                self.send(404, b"<html>404 page not found</html>", "text/html")
            elif route == "GET /":
                about = {"title": "qdrant - vector search engine", "version": service.version}
                self.send(status, json.dumps(about).encode(), "application/json")
            else:
                self.reply(status, route, name, body)

        def reply(self, status: int, route: str, name: str, body: Body) -> None:
            answer: Body = {"status": {"error": f"no, because of {name}"}, "time": 0.0}
            if status == 200:
                try:
                    result = _plain(service.answer(route, name, body))
                    answer = {"status": "ok", "time": 0.0, "result": result}
                except Refused as refusal:
                    status, answer["status"] = refusal.status, {"error": refusal.text}
                except ValueError:  # how the local mode says that a collection is not there
                    status = 404
            _pause(service.late.get(route, 0))
            self.send(status, json.dumps(answer).encode(), "application/json")

        def send(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = respond

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                return  # killed in the middle

        def finish(self) -> None:
            try:
                super().finish()
            except OSError:
                return

    return Handler


@contextmanager
def running_service() -> Iterator[Service]:
    """Run a service for the length of a block."""
    service = Service()
    service.start()
    try:
        yield service
    finally:
        service.kill()
        service.store.close()
