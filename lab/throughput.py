"""Answers a second of two processes against one, and the share of each part of the machine.

Two processes on two cores answer twice as much as one only if nothing else runs there. So each
comparison states how much processor time an answer costs the servers, PostgreSQL and the clients,
and how many answers a second the cores could give if they never idled.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import psutil

from corral.bench.speed.asking import Answered, closed_loop
from corral.bench.speed.server_process import running_server
from corral.bench.speed.users import asks_of
from corral.bench.stopwatch import Bound
from lab.over_http import RUN_YAML, fill
from tests.providers.conftest import url_of
from tests.providers.vector_io.pgvector.conftest import postgresql

CLIENTS, ROUNDS, SECONDS = 8, 5, 4.0
WARM_UP_SECONDS = 2.0
LEAST_RATIO = 1.7
MODELS = {"hashing": "hashing", "minilm": "all-MiniLM-L6-v2"}


class Load:
    """The rounds of one set of servers under `CLIENTS` clients."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._rates: list[float] = []
        self._waits: list[float] = []
        self._spent: list[dict[str, float]] = []

    async def run(self, seed: int, seconds: float) -> None:
        """Run a round: each client keeps to one server."""
        before = _processor_seconds()
        clients: list[Answered] = await asyncio.gather(
            *(
                closed_loop(url, asks_of("hybrid", seed + number), 1, seconds)
                for number, url in zip(range(CLIENTS), itertools.cycle(self._urls), strict=False)
            )
        )
        count = sum(client.questions for client in clients)
        after = _processor_seconds()
        self._rates.append(count / max(client.seconds for client in clients))
        self._waits.append(max(client.ms(0.5) for client in clients))
        self._spent.append({name: (after[name] - before[name]) / count for name in after})

    @property
    def rate(self) -> float:
        """Answers a second, the median of the rounds."""
        return float(np.median(self._rates))

    @property
    def wait(self) -> float:
        """Milliseconds that the client with the longest median waits, the median of the rounds."""
        return float(np.median(self._waits))

    def spent(self) -> dict[str, float]:
        """Return the milliseconds of processor time of an answer by part, medians."""
        return {
            name: float(np.median([each[name] for each in self._spent])) * 1000
            for name in self._spent[0]
        }


def measure_replicas(count: int) -> list[Bound]:
    """Measure two processes against one: replicas on pgvector, and `--workers 2` on SQLite."""
    lines = []
    for name, model in MODELS.items():
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
            database = running.enter_context(postgresql(fsync="on", full_page_writes="on"))
            far = {"provider_id": "pg", "provider_type": "remote::pgvector"}
            vector_io = json.dumps([{**far, "config": database.config}])
            shared = f"{RUN_YAML}  vector_io: {vector_io}\nstate: {json.dumps(url_of(database))}\n"
            urls = []
            for home in (folder / "a", folder / "b"):
                home.mkdir()
                (home / "run.yaml").write_text(shared, "utf-8")
                urls.append(running.enter_context(running_server(home)))
            _fill(urls[0], model, "pg", count)
            lines += asyncio.run(_compare(f"two replicas, {name}", urls[:1], urls))
        with ExitStack() as running:
            home = Path(running.enter_context(tempfile.TemporaryDirectory()))
            (home / "run.yaml").write_text(RUN_YAML, "utf-8")
            urls = [running.enter_context(running_server(home, workers)) for workers in (1, 2)]
            _fill(urls[0], model, "sqlite", count)
            lines += asyncio.run(_compare(f"--workers 2, {name}", urls[:1], urls[1:]))
    return lines


def _fill(url: str, model: str, provider_id: str, count: int) -> None:
    with httpx.Client(base_url=url, timeout=120) as client:
        fill(client, "db", model, count, provider_id)


async def _compare(what: str, one: Sequence[str], two: Sequence[str]) -> list[Bound]:
    """Run both sets of servers in turn; the figures of one process are in parentheses."""
    loads = [Load(one), Load(two)]
    for number, urls in enumerate((one, two)):
        await Load(urls).run(1000 * number, WARM_UP_SECONDS)
    for turn in range(ROUNDS):
        for load in loads[:: -1 if turn % 2 else 1]:
            await load.run(10_000 + 100 * turn, SECONDS)
    single, double = loads
    ratio, spent = double.rate / single.rate, double.spent()
    cores = os.cpu_count() or 1
    parts = ", ".join(f"{name} {ms:.1f} ({single.spent()[name]:.1f})" for name, ms in spent.items())
    limit = cores * 1000 / sum(spent.values())
    figure = (
        f"{double.rate:.0f} against {single.rate:.0f}/s: {ratio:.2f}x; ms of an answer: {parts}; "
        f"{cores} cores give at most {limit:.0f}/s"
    )
    waits = f"{double.wait:.0f} ms against {single.wait:.0f} ms"
    return [
        Bound(f"{what}, 8 clients", figure, f">= {LEAST_RATIO}x", ratio >= LEAST_RATIO),
        Bound(f"{what}, longest p50 of a client", waits, "<= 1x", double.wait <= single.wait),
    ]


def _processor_seconds() -> dict[str, float]:
    """Return the processor time of the servers, PostgreSQL and this process, so far."""
    spent = {"servers": 0.0, "PostgreSQL": 0.0, "clients": _seconds(psutil.Process())}
    for process in psutil.Process().children(recursive=True):
        name = "PostgreSQL" if "postgres" in process.name() else "servers"
        spent[name] += _seconds(process)
    return spent


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
