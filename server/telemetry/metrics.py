"""Metrics for Prometheus: requests, and the time of each stage of a query.

Labels come from small, known sets: templates of routes, providers of the configuration, modes,
codes of errors. Never a vector DB, a document, or a text.
"""

from __future__ import annotations

import http
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Total
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from corral.api.spans import span
from corral.providers.base.owner import Owner
from corral.providers.ingestion.jobs.jobs import JobStatus
from corral.providers.rag.question_cache import QUESTION_SPAN

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which several processes of a server share metrics."""

_METHODS = frozenset(http.HTTPMethod)
"""Known methods; clients may send any word, and each would become a permanent series."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTS = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_SHARES = (0.9, 0.95, 0.98, 0.99, 0.995, 1)
_CHUNKS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 131_072)


@contextmanager
def shared(processes: int) -> Iterator[None]:
    """Let the processes started in this block aggregate their metrics, if there are several."""
    if processes == 1:
        yield
        return
    with TemporaryDirectory(prefix="corral-metrics-") as folder:
        os.environ[MULTIPROCESS] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS]


class Metrics:
    """Counts the spans of an app; a `Watcher`."""

    def __init__(self) -> None:
        self._process = _among_others()
        self._registry = CollectorRegistry()
        total = partial(Total, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._requests = total(
            "corral_requests", "Requests answered.", ["method", "route", "status"]
        )
        self._request_seconds = histogram(
            "corral_request_seconds",
            "Time from a request's headers to the end of the response, in seconds.",
            ["route"],
            buckets=_SECONDS,
        )
        self._errors = total("corral_errors", "Failed requests, by error code.", ["code"])
        self._span_seconds = histogram(
            "corral_span_seconds",
            "Time of a step in seconds; embed: the model; engine: the database.",
            ["span", "provider", "mode"],
            buckets=_SECONDS,
        )
        self._at_work = gauge(
            "corral_at_work",
            "Steps in progress; queue: waiting inserts.",
            ["span"],
            multiprocess_mode="livesum",
        )
        self._candidates = histogram(
            "corral_candidates",
            "Candidates that an engine returned, by leg.",
            ["leg"],
            buckets=_COUNTS,
        )
        self._searchers = total(
            "corral_vector_searches",
            "Searches of embeddings, by searcher: exact, or the name of an approximate index.",
            ["provider", "searcher"],
        )
        self._recall = histogram(
            "corral_index_recall",
            "Recall@10 of the approximate index of a search, as measured after its build.",
            ["provider"],
            buckets=_SHARES,
        )
        self._indexed = histogram(
            "corral_indexed_chunks",
            "Chunks in the approximate index of a search.",
            ["provider"],
            buckets=_CHUNKS,
        )
        self._tokens = histogram("corral_context_tokens", "Tokens in a context.", buckets=_TOKENS)
        self._cache = total(
            "corral_embedding_cache", "Passages, by whether their embedding was cached.", ["result"]
        )
        self._questions = total(
            "corral_question_cache", "Questions, by whether their embedding was cached.", ["result"]
        )
        self._jobs = gauge(
            "corral_jobs",
            "Ingestion jobs, by status.",
            ["status"],
            multiprocess_mode="mostrecent",
        )

    def entered(self, span: span) -> None:
        """Count a component as busy."""
        self._at_work.labels(span.name).inc()

    def left(self, span: span, error: BaseException | None) -> None:
        """Count the values of a span."""
        known = span.attributes
        self._at_work.labels(span.name).dec()
        if span.name == "request":
            route = str(known.get("route", ""))
            method = known["method"] if known["method"] in _METHODS else "other"
            self._requests.labels(method, route, known.get("status", 0)).inc()
            self._request_seconds.labels(route).observe(span.seconds)
            return
        if span.name == "refusal":
            self._errors.labels(known["code"]).inc()
            return
        if span.name == QUESTION_SPAN:
            self._questions.labels(known["result"]).inc()
            return
        provider, mode = str(known.get("provider", "")), str(known.get("mode", ""))
        self._span_seconds.labels(span.name, provider, mode).observe(span.seconds)
        if "candidates" in known:
            self._candidates.labels(mode).observe(float(known["candidates"]))
        if "searcher" in known:
            self._searchers.labels(provider, known["searcher"]).inc()
        if "searcher_recall" in known:
            self._recall.labels(provider).observe(float(known["searcher_recall"]))
        if "searcher_indexed" in known:
            self._indexed.labels(provider).observe(float(known["searcher_indexed"]))
        if "tokens" in known:
            self._tokens.observe(float(known["tokens"]))
        for result in ("hits", "misses"):
            if known.get(f"cache_{result}"):
                self._cache.labels(result).inc(float(known[f"cache_{result}"]))

    def set_jobs(self, jobs: Counter[JobStatus]) -> None:
        """Set the number of ingestion jobs by status."""
        for status in JobStatus:
            self._jobs.labels(status).set(jobs[status])

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format, aggregated over the server's processes."""
        if self._process is None:
            return generate_latest(self._registry)
        for other in filter(self._process.is_dead, self._process.others()):
            mark_process_dead(int(other))  # type: ignore[no-untyped-call]  # it lacks types
            self._process.forget(other)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]  # it lacks types
        return generate_latest(together)


def _among_others() -> Owner | None:
    """Return this process's label among several processes; None if there is only one."""
    if MULTIPROCESS not in os.environ:
        return None
    process = Owner(Path(os.environ[MULTIPROCESS]), str(os.getpid()))
    process.enter()
    # An ended process may have had the same number, and left its figures.
    mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]  # it lacks types
    return process
