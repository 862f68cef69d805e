"""Metrics: what an operator counts on, and nothing of what users wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.providers.base.config import ProviderEntry

from ..harness import InProcess, run_config, wait_until

SECRET = "classified"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app with a vector DB that was asked once, and refused once."""
    with InProcess(tmp_path) as started:
        started.register(f"{SECRET}-db")
        started.rag_insert({"document_id": SECRET, "content": f"{SECRET} fox"}, db=f"{SECRET}-db")
        started.rag_query(f"{SECRET}?", f"{SECRET}-db", mode="hybrid", rerank={"type": "bm25"})
        started.send("GET", f"/v1/vector-dbs/{SECRET}")
        yield started


def numbers(app: InProcess) -> dict[str, float]:
    """Return every sample of /metrics by its name and labels."""
    response = app.send("GET", "/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_query_is_counted_by_route_provider_and_mode(app: InProcess) -> None:
    """Times of the model and of the database are apart; candidates and tokens are counted.

    If this fails: an operator cannot see whether the model or the database is slow.
    """
    found = numbers(app)
    route = "/v1/tool-runtime/rag-tool/query"
    labels = f'method="POST",route="{route}",status="200"'
    assert found[f"corral_requests_total{{{labels}}}"] == 1
    assert found[f'corral_request_seconds_count{{route="{route}"}}'] == 1
    for name in ("search", "index", "engine"):
        labels = f'mode="hybrid",provider="sqlite",span="{name}"'
        assert found[f"corral_span_seconds_count{{{labels}}}"] == 1, name
    labels = 'mode="",provider="hashing",span="embed"'
    assert found[f"corral_span_seconds_count{{{labels}}}"] == 1
    assert found['corral_candidates_sum{leg="hybrid"}'] == 2  # the one chunk, in both legs
    assert found["corral_context_tokens_count"] == 1
    assert found["corral_context_tokens_sum"] > 10
    assert found['corral_at_work{span="engine"}'] == 0


def test_an_approximate_index_is_visible(tmp_path: Path) -> None:
    """Its recall and size are in the metrics, in the explanation, and in the vector DB's counts.

    If this fails: an operator cannot tell exact answers from approximate ones.
    """
    config = run_config(dimension=64)
    sqlite = {"index": "auto", "approximate_from": 1000}
    config.providers.vector_io = [
        ProviderEntry(provider_id="sqlite", provider_type="inline::sqlite", config=sqlite)
    ]
    with InProcess(tmp_path, config) as app:
        app.register("db")
        show = "/v1/vector-dbs/db?counts=true"
        note = "a FAISS index is built from 1,000 chunks on"
        assert app.ok("GET", show)["searcher"]["note"] == note
        for start in (0, 600):
            app.insert(*(f"sheep {n} of flock {n % 7}" for n in range(start, start + 600)))
        wait_until(lambda: app.ok("GET", show)["searcher"]["method"] == "faiss")
        searcher = app.ok("GET", show)["searcher"]
        assert searcher["indexed"] == 1200
        assert searcher["recall"] >= 0.99
        [step, *_] = app.query("which flock?", mode="hybrid", explain=True)["steps"]
        described = f"faiss, 1,200 chunks in its index, recall@10 {searcher['recall']:.4f}"
        assert step["detail"].endswith(f"; embeddings: {described}")
        app.query("sheep", mode="keyword")
        found = numbers(app)
    labels = 'provider="sqlite",searcher="faiss"'
    assert found[f"corral_vector_searches_total{{{labels}}}"] == 1
    assert found['corral_index_recall_sum{provider="sqlite"}'] == searcher["recall"]
    assert found['corral_indexed_chunks_sum{provider="sqlite"}'] == 1200


def test_every_room_of_the_road_has_a_time(app: InProcess) -> None:
    """Those of a query, from the tool to the context, and those of an insert."""
    rooms = {
        m[1] for m in (re.search(r'seconds_count.*span="(\w+)"', n) for n in numbers(app)) if m
    }
    assert rooms - {"queue", "embed_documents"} == {
        "context", "embed", "engine", "fusion", "index", "plan", "rerank", "search", "tool",
    }  # fmt: skip


def test_refusals_are_counted_by_their_code(app: InProcess) -> None:
    """What was not found is an error of that code."""
    assert numbers(app)['corral_errors_total{code="not_found"}'] == 1


def test_a_made_up_method_is_no_series_of_its_own(app: InProcess) -> None:
    """Any word may be a method: those that HTTP does not name are counted together.

    If this fails: whoever reaches the port fills the server's memory, without a key.
    """
    for number in range(3):
        app.send(f"FENCE{number}", "/v1/health")
    counted = [name for name in numbers(app) if name.startswith("corral_requests_total")]
    assert not [name for name in counted if "FENCE" in name]
    assert any('method="other"' in name for name in counted)


def test_a_refused_tool_is_an_error_too(app: InProcess) -> None:
    """What a tool refuses is counted, though the answer of MCP is a 200."""
    before = numbers(app)['corral_errors_total{code="not_found"}']
    call = {"name": "get_vector_db", "arguments": {"vector_db_id": "none"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    assert app.send("POST", "/mcp", body, headers=accept).status_code == 200
    assert numbers(app)['corral_errors_total{code="not_found"}'] == before + 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "serch", "arguments": {}}),
        ("resources/read", {"uri": "corral://vector-dbs/none"}),
        (None, {"id": "1", "function": {"name": "serch", "arguments": "{}"}}),
    ],
)
def test_what_is_not_there_for_agents_is_an_error_too(
    app: InProcess, method: str | None, params: dict[str, Any]
) -> None:
    """Unknown tools, resources and functions are counted, though each answer is a 200."""
    before = numbers(app)['corral_errors_total{code="not_found"}']
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params} if method else params
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    path = "/mcp" if method else "/v1/tools/openai/call"
    assert app.send("POST", path, body, headers=accept).status_code == 200
    assert numbers(app)['corral_errors_total{code="not_found"}'] == before + 1


def test_nothing_of_a_users_is_a_label(app: InProcess) -> None:
    """Neither vector DBs nor documents nor texts are in the metrics.

    If this fails: whoever may see the metrics sees whose documents there are, and each of them
    costs the server memory.
    """
    assert SECRET not in app.send("GET", "/metrics").text


def test_metrics_can_be_off(tmp_path: Path) -> None:
    """With `server.metrics: false` nothing is counted, and the route says so."""
    config = run_config()
    config.server.metrics = False
    with InProcess(tmp_path, config) as app:
        refused = app.send("GET", "/metrics")
    assert refused.status_code == 404
    assert "server.metrics" in refused.json()["error"]["message"]


def test_two_apps_in_one_process_count_apart(tmp_path: Path) -> None:
    """One app's requests are none of the other's."""
    with InProcess(tmp_path / "one") as one, InProcess(tmp_path / "two") as two:
        one.register()
        assert not [name for name in numbers(two) if "vector-dbs" in name]


def test_jobs_are_counted_by_status_and_cached_texts_by_result(app: InProcess) -> None:
    """A document that goes in again is found in the cache of embeddings."""
    found = numbers(app)
    assert {name for name in found if name.startswith("corral_jobs")} == {
        f'corral_jobs{{status="{status}"}}'
        for status in ("queued", "running", "completed", "failed", "cancelled")
    }
    document = {"document_id": "two", "content": "an owl"}
    for _ in range(2):
        app.rag_insert(document, db=f"{SECRET}-db")
    after = numbers(app)
    misses = after['corral_embedding_cache_total{result="misses"}']
    assert misses == found['corral_embedding_cache_total{result="misses"}'] + 1
    assert after['corral_embedding_cache_total{result="hits"}'] == 1
    assert after['corral_at_work{span="queue"}'] == 0


def test_questions_are_counted_by_whether_they_were_known(app: InProcess) -> None:
    """A question that is asked again is a hit, in another mode too; a new one is a miss.

    If this fails: nobody can see whether users repeat themselves, or the model answers each time.
    """

    def counted() -> tuple[float, float]:
        found = numbers(app)
        hits, misses = (f'corral_question_cache_total{{result="{n}"}}' for n in ("hits", "misses"))
        return found.get(hits, 0.0), found.get(misses, 0.0)

    hits, misses = counted()
    for mode in ("vector", "hybrid", "keyword", "vector"):  # keyword search embeds nothing
        app.query("a cow that nobody asked for", db=f"{SECRET}-db", mode=mode)
    assert counted() == (hits + 2, misses + 1)


def test_the_dashboard_asks_for_metrics_that_there_are(app: InProcess) -> None:
    """Every name in docs/grafana-dashboard.json is one of /metrics.

    If this fails: a metric was renamed, and an operator looks at an empty panel.
    """
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text("utf-8"))
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    names = {name for expr in asked for name in re.findall(r"corral_\w+", expr)}
    app.rag_insert({"document_id": "two", "content": "an owl"}, db=f"{SECRET}-db")
    assert names <= {name.partition("{")[0] for name in numbers(app)}
