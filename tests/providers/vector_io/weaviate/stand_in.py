"""A stand-in for a Weaviate server: the part of its REST and gRPC interface that Corral uses.

The real client talks to it over sockets, so requests and replies are the messages of the client's
own `weaviate.proto`. This is the server; `stand_in_collections.py` holds the objects and searches
them. What a real server refuses is refused here as well: filters on a property without an index,
answers beyond 10,000 objects. What it does unasked, this does too: an object of an unknown
collection makes one up, without the vector, and is refused for it (1.33).

It is no Weaviate. It was written from documentation and from the client's source, so it shares its
author's mistakes.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import grpc
from weaviate.proto.v1 import (
    aggregate_pb2,
    batch_delete_pb2,
    batch_pb2,
    search_get_pb2,
    weaviate_pb2_grpc,
)

from .stand_in_collections import (
    Class,
    Json,
    Refused,
    as_result,
    as_stored,
    complete,
    made_up,
    matching,
    nearest,
    passing,
)

MOST_RESULTS = 10_000


class StandIn:
    """A server on two free ports of 127.0.0.1; `stop` and `start` keep ports and objects.

    Attributes:
        version: What it says of itself.
        api_key: What it wants in each request; "" for nothing.
        delay_seconds: How long it waits before each answer over gRPC.
        late: By gRPC method, for how many calls it answers on time; each further call is carried
            out, and its answer comes a second late.
        refuse_after: Number of objects that are stored before each further one is refused; None
            refuses none.
        index_seconds: How long a written vector waits until a search finds it, as with
            ASYNC_INDEXING (1.33).
        minimum_factor: The least replication factor of a new collection, as with
            REPLICATION_MINIMUM_FACTOR (1.33).
        starting: Whether it answers without having loaded its schema, as for a second after a start
            (1.39).
        unheard: How many searches and counts it refuses because its node has not heard of the
            collection, as in a cluster after another node has made it (1.39, three nodes).
        requests: The gRPC methods called so far, each with its message.
    """

    def __init__(self) -> None:
        self.version = "1.33.0"
        self.api_key = ""
        self.delay_seconds = 0.0
        self.late: dict[str, int] = {}
        self.refuse_after: int | None = None
        self.index_seconds = 0.0
        self.minimum_factor = 1
        self.starting = False
        self.unheard = 0
        self.requests: list[tuple[str, Any]] = []
        self.classes: dict[str, Class] = {}
        self.lock = threading.RLock()
        self.http_port = self.grpc_port = 0
        self.start()

    @property
    def config(self) -> Json:
        """The settings of a provider for it."""
        return {"url": f"http://127.0.0.1:{self.http_port}", "grpc_port": self.grpc_port}

    def start(self) -> None:
        """Listen."""
        handler = type("Handler", (RestHandler,), {"stand_in": self})
        self._http = RestServer(("127.0.0.1", self.http_port), handler)
        self.http_port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.stopped = threading.Event()
        self._pool = ThreadPoolExecutor(8)
        self._grpc = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        register: Any = weaviate_pb2_grpc.add_WeaviateServicer_to_server
        register(Servicer(self), self._grpc)
        self.grpc_port = self._grpc.add_insecure_port(f"127.0.0.1:{self.grpc_port}")
        self._grpc.start()

    def crash(self) -> None:
        """Lose what a kill and a restart lose: vectors that no later request has flushed (1.33)."""
        for one in self.classes.values():
            one.lost |= one.unflushed
            one.changed()

    def stop(self) -> None:
        """Go away, connections and all; the objects stay."""
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()
        self.stopped.set()
        self._grpc.stop(None).wait()
        self._pool.shutdown()


# --- REST: meta and schema --------------------------------------------------------------------


class RestServer(ThreadingHTTPServer):
    """A server that can close its connections."""

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        super().__init__(address, handler)
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """Remember the connection."""
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def hang_up(self) -> None:
        """Close all connections; their threads end by it."""
        for connection in self._connections:
            with suppress(OSError):  # closed by the client
                connection.shutdown(socket.SHUT_RDWR)


class RestHandler(BaseHTTPRequestHandler):
    """The few routes of the schema."""

    stand_in: StandIn
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet an answer; two would wait for each other

    def do_GET(self) -> None:
        """Answer meta, the schema, and that of one collection."""
        if self.path == "/v1/meta":
            return self._answer(200, {"version": self.stand_in.version, "modules": {}})
        if self.path == "/v1/.well-known/ready":
            return self._answer(503 if self.stand_in.starting else 200, {})
        if self.stand_in.starting:
            return self._answer(404, {})
        if self.path.startswith("/v1/nodes/"):
            return self._nodes(urlsplit(self.path).path.removeprefix("/v1/nodes/"))
        if self.path == "/v1/schema":
            return self._answer(200, {"classes": [*map(_filled, self.stand_in.classes.values())]})
        found = self.stand_in.classes.get(self.path.removeprefix("/v1/schema/"))
        return self._answer(200, found.config) if found else self._answer(404, {})

    def _nodes(self, name: str) -> None:
        """Answer with the collection's one shard."""
        found = self.stand_in.classes.get(name)
        if found is None:
            return self._answer(404, {"error": [{"message": f'class "{name}" not found'}]})
        shard = {
            "class": name,
            "name": "shard",
            "objectCount": len(found.objects),
            "vectorIndexingStatus": "READY",
            "vectorQueueLength": len(found.waiting() - found.lost),
            "compressed": False,
            "loaded": True,
        }
        return self._answer(
            200, {"nodes": [{"name": "node1", "status": "HEALTHY", "shards": [shard]}]}
        )

    def do_POST(self) -> None:
        """Make a collection."""
        config = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.stand_in.lock:
            if config["class"] in self.stand_in.classes:
                return self._answer(422, {"error": [{"message": "class name already exists"}]})
            least = self.stand_in.minimum_factor
            factor = config.setdefault("replicationConfig", {}).setdefault("factor", least)
            if factor < least:
                said = "invalid replication factor: setup requires a minimum replication factor of"
                return self._answer(422, {"error": [{"message": f"{said} {least}: got {factor}"}]})
            self.stand_in.classes[config["class"]] = Class(complete(config))
        return self._answer(200, config)

    def do_DELETE(self) -> None:
        """Delete a collection; one that is gone is fine."""
        with self.stand_in.lock:
            self.stand_in.classes.pop(self.path.removeprefix("/v1/schema/"), None)
        self._answer(200, {})

    def do_PUT(self) -> None:
        """Change a collection's settings."""
        config = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.stand_in.lock:
            found = self.stand_in.classes.get(config["class"])
            if found is not None:
                found.config = config
        self._answer(200 if found else 404, config)

    def _answer(self, status: int, body: Json) -> None:
        key = self.stand_in.api_key
        if key and self.headers["Authorization"] != f"Bearer {key}":
            status, body = 401, {"code": 401, "message": "anonymous access not enabled"}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""


def _filled(found: Class) -> Json:
    """Return a collection's schema with what the server fills in and the client's list reads."""
    defaults = {"indexSearchable": True, "indexFilterable": True, "indexRangeFilters": False}
    properties = [{**defaults, **each} for each in found.config["properties"]]
    names = (
        "cleanupIntervalSeconds", "dynamicEfMin", "dynamicEfMax", "dynamicEfFactor", "ef",
        "efConstruction", "flatSearchCutoff", "maxConnections", "vectorCacheMaxObjects",
    )  # fmt: skip
    graph = {**dict.fromkeys(names, 1), "skip": False}
    vectors = {
        name: {**each, "vectorIndexConfig": {**graph, **each["vectorIndexConfig"]}}
        for name, each in found.config["vectorConfig"].items()
    }
    return {**found.config, "properties": properties, "vectorConfig": vectors}


# --- gRPC: objects, searches and counts ----------------------------------------------------------


class Servicer(weaviate_pb2_grpc.WeaviateServicer):
    """The methods of the service that Corral calls."""

    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in

    def BatchObjects(self, request: Any, context: Any) -> Any:
        """Store objects, each in place of one with its id."""
        return self._served("BatchObjects", self._insert, request, context)

    def BatchDelete(self, request: Any, context: Any) -> Any:
        """Delete the objects that pass."""
        return self._served("BatchDelete", self._delete, request, context)

    def Search(self, request: Any, context: Any) -> Any:
        """Search by vector or by words, or list."""
        return self._served("Search", self._search, request, context)

    def Aggregate(self, request: Any, context: Any) -> Any:
        """Count objects and add up an integer property."""
        return self._served("Aggregate", self._aggregate, request, context)

    def _served(self, name: str, method: Any, request: Any, context: Any) -> Any:
        stand_in = self._stand_in
        stand_in.requests.append((name, request))
        headers = dict(context.invocation_metadata())
        if stand_in.api_key and headers.get("authorization") != f"Bearer {stand_in.api_key}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
        stand_in.stopped.wait(stand_in.delay_seconds)
        with stand_in.lock:
            try:
                reply = method(request)
            except Refused as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))
            on_time = stand_in.late.get(name, 1)
            if name in stand_in.late:
                stand_in.late[name] -= 1
        stand_in.stopped.wait(0 if on_time > 0 else 30)
        return reply

    def _class(self, name: str) -> Class:
        if name not in self._stand_in.classes or self._stand_in.starting:
            raise Refused(f"could not find class {name} in schema")
        if self._stand_in.unheard > 0:
            self._stand_in.unheard -= 1
            raise Refused(f"aggregate: tried to browse non-existing index for {name}")
        return self._stand_in.classes[name]

    def _insert(self, request: batch_pb2.BatchObjectsRequest) -> batch_pb2.BatchObjectsReply:
        stand_in, errors = self._stand_in, []
        written: dict[str, set[str]] = {}
        for number, one in enumerate(request.objects):
            if stand_in.refuse_after == 0:
                errors.append(
                    batch_pb2.BatchObjectsReply.BatchError(index=number, error="disk is full")
                )
                continue
            if stand_in.refuse_after is not None:
                stand_in.refuse_after -= 1
            if one.collection not in stand_in.classes:
                stand_in.classes[one.collection] = Class(made_up(one.collection))
            target = stand_in.classes[one.collection]
            if (
                unknown := {v.name for v in one.vectors}
                - target.config.get("vectorConfig", {}).keys()
            ):
                said = (
                    f"collection {one.collection} does not have configuration for vector {unknown}"
                )
                errors.append(batch_pb2.BatchObjectsReply.BatchError(index=number, error=said))
                continue
            i = str(uuid.UUID(one.uuid))
            target.put(i, as_stored(one))
            written.setdefault(one.collection, set()).add(i)
            if stand_in.index_seconds:
                target.queue[i] = time.monotonic() + stand_in.index_seconds
            target.changed()
        for name, ids in written.items():  # what came before is flushed, these are not (1.39)
            stand_in.classes[name].unflushed = ids
        return batch_pb2.BatchObjectsReply(errors=errors)

    def _delete(
        self, request: batch_delete_pb2.BatchDeleteRequest
    ) -> batch_delete_pb2.BatchDeleteReply:
        target = self._class(request.collection)
        found = sorted(passing(target, request.filters))[:MOST_RESULTS]
        target.unflushed.clear()
        for i in [] if request.dry_run else found:
            del target.objects[i]
        target.changed()
        return batch_delete_pb2.BatchDeleteReply(matches=len(found), successful=len(found))

    def _search(self, request: search_get_pb2.SearchRequest) -> search_get_pb2.SearchReply:
        target = self._class(request.collection)
        if request.limit + request.offset > MOST_RESULTS:
            raise Refused("query maximum results exceeded")
        if request.after and request.HasField("filters"):
            raise Refused("where cannot be set with after")
        chosen = passing(target, request.filters) if request.HasField("filters") else None
        if request.HasField("near_vector"):
            ranked = nearest(target, request.near_vector, chosen)
        elif request.HasField("bm25_search"):
            ranked = matching(target, request.bm25_search, chosen)
        else:
            ids = target.objects if chosen is None else chosen
            ranked = [(i, 0.0) for i in sorted(ids) if i > request.after]
        ranked = ranked[request.offset :][: request.limit or 10]
        names = tuple(request.properties.non_ref_properties)
        return search_get_pb2.SearchReply(
            results=[as_result(target, i, score, names, request.metadata) for i, score in ranked]
        )

    def _aggregate(self, request: aggregate_pb2.AggregateRequest) -> aggregate_pb2.AggregateReply:
        target = self._class(request.collection)
        chosen: Iterable[str] = target.objects
        if request.HasField("filters"):
            chosen = passing(target, request.filters)
        objects = [target.objects[i] for i in chosen]
        reply = aggregate_pb2.AggregateReply.Aggregations.Aggregation
        sums = [
            reply(
                property=one.property,
                int=reply.Integer(sum=sum(int(o.properties[one.property]) for o in objects)),
            )
            for one in request.aggregations
        ]
        return aggregate_pb2.AggregateReply(
            single_result=aggregate_pb2.AggregateReply.Single(
                objects_count=len(objects),
                aggregations=aggregate_pb2.AggregateReply.Aggregations(aggregations=sums),
            )
        )
