"""Traces by OpenTelemetry: one span for each stage of a query, sent over OTLP.

Off unless `server.tracing` is set; needs the extra `tracing`. Spans contain no text of users unless
`server.tracing.texts` is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from corral.api.spans import TEXT, span
from corral.providers.base.server_config import TracingSettings
from corral.server import DISTRIBUTION

_HTTP = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
}
_PARENT = "traceparent"


class Traces:
    """Converts spans to OpenTelemetry spans; a `Watcher`.

    A request with a `traceparent` header continues the caller's trace.

    Args:
        settings: `server.tracing`.
        types: Types of the vector_io providers by their ids.
    """

    def __init__(self, settings: TracingSettings, types: Mapping[str, str]) -> None:
        about = {
            SERVICE_NAME: settings.service_name,
            SERVICE_VERSION: metadata.version(DISTRIBUTION),
        }
        self._provider = TracerProvider(
            resource=Resource.create(about),
            sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        )
        exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=settings.timeout_seconds)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("corral")
        self._texts, self._types = settings.texts, types
        self._parents = TraceContextTextMapPropagator()
        self._open: dict[int, tuple[trace.Span, Any]] = {}

    def entered(self, span: span) -> None:
        """Start a span below the current one of this task."""
        parent = None
        if given := span.attributes.pop(_PARENT, ""):
            parent = self._parents.extract({_PARENT: str(given)})
        begun = self._tracer.start_span(span.name, parent)
        token = context.attach(trace.set_span_in_context(begun, parent))
        self._open[id(span)] = begun, token

    def left(self, span: span, error: BaseException | None) -> None:
        """End the span with its attributes.

        Of an error, it records only the type, because the message may quote users.
        """
        begun, token = self._open.pop(id(span))
        names = _HTTP if span.name == "request" else {}
        for name, value in span.attributes.items():
            if name != TEXT or self._texts:
                begun.set_attribute(names.get(name, f"corral.{name}"), value)
        if kind := self._types.get(str(span.attributes.get("provider"))):
            begun.set_attribute("corral.provider_type", kind)
        if error is not None:
            begun.set_status(trace.StatusCode.ERROR, type(error).__name__)
        context.detach(token)
        begun.end()

    def close(self) -> None:
        """Send pending spans, and stop."""
        self._provider.shutdown()
