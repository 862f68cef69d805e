"""Traces: one span for each room, sent to a collector, without what users wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from corral.providers.base.server_config import TracingSettings

from ..harness import InProcess, run_config

SECRET = "classified"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    """Run a collector; yield its address and the spans that it was sent."""
    received: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    received.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", received
    finally:
        server.shutdown()
        server.server_close()


def traced(home: Path, *, texts: bool = False) -> list[Span]:
    """Ask one question of an app with tracing, and return its spans."""
    with collector() as (endpoint, spans):
        config = run_config()
        config.server.tracing = TracingSettings(endpoint=endpoint, texts=texts)
        with InProcess(home, config) as app:
            app.register(f"{SECRET}-db")
            app.insert(f"{SECRET} fox", db=f"{SECRET}-db")
            body = {"content": f"{SECRET} fox?", "vector_db_ids": [f"{SECRET}-db"]}
            headers = {
                "content-type": "application/json",
                "traceparent": f"00-{TRACE}-{PARENT}-01",
            }
            asked = app.send("POST", "/v1/tool-runtime/rag-tool/query", body, headers=headers)
            assert asked.status_code == 200
        return [span for span in spans if span.trace_id.hex() == TRACE]


def test_a_request_is_one_trace_below_its_callers(tmp_path: Path) -> None:
    """Each room is the child of the one that called it; the request is the caller's.

    If this fails: a slow answer cannot be followed from the agent to the engine.
    """
    spans = {span.name: span for span in traced(tmp_path)}
    chain = ["request", "tool", "search", "index", "engine"]
    assert spans["request"].parent_span_id.hex() == PARENT
    for above, below in pairwise(chain):
        assert spans[below].parent_span_id == spans[above].span_id, below
    for name in ("plan", "embed", "context"):
        assert spans[name].parent_span_id == spans["tool"].span_id, name
    known = {a.key: a.value for a in spans["engine"].attributes}
    assert known["corral.provider"].string_value == "sqlite"
    assert known["corral.mode"].string_value == "hybrid"
    assert known["corral.provider_type"].string_value == "inline::sqlite"
    assert known["corral.k"].int_value > 0
    assert known["corral.candidates"].int_value == 2
    about = {a.key: a.value for a in spans["request"].attributes}
    assert about["http.route"].string_value == "/v1/tool-runtime/rag-tool/query"
    assert about["http.response.status_code"].int_value == 200
    assert about["corral.request_id"].string_value


@pytest.mark.parametrize("texts", [False, True])
def test_the_question_is_in_a_trace_only_if_asked_for(tmp_path: Path, texts: bool) -> None:
    """`server.tracing.texts` alone puts it there; names of vector DBs are never in it."""
    spans = traced(tmp_path, texts=texts)
    assert spans
    said = "".join(map(str, spans))
    assert (f"{SECRET} fox?" in said) is texts
    assert f"{SECRET}-db" not in said
