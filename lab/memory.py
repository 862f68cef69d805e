"""Memory of a server with the default model: after one answer, after an ingest, for each worker."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx
import psutil

from corral.bench.data.synthetic import synthetic_texts
from corral.bench.speed.server_process import running_server
from corral.bench.stopwatch import Bound

MODEL = "multilingual-e5-small"
TEXTS = 200
ANSWERED, INGESTED, WORKER = 350, 450, 60
"""Bounds in MiB: after one answer, after an ingest, and of a second worker."""


def measure_memory() -> list[Bound]:
    """Measure the memory of all processes of a server; a page that several share counts once."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with running_server(home) as url, httpx.Client(base_url=url, timeout=120) as client:
            body = {"vector_db_id": "herd", "embedding_model": MODEL, "provider_id": "sqlite"}
            client.post("/v1/vector-dbs", json=body).raise_for_status()
            documents = [
                {"document_id": str(number), "content": text, "metadata": {}}
                for number, text in enumerate(synthetic_texts(TEXTS))
            ]
            inserted = {"vector_db_id": "herd", "documents": documents}
            client.post("/v1/tool-runtime/rag-tool/insert", json=inserted).raise_for_status()
            ingested = _memory()
        with running_server(home) as url, httpx.Client(base_url=url, timeout=120) as client:
            _ask(client)
            answered = _memory()
        with running_server(home, workers=2) as url:
            for _ in range(40):  # each with a connection of its own, so that both workers answer
                with httpx.Client(base_url=url, timeout=120) as client:
                    _ask(client)
            more = _memory() - answered
    return [
        _bound("one answer, default model", answered, ANSWERED),
        _bound("the same after an ingest of 200 texts", ingested, INGESTED),
        _bound("a second worker, both have answered", more, WORKER),
    ]


def _ask(client: httpx.Client) -> None:
    body = {"vector_db_ids": ["herd"], "content": "how does a herd of sheep find its fence"}
    client.post("/v1/tool-runtime/rag-tool/query", json=body).raise_for_status()


def _memory() -> float:
    """Return the proportional set size of all child processes, in MiB."""
    children = psutil.Process().children(recursive=True)
    return float(sum(child.memory_full_info().pss for child in children)) / 2**20


def _bound(what: str, mib: float, most: int) -> Bound:
    return Bound(what, f"{mib:.0f} MiB", f"<= {most} MiB", mib <= most)
