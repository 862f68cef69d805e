"""The time that Corral adds to the search and to the model of an answer."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from corral.bench.data.synthetic import synthetic_embeddings
from corral.bench.scratch import batches, synthetic_chunks
from corral.bench.speed.server_process import insert_body, running_server
from corral.bench.stopwatch import Bound, Stopwatch
from tests.chat_service import ChatService, running_chat, said

RUN_YAML = """
providers:
  embedding:
    - {{provider_id: hashing, provider_type: "inline::hashing", config: {{dimension: 384}}}}
  inference:
    - provider_id: llm
      provider_type: remote::chat
      config: {{base_url: "{url}", models: [tiny]}}
"""
QUESTION = "how does a herd of {} sheep find the way back to its fence in the dark of the night"
REPEATS, WARM_UP = 60, 10
BATCH = 250
STREAMS = 64
PIECES = [f" word{n}" if n % 10 else f" word{n} [1]" for n in range(200)]


def measure_answers(count: int) -> list[Bound]:
    """Measure answers of a scripted model over `count` chunks."""
    with tempfile.TemporaryDirectory() as folder, running_chat() as service:
        home = Path(folder)
        (home / "run.yaml").write_text(RUN_YAML.format(url=service.url), encoding="utf-8")
        service.scripts = [said(*PIECES)]
        with running_server(home) as url, httpx.Client(base_url=url, timeout=120) as client:
            _fill(client, count)
            return [*_overhead(client, service), _streams(client)]


def _fill(client: httpx.Client, count: int) -> None:
    body = {"vector_db_id": "farm", "embedding_model": "hashing", "search_mode": "hybrid"}
    client.post("/v1/vector-dbs", json=body).raise_for_status()
    for part, rows in batches(synthetic_chunks(count), synthetic_embeddings(count), BATCH):
        inserted = insert_body("farm", part, rows)
        client.post("/v1/vector-io/insert", json=inserted).raise_for_status()


def _overhead(client: httpx.Client, service: ChatService) -> list[Bound]:
    """Time the search, the model, and the complete answer, interleaved."""
    search, model, first, whole = (Stopwatch(WARM_UP) for _ in range(4))
    for number in range(WARM_UP + REPEATS):
        text = QUESTION.format(number)
        config = {"citations": True, "max_chunks": 10, "mode": "hybrid"}
        asked = {"content": text, "vector_db_ids": ["farm"], "query_config": config}
        with search.running():
            client.post("/v1/tool-runtime/rag-tool/query", json=asked).raise_for_status()
        chat = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": text}]}
        with model.running():
            httpx.post(f"{service.url}/chat/completions", json=chat).raise_for_status()
        text = QUESTION.format(f"other {number}")
        started = time.perf_counter()
        with whole.running():
            begun = _answer(client, text)
        first.seconds.append(begun - started)
    del first.seconds[:WARM_UP]
    a, b, c, d = search.ms(), model.ms(), first.ms(), whole.ms()
    return [
        Bound(
            "first event of an answer after its search, p50",
            f"{c:.1f} ms against {a:.1f} ms: {c - a:.1f} ms",
            "<= 5 ms",
            c - a <= 5,
        ),
        Bound(
            "what an answer adds to search and model, p50",
            f"{d:.1f} ms against {a:.1f} + {b:.1f} ms: {d - a - b:.1f} ms",
            "<= 10 ms",
            d - a - b <= 10,
        ),
    ]


def _answer(client: httpx.Client, text: str) -> float:
    """Stream an answer to its end, and return the time of its first event."""
    tool = {"type": "file_search", "vector_store_ids": ["farm"]}
    body = {"model": "tiny", "input": text, "tools": [tool], "stream": True, "store": False}
    begun, last = 0.0, ""
    with client.stream("POST", "/v1/responses", json={**body, "tool_choice": tool}) as response:
        for line in response.iter_lines():
            begun = begun or time.perf_counter()
            last = line or last
    assert last == "data: [DONE]", last
    return begun


def _streams(client: httpx.Client) -> Bound:
    """Stream many answers concurrently to their ends."""
    with ThreadPoolExecutor(STREAMS) as threads:
        done = list(threads.map(lambda n: _answer(client, QUESTION.format(n)), range(STREAMS)))
    return Bound("streams at once", f"{len(done)} complete", f"{STREAMS}", len(done) == STREAMS)
