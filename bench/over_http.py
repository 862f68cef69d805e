"""The server's part of the speed measurements: a real server process, a client in this one."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from corral.bench.datasets import synthetic_embeddings, synthetic_texts
from corral.providers.config import RunConfig, load_config
from corral.providers.rag.retrieval import Retrieval
from corral.providers.stack import Stack

RUN_YAML = """
providers:
  embedding:
    - {provider_id: minilm, provider_type: "inline::minilm"}
    - {provider_id: hashing, provider_type: "inline::hashing", config: {dimension: 384}}
"""
QUESTION = "how does a herd of {} sheep find the way back to its fence in the dark of the night"
REPEATS = 60
WARM_UP = 10
BATCH = 250
START_TIMEOUT_SECONDS = 60.0

Measured = tuple[str, str, str, bool]


@contextmanager
def running_server(home: Path) -> Iterator[str]:
    """Run `corral serve` on a free port of this machine and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "corral.server.command_line.cli", "--home", str(home), "serve"]
    environment, quiet = {**os.environ, "CORRAL_HOME": str(home)}, subprocess.DEVNULL
    process = subprocess.Popen(
        [*command, "--port", str(port)], env=environment, stdout=quiet, stderr=quiet
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_until(ask: Callable[[], httpx.Response]) -> None:
    """Ask until the answer is 200.

    Raises:
        TimeoutError: It was not, for a minute.
    """
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            if ask().status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
    raise TimeoutError("the server did not answer")


def query_body(vector_db_id: str, text: str, mode: str) -> dict[str, Any]:
    """Return the body of a vector-io query."""
    return {
        "vector_db_id": vector_db_id,
        "query": text,
        "params": {"mode": mode, "max_chunks": 10},
    }


def measure_server(count: int) -> list[Measured]:
    """Measure insert rate, overhead, query time and start time of a server with `count` chunks."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "run.yaml").write_text(RUN_YAML, encoding="utf-8")
        with running_server(home) as url, httpx.Client(base_url=url, timeout=120) as client:
            wait_until(lambda: client.get("/v1/health"))
            lines = [_insert(client, count)]
            lines.append(_hybrid(client))
            lines.append(_overhead(client, load_config(home=home), home))
        lines.append(_start(home))
    return lines


def _insert(client: httpx.Client, count: int) -> Measured:
    vectors = synthetic_embeddings(count)
    texts = synthetic_texts(count)
    for name, model in (("real", "all-MiniLM-L6-v2"), ("hashed", "hashing")):
        body = {"vector_db_id": name, "embedding_model": model, "search_mode": "hybrid"}
        client.post("/v1/vector-dbs", json=body).raise_for_status()
    rates = []
    for name in ("real", "hashed"):
        for start in range(0, count, BATCH):
            chunks = [
                {"content": texts[n], "embedding": vectors[n].tolist(), "metadata": {"n": n}}
                for n in range(start, min(start + BATCH, count))
            ]
            begin = time.perf_counter()
            inserted = {"vector_db_id": name, "chunks": chunks}
            client.post("/v1/vector-io/insert", json=inserted).raise_for_status()
            rates.append(len(chunks) / (time.perf_counter() - begin))
    rate = float(len(rates) / np.sum(1 / np.array(rates)))
    return ("insert over HTTP, given embeddings", f"{rate:,.0f}/s", ">= 1,500/s", rate >= 1500)


def _hybrid(client: httpx.Client) -> Measured:
    """Time hybrid queries whose text differs each time, embedding of the query included."""
    seconds = []
    for number in range(WARM_UP + REPEATS):
        body = query_body("real", QUESTION.format(number), "hybrid")
        begin = time.perf_counter()
        client.post("/v1/vector-io/query", json=body).raise_for_status()
        seconds.append(time.perf_counter() - begin)
    p50 = float(np.median(seconds[WARM_UP:])) * 1000
    return ("hybrid query with its embedding, p50", f"{p50:.1f} ms", "<= 25 ms", p50 <= 25)


def _overhead(client: httpx.Client, config: RunConfig, home: Path) -> Measured:
    """Time the same query over HTTP and on the index directly, in turn."""
    served, direct = [], []
    with asyncio.Runner() as runner:
        stack = Stack(config, home)
        search = Retrieval(stack).search
        for number in range(WARM_UP + REPEATS):
            text = QUESTION.format(number)
            begin = time.perf_counter()
            client.post("/v1/vector-io/query", json=query_body("hashed", text, "hybrid"))
            served.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            runner.run(search("hashed", text, k=10, mode="hybrid"))
            direct.append(time.perf_counter() - begin)
        runner.run(stack.close())
    a, b = (float(np.median(times[WARM_UP:])) * 1000 for times in (served, direct))
    figure = f"{a:.2f} ms against {b:.2f} ms: {a - b:.2f} ms"
    return ("what the server adds, hybrid p50", figure, "<= 3 ms", a - b <= 3)


def _start(home: Path) -> Measured:
    """Time from starting the process to the first answer of a hybrid query, model included."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        with running_server(home) as url, httpx.Client(base_url=url, timeout=60) as client:
            body = query_body("real", QUESTION.format("lost"), "hybrid")
            wait_until(partial(client.post, "/v1/vector-io/query", json=body))
            seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds))
    return ("process start to first answer", f"{median:.2f} s", "< 2 s", median < 2)
