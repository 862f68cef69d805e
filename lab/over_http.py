"""The server's parts of the bounds: real server processes, a client in this one.

What metrics and traces cost is measured with them and without them, in turn, on the quickest query
there is, on few chunks and without a model, so that what is added weighs most.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import timeit
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from corral.api.spans import span, watched_by
from corral.api.vector_dbs import SearchMode
from corral.bench.data.synthetic import synthetic_embeddings, synthetic_texts
from corral.bench.scratch import batches, synthetic_chunks
from corral.bench.speed.server_process import insert_body, query_body, running_server
from corral.bench.stopwatch import Bound, Stopwatch
from corral.providers.base.config import RunConfig, load_config
from corral.providers.rag.search import Retrieval
from corral.providers.stack.stack import Stack
from corral.server.telemetry.metrics import Metrics
from tests.providers.conftest import url_of
from tests.providers.vector_io.pgvector.conftest import postgresql

QUESTION = "how does a herd of {} sheep find the way back to its fence in the dark of the night"
RUN_YAML = """
providers:
  embedding:
    - {provider_id: minilm, provider_type: "inline::minilm"}
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 384}}
"""
REPEATS, WATCHED, ON_STATES = 60, 1000, 400
WARM_UP = 10
UNWATCHED = 100_000
BATCH = 250


def measure_server(count: int) -> list[Bound]:
    """Measure insert rate, overhead, query time and start time of a server with `count` chunks."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
        with running_server(home) as url, httpx.Client(base_url=url, timeout=120) as client:
            lines = [_insert(client, count)]
            lines.append(_hybrid(client))
            lines.append(_overhead(client, load_config(home=home), home))
            lines += measure_watching(load_config(home=home), home)
        lines.append(_processes(home))
        lines.append(_start(home))
    return lines


def measure_states(count: int) -> list[Bound]:
    """Measure queries and inserts with the state in PostgreSQL and in SQLite, in turn.

    Both servers have `count` chunks in `inline::sqlite` and load no model, so that the state weighs
    most. PostgreSQL waits for the disk at each write, as SQLite does.
    """
    texts = synthetic_texts(ON_STATES + WARM_UP)

    def asked(number: int) -> tuple[str, Any]:
        body = query_body("hashed", QUESTION.format(number), "hybrid")
        return "/v1/vector-io/query", body

    def inserted(number: int) -> tuple[str, Any]:
        document = {"document_id": f"new-{number}", "content": texts[number], "metadata": {}}
        body = {"vector_db_id": "hashed", "documents": [document], "chunk_size_in_tokens": 64}
        return "/v1/tool-runtime/rag-tool/insert", body

    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        server = running.enter_context(postgresql(fsync="on", full_page_writes="on"))
        clients = []
        for name, state in (("postgresql", url_of(server)), ("sqlite", "sqlite")):
            home = folder / name
            home.mkdir()
            (home / "run.yaml").write_text(f"{RUN_YAML}state: {json.dumps(state)}\n", "utf-8")
            url = running.enter_context(running_server(home))
            clients.append(running.enter_context(httpx.Client(base_url=url, timeout=120)))
            fill(clients[-1], "hashed", "hashing", count)
        return [
            _compare("hybrid query", clients, asked, 1.15),
            _compare("insert of a document of 60 words", clients, inserted, 1.5),
        ]


def _compare(
    what: str,
    clients: Sequence[httpx.Client],
    request: Callable[[int], tuple[str, Any]],
    most: float,
) -> Bound:
    """Time requests to both servers, each first every other time."""
    watches = [Stopwatch(WARM_UP) for _ in clients]
    for number in range(WARM_UP + ON_STATES):
        path, body = request(number)
        pairs = list(zip(clients, watches, strict=True))
        for client, watch in pairs[:: -1 if number % 2 else 1]:
            with watch.running():
                client.post(path, json=body).raise_for_status()
    ours, theirs = (watch.ms() for watch in watches)
    return Bound.ratio(f"{what}, state in PostgreSQL against SQLite, p50", ours, theirs, most)


def _insert(client: httpx.Client, count: int) -> Bound:
    rates = fill(client, "real", "all-MiniLM-L6-v2", count)
    rates += fill(client, "hashed", "hashing", count)
    rate = float(len(rates) / np.sum(1 / np.array(rates)))
    return Bound("insert over HTTP, given embeddings", f"{rate:,.0f}/s", ">= 1,500/s", rate >= 1500)


def fill(
    client: httpx.Client, name: str, model: str, count: int, provider_id: str = "sqlite"
) -> list[float]:
    """Store chunks in a new vector DB; return the chunks per second of each request."""
    registration = {"vector_db_id": name, "embedding_model": model, "provider_id": provider_id}
    registration["search_mode"] = "hybrid"
    client.post("/v1/vector-dbs", json=registration).raise_for_status()
    rates = []
    for part, rows in batches(synthetic_chunks(count), synthetic_embeddings(count), BATCH):
        body, watch = insert_body(name, part, rows), Stopwatch()
        with watch.running():
            client.post("/v1/vector-io/insert", json=body).raise_for_status()
        rates.append(len(part) / watch.seconds[0])
    return rates


def _hybrid(client: httpx.Client) -> Bound:
    """Time hybrid queries whose text differs each time, embedding of the query included."""
    watch = Stopwatch(WARM_UP)
    for number in range(WARM_UP + REPEATS):
        body = query_body("real", QUESTION.format(number), "hybrid")
        with watch.running():
            client.post("/v1/vector-io/query", json=body).raise_for_status()
    p50 = watch.ms()
    return Bound("hybrid query with its embedding, p50", f"{p50:.1f} ms", "<= 25 ms", p50 <= 25)


def _overhead(client: httpx.Client, config: RunConfig, home: Path) -> Bound:
    """Time the same query over HTTP, by a search, and on the bare index, in turn."""
    served, direct, bare = (Stopwatch(WARM_UP) for _ in range(3))
    with asyncio.Runner() as runner:
        stack = Stack(config, home)
        search, index = Retrieval(stack).search, runner.run(stack.index("hashed"))
        embedder = runner.run(stack.embedder("hashing"))
        for number in range(WARM_UP + REPEATS):
            text = QUESTION.format(number)
            body = query_body("hashed", text, "hybrid")
            with served.running():
                client.post("/v1/vector-io/query", json=body).raise_for_status()
            with direct.running():
                runner.run(search("hashed", text, k=10, mode="hybrid"))
            embedding = runner.run(embedder.embed_query(text))
            with bare.running():
                runner.run(index.query(embedding, text, 10, mode=SearchMode.HYBRID))
        runner.run(stack.close())
    a, b, c = served.ms(), direct.ms(), bare.ms()
    figure = f"{a:.2f} ms against {b:.2f} ms: {a - b:.2f} ms; bare index {c:.2f} ms"
    return Bound("what the server adds, hybrid p50", figure, "<= 3 ms", a - b <= 3)


def _processes(home: Path) -> Bound:
    """Time the same query on servers of two processes and of one, in turn, each by one client."""
    watches = {count: Stopwatch(WARM_UP) for count in (2, 1)}
    with ExitStack() as running:
        clients = {}
        for count in watches:
            url = running.enter_context(running_server(home, workers=count))
            clients[count] = running.enter_context(httpx.Client(base_url=url, timeout=120))
        for number in range(WARM_UP + REPEATS):
            body = query_body("hashed", QUESTION.format(number), "hybrid")
            for count, watch in watches.items():
                with watch.running():
                    clients[count].post("/v1/vector-io/query", json=body).raise_for_status()
    what = "one client, hybrid p50: two processes against one"
    return Bound.ratio(what, watches[2].ms(), watches[1].ms(), 1.15)


def _start(home: Path) -> Bound:
    """Time from starting the process to the first answer of a hybrid query, model included."""
    watch = Stopwatch()
    for _ in range(3):
        body = query_body("real", QUESTION.format("lost"), "hybrid")
        with ExitStack() as running, watch.running():
            url = running.enter_context(running_server(home))
            client = running.enter_context(httpx.Client(base_url=url, timeout=60))
            client.post("/v1/vector-io/query", json=body).raise_for_status()
    median = watch.ms() / 1000
    return Bound("process start to first answer", f"{median:.2f} s", "< 2 s", median < 2)


class _Counter:
    """Counts spans; a `Watcher`."""

    def __init__(self) -> None:
        self.spans = 0

    def entered(self, span: span) -> None:
        """Count one."""
        self.spans += 1

    def left(self, span: span, error: BaseException | None) -> None:
        """Do nothing."""


def measure_watching(config: RunConfig, home: Path) -> list[Bound]:
    """Time a query of the vector DB `hashed` with metrics and without, each first every other time.

    Without metrics nobody watches the spans, which then cost what their code costs: so often a
    query as a counter says, so long each as a loop of them says.
    """
    metrics, counter = Metrics(), _Counter()
    watches: dict[tuple[Metrics, ...], Stopwatch] = {(): Stopwatch(WARM_UP)}
    watches[metrics,] = Stopwatch(WARM_UP)
    with asyncio.Runner() as runner:
        stack = Stack(config, home)
        retrieval = Retrieval(stack)

        def ask(text: str) -> None:
            # A runner keeps the context that it began in, in which nobody watches.
            work = retrieval.search("hashed", text, k=10, mode="hybrid")
            runner.run(work, context=copy_context())

        for number in range(WARM_UP + WATCHED):
            text = QUESTION.format(number)
            in_turn = sorted(watches, key=len, reverse=bool(number % 2))
            for place, watchers in enumerate(in_turn):  # another text, or it is embedded already
                with watched_by(*watchers), watches[watchers].running():
                    ask(f"{text} {place}")
        with watched_by(counter):
            ask(QUESTION.format("counted"))
        runner.run(stack.close())
    if not counter.spans:
        raise RuntimeError("no span was reported; the figures would mean nothing")
    plain, counted = watches[()].ms(), watches[metrics,].ms()
    figure = f"{counted:.3f} ms against {plain:.3f} ms: {counted / plain:.3f}x"
    each = min(timeit.repeat(_unwatched, number=UNWATCHED, repeat=3)) / UNWATCHED * 1000
    share = counter.spans * each / plain
    off = f"{counter.spans} spans of {each * 1000:.2f} us in {plain:.3f} ms: {share:.2%}"
    return [
        Bound("metrics on, hybrid p50", figure, "<= 1.03x", counted <= plain * 1.03),
        Bound("metrics and traces off, hybrid p50", off, "<= 0.5 %", share <= 0.005),
    ]


def _unwatched() -> None:
    with span("engine", provider="sqlite", mode="hybrid") as seen:
        seen["candidates"] = 1
