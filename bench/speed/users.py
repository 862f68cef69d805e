"""Latency for many users of one server, with embedding: `corral bench users`.

This process is an HTTP client of a server process on the same machine. No question is asked twice,
so caches do not help. Servers with different numbers of worker processes share one data folder and
are measured in alternating rounds, because a machine's speed drifts.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from corral.api.vector_dbs import SearchMode
from corral.bench.data.synthetic import sentence, synthetic_embeddings, zipf
from corral.bench.report.wording import count
from corral.bench.scratch import batches, synthetic_chunks
from corral.bench.speed.asking import Answered, Ask, Asks, closed_loop, open_loop
from corral.bench.speed.server_process import insert_body, query_body, running_server
from corral.bench.stopwatch import Bound
from corral.providers.base.config import load_config

WARM_UP_SECONDS = 4.0
PAGE_USERS = 16
PAGE = f"the page, {PAGE_USERS} users, a question a second each"
PAGE_MS = 100
SHARES = (0.5, 0.8)
"""Rates of the open loop, as shares of the best rate in closed loops."""
WORDS = 6


@dataclass(slots=True)
class UsersPlan:
    """The options of `corral bench users`, with a server for each number of `workers`."""

    count: int
    clients: Sequence[int]
    workers: Sequence[int]
    rates: Sequence[float]
    mode: str
    seconds: float
    rounds: int


class Cell:
    """The measurements of one server under one load, in all rounds."""

    def __init__(self) -> None:
        self._rounds: list[Answered] = []
        self._spent: list[float] = []

    @property
    def rate(self) -> float:
        """Answers per second, the median of the rounds."""
        return float(np.median([one.rate for one in self._rounds]))

    @property
    def asked(self) -> float:
        """Questions per second, which may need several answers each; the median of the rounds."""
        return float(np.median([one.questions / one.seconds for one in self._rounds]))

    async def take(self, url: str, work: Awaitable[Answered]) -> None:
        """Run one round, and record the processor time per answer."""
        before = _processor_seconds(url)
        self._rounds.append(await work)
        spent = _processor_seconds(url) - before
        self._spent.append(spent / len(self._rounds[-1].latencies))

    def all(self) -> Answered:
        """Return the answers of all rounds combined."""
        latencies = tuple(t for one in self._rounds for t in one.latencies)
        seconds = sum(one.seconds for one in self._rounds)
        return Answered(latencies, seconds, sum(one.questions for one in self._rounds))

    def row(self) -> list[str]:
        """Return the figures: medians of the rounds, and latencies of all answers."""
        latencies = [f"{self.all().ms(share):.0f}" for share in (0.5, 0.95, 0.99)]
        return [f"{self.rate:.1f}", *latencies, f"{np.median(self._spent) * 1000:.1f}"]


def questions(seed: int) -> Iterator[str]:
    """Yield questions with words distributed by Zipf's law, like the chunks' words."""
    rng = np.random.default_rng(seed)
    while True:
        yield from map(sentence, zipf(rng, 100, WORDS).tolist())


def asks_of(mode: str, seed: int) -> Asks:
    """Yield questions in a mode; `page` asks in three modes and for a context, like the page."""
    for text in questions(seed):
        if mode != "page":
            yield [_query(text, mode)]
            continue
        tool: Ask = ("/v1/tool-runtime/rag-tool/query", {"content": text, "vector_db_ids": ["db"]})
        yield [*(_query(text, each.value) for each in SearchMode), tool]


def _query(text: str, mode: str) -> Ask:
    body = query_body("db", text, mode)
    body["params"]["explain"] = True
    return "/v1/vector-io/query", body


def run_users(plan: UsersPlan) -> bool:
    """Measure and print; return True if the page's requests meet their bound on each server."""
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        config, urls = load_config(home=Path(folder)), dict[int, str]()
        for number in plan.workers:
            urls[number] = running.enter_context(running_server(Path(folder), number))
            if len(urls) == 1:
                _fill(urls[number], plan.count, config.default_embedding_model)
        cells = asyncio.run(_measure(plan, urls))
    _show(plan, cells, console)
    bounds = [_page_bound(cells, workers) for workers in plan.workers]
    for workers, bound in zip(plan.workers, bounds, strict=True):
        verdict = "holds" if bound.holds else "FAILS"
        console.print(
            f"{count(workers, 'process', 'processes')}, {bound.what}: {bound.figure}; "
            f"{bound.bound}: {verdict}"
        )
    return all(bound.holds for bound in bounds)


def _fill(url: str, count: int, model: str) -> None:
    """Register a vector DB and insert chunks with embeddings."""
    with httpx.Client(base_url=url, timeout=120) as client:
        registered = {"vector_db_id": "db", "embedding_model": model}
        client.post("/v1/vector-dbs", json=registered).raise_for_status()
        for part, rows in batches(synthetic_chunks(count), synthetic_embeddings(count)):
            body = insert_body("db", part, rows)
            client.post("/v1/vector-io/insert", json=body).raise_for_status()


Cells = dict[tuple[str, int], Cell]
"""Results by load and number of processes."""


async def _measure(plan: UsersPlan, urls: Mapping[int, str]) -> Cells:
    """Return the measurements of each server under each load."""
    seeds = itertools.count(1)
    cells: Cells = defaultdict(Cell)
    # warms up the models and the postings of common words in every process
    for url in urls.values():
        for mode in ("page", plan.mode):
            await closed_loop(url, asks_of(mode, next(seeds)), PAGE_USERS, WARM_UP_SECONDS)
    closed = {clients: count(clients, "client") for clients in plan.clients}
    for _, (workers, url) in itertools.product(range(plan.rounds), urls.items()):
        for clients, name in closed.items():
            cell, asks = cells[name, workers], asks_of(plan.mode, next(seeds))
            await cell.take(url, closed_loop(url, asks, clients, plan.seconds))
        best = max(cells[name, workers].asked for name in closed.values())
        for name, rate in _rates(plan, best).items():
            cell, asks = cells[name, workers], asks_of(plan.mode, next(seeds))
            await cell.take(url, open_loop(url, asks, rate, plan.seconds))
        cell, asks = cells[PAGE, workers], asks_of("page", next(seeds))
        await cell.take(url, open_loop(url, asks, PAGE_USERS, plan.seconds))
    return cells


def _rates(plan: UsersPlan, best: float) -> dict[str, float]:
    """Return the rates of the open loop by name."""
    if plan.rates:
        return {f"{rate:g} questions/s": rate for rate in plan.rates}
    return {f"{share:.0%} of the best rate": share * best for share in SHARES}


def _show(plan: UsersPlan, cells: Cells, console: Console) -> None:
    title = f"inline::sqlite over HTTP, {plan.count:,} chunks, {plan.mode}, embedding included"
    columns = ("load", "processes", "answers/s", "p50 ms", "p95 ms", "p99 ms", "processor ms each")
    table = Table(*columns, title=title)
    for (name, workers), cell in sorted(cells.items(), key=lambda one: list(cells).index(one[0])):
        table.add_row(name, str(workers), *cell.row())
    console.print(table)


def _page_bound(cells: Cells, workers: int) -> Bound:
    p50, p95 = cells[PAGE, workers].all().ms(0.5), cells[PAGE, workers].all().ms(0.95)
    return Bound(PAGE, f"p50 {p50:.0f}, p95 {p95:.0f} ms", f"p95 <= {PAGE_MS}", p95 <= PAGE_MS)


def _processor_seconds(url: str) -> float:
    """Return the processor time of a server's processes."""
    port = str(urlsplit(url).port)
    mine = psutil.Process().children()
    (server,) = (each for each in mine if port in each.cmdline())
    times = [each.cpu_times() for each in (server, *server.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))
