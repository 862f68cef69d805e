"""Logs: one line per request, and nothing that a user wrote above DEBUG."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from corral.providers.rag.search import Retrieval

from .harness import InProcess, Json, ServerProcess, run_config

SECRET = "classified"


def evaluation(db: str) -> list[tuple[str, str, Any]]:
    """Return requests for judged questions, good and bad."""
    named = {"vector_db_id": db, "name": SECRET}
    judgment = {**named, "question": f"{SECRET}?", "grades": {SECRET: 1}}
    return [
        ("POST", "/v1/judgments", named),
        ("POST", "/v1/judgments", named),
        ("GET", f"/v1/judgments?vector_db_id={db}", None),
        ("POST", "/v1/judgments/questions", judgment),
        ("POST", "/v1/judgments/questions", {**judgment, SECRET: SECRET}),
        ("GET", f"/v1/judgments/questions?vector_db_id={db}&name={SECRET}", None),
        ("POST", "/v1/judgments/questions/show", {**named, "question": f"{SECRET}?"}),
        ("POST", "/v1/judgments/suggest", named),
        ("GET", f"/v1/judgments/export?vector_db_id={db}&name={SECRET}", None),
        ("POST", "/v1/tunings", named),
        ("GET", f"/v1/tunings?vector_db_id={db}", None),
        ("GET", f"/v1/tunings/{SECRET}?vector_db_id={db}", None),
        ("POST", f"/v1/tunings/{SECRET}/cancel", {"vector_db_id": db}),
        ("POST", f"/v1/tunings/{SECRET}/apply", {"vector_db_id": db}),
        ("POST", f"/v1/tunings/{SECRET}/undo", {"vector_db_id": db}),
        ("POST", "/v1/judgments/delete", named),
    ]


def requests() -> list[tuple[str, str, Any]]:
    """Return requests for every route, good and bad, with a secret in all that is a user's."""
    db = f"{SECRET}-db"
    chunk: Json = {"content": f"{SECRET} fox", "metadata": {"document_id": SECRET, SECRET: SECRET}}
    document: Json = {"document_id": SECRET, "content": f"{SECRET} owl", "metadata": {"a": SECRET}}
    asked: Json = {"content": f"{SECRET}?", "vector_db_ids": [db]}
    invoked: Json = {"query": f"{SECRET}?", "vector_db_ids": [db]}
    filters: Json = {"type": "eq", "key": SECRET, "value": SECRET}
    register = {"vector_db_id": db, "embedding_model": "hashing", "vector_db_name": SECRET}
    query: Json = {"vector_db_id": db, "query": f"{SECRET}?"}
    search = {"name": "search", "arguments": {"query": f"{SECRET}?"}}
    lost = {"name": "fetch", "arguments": {"id": f"{db}/{SECRET}", SECRET: SECRET}}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    called = {"name": "search", "arguments": f'{{"query": "{SECRET}"}}'}
    rag_insert, rag_query = "/v1/tool-runtime/rag-tool/insert", "/v1/tool-runtime/rag-tool/query"
    return [
        ("POST", "/v1/vector-dbs", register),
        ("POST", "/v1/vector-dbs", {**register, "search_mode": "vector"}),
        ("POST", "/v1/vector-dbs", {**register, SECRET: SECRET}),
        ("POST", "/v1/vector-dbs", {**register, "embedding_model": SECRET}),
        ("GET", "/v1/vector-dbs", None),
        ("GET", f"/v1/vector-dbs/{db}", None),
        ("GET", f"/v1/vector-dbs/{SECRET}", None),
        ("GET", f"/document?vector_db_id={db}&document_id={SECRET}", None),
        ("POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": [chunk]}),
        *evaluation(db),
        ("POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": [{**chunk, "x": SECRET}]}),
        (
            "POST",
            "/v1/vector-io/insert",
            {"vector_db_id": db, "chunks": [{**chunk, "embedding": [1]}]},
        ),
        ("POST", "/v1/vector-io/insert", {"vector_db_id": SECRET, "chunks": [chunk]}),
        ("POST", "/v1/vector-io/query", query),
        ("POST", "/v1/vector-io/query", {**query, "params": {"explain": True, "filters": filters}}),
        ("POST", "/v1/vector-io/query", {**query, "params": {"mode": SECRET}}),
        ("POST", "/v1/vector-io/query", {**query, "params": {"filters": {"type": SECRET}}}),
        ("POST", rag_insert, {"vector_db_id": db, "documents": [document]}),
        (
            "POST",
            rag_insert,
            {
                "vector_db_id": db,
                "documents": [{**document, "content": {"uri": f"https://{SECRET}/"}}],
            },
        ),
        ("POST", rag_query, asked),
        ("POST", rag_query, {**asked, "query_config": {"chunk_template": SECRET}}),
        ("POST", rag_query, {**asked, "query_config": {"tokenizer": SECRET}}),
        ("GET", f"/v1/tool-runtime/list-tools?tool_group_id={SECRET}", None),
        ("POST", "/v1/tool-runtime/invoke", {"tool_name": "knowledge_search", "kwargs": invoked}),
        ("POST", "/v1/tool-runtime/invoke", {"tool_name": SECRET, "kwargs": invoked}),
        ("POST", f"/v1/vector-dbs/{db}/copy", {"target_id": f"{SECRET}-copy"}),
        ("POST", f"/v1/vector-dbs/{db}/copy", {"target_id": f"{SECRET}-copy", "after": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/copy", {"target_id": db, "provider_id": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/copy/verify", {"target_id": f"{SECRET}-copy"}),
        ("POST", f"/v1/vector-dbs/{db}/copy/verify", {"target_id": SECRET}),
        ("GET", "/v1/vector-dbs?counts=true", None),
        ("GET", f"/v1/vector-dbs/{db}/documents?after={SECRET}", None),
        ("GET", f"/v1/vector-dbs/{db}/documents?q={SECRET}&details=true", None),
        ("GET", f"/v1/vector-dbs/{db}/documents?q={SECRET}&sort={SECRET}", None),
        ("PATCH", f"/v1/vector-dbs/{db}/documents/{SECRET}", {"attributes": {SECRET: SECRET}}),
        ("GET", f"/v1/pages/picture?vector_db_id={db}&document_id={SECRET}", None),
        ("GET", f"/v1/pages/areas?vector_db_id={db}&document_id={SECRET}&chunk_id={SECRET}", None),
        ("GET", f"/v1/vector-dbs/{db}/documents/{SECRET}", None),
        ("DELETE", f"/v1/vector-dbs/{db}/documents/{SECRET}", None),
        ("DELETE", f"/v1/vector-dbs/{db}/documents/{SECRET}", None),
        ("POST", "/v1/jobs", {"vector_db_id": db, "documents": [document]}),
        ("POST", "/v1/jobs", {"vector_db_id": SECRET, "documents": [{**document, "x": SECRET}]}),
        ("GET", f"/v1/jobs?vector_db_id={SECRET}", None),
        ("GET", f"/v1/jobs/events?job_id={SECRET}", None),
        ("POST", "/v1/jobs/cancel", {"vector_db_id": SECRET}),
        ("POST", "/v1/jobs/retry", {"vector_db_id": SECRET}),
        ("GET", f"/v1/jobs/{SECRET}", None),
        ("POST", f"/v1/jobs/{SECRET}/cancel", None),
        ("POST", f"/v1/jobs/{SECRET}/retry", None),
        ("POST", f"/v1/vector-dbs/{db}/rebuild", {"embedding_model": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/rebuild", {"language": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/rebuild/step", {"after": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/rebuild/switch", None),
        ("POST", f"/v1/vector-dbs/{db}/rebuild/abandon", None),
        ("POST", f"/v1/vector-dbs/{db}/sync", {"source": SECRET}),
        ("POST", f"/v1/vector-dbs/{db}/sync/state", {"source": SECRET}),
        ("GET", f"/v1/snapshots/{SECRET}", None),
        ("POST", f"/v1/snapshots?vector_db_id={SECRET}", {SECRET: SECRET}),
        ("GET", "/v1/health", None),
        ("GET", "/v1/ready", None),
        ("GET", "/metrics", None),
        ("GET", "/reports", None),
        ("GET", f"/reports/{SECRET}", None),
        ("GET", "/v1/config", None),
        ("GET", "/v1/limits", None),
        ("GET", "/v1/orphans", None),
        ("POST", "/v1/orphans/remove", {"orphans": [{"provider_id": SECRET, "name": SECRET}]}),
        ("GET", "/v1/version", None),
        ("GET", "/v1/providers", None),
        ("GET", f"/v1/providers/{SECRET}", None),
        ("GET", "/v1/models", None),
        (
            "POST",
            "/v1/chat/completions",
            {"model": SECRET, "messages": [{"role": "user", "content": SECRET}]},
        ),
        (
            "POST",
            "/v1/chat/completions",
            {"model": f"corral/{db}", "messages": [{"role": "user", "content": SECRET}]},
        ),
        ("POST", "/v1/responses", {"model": f"corral/{db}", "input": SECRET}),
        ("POST", "/v1/responses", {"model": "extractive", "input": [{"type": SECRET}]}),
        ("GET", f"/v1/responses/{SECRET}", None),
        ("DELETE", f"/v1/responses/{SECRET}", None),
        ("POST", f"/v1/responses/{SECRET}/cancel", None),
        ("GET", f"/v1/responses/{SECRET}/input_items", None),
        ("POST", "/v1/conversations", {"items": [{"role": "user", "content": SECRET}]}),
        ("GET", f"/v1/conversations/conv_{SECRET}", None),
        ("POST", f"/v1/conversations/conv_{SECRET}", {"metadata": {SECRET: SECRET}}),
        ("DELETE", f"/v1/conversations/{SECRET}", None),
        ("POST", f"/v1/conversations/{SECRET}/items", {"items": [{"role": SECRET}]}),
        ("GET", f"/v1/conversations/conv_{SECRET}/items", None),
        ("GET", f"/v1/conversations/conv_{SECRET}/items/{SECRET}", None),
        ("DELETE", f"/v1/conversations/conv_{SECRET}/items/{SECRET}", None),
        ("GET", f"/v1/models/{SECRET}", None),
        ("POST", "/mcp", {**rpc, "params": search}),
        ("POST", "/mcp", {**rpc, "params": lost}),
        ("POST", "/mcp", {**rpc, "params": {"name": SECRET}}),
        ("POST", "/mcp", {**rpc, "method": SECRET, "params": {SECRET: SECRET}}),
        ("POST", "/v1/vector_stores", {"name": SECRET, "metadata": {SECRET: SECRET}}),
        ("GET", f"/v1/vector_stores?after={SECRET}", None),
        ("GET", f"/v1/vector_stores/{db}", None),
        ("POST", f"/v1/vector_stores/{db}", {"description": SECRET}),
        ("POST", f"/v1/vector_stores/{db}/search", {"query": SECRET, "filters": filters}),
        ("DELETE", f"/v1/vector_stores/{SECRET}", None),
        ("POST", f"/v1/vector_stores/{db}/files", {"file_id": SECRET}),
        ("GET", f"/v1/vector_stores/{db}/files?after={SECRET}", None),
        ("GET", f"/v1/vector_stores/{db}/files/{SECRET}", None),
        ("POST", f"/v1/vector_stores/{db}/files/{SECRET}", {"attributes": {SECRET: SECRET}}),
        ("DELETE", f"/v1/vector_stores/{db}/files/{SECRET}", None),
        ("GET", f"/v1/vector_stores/{db}/files/{SECRET}/content", None),
        ("POST", f"/v1/vector_stores/{db}/file_batches", {"file_ids": [SECRET]}),
        ("GET", f"/v1/vector_stores/{db}/file_batches/{SECRET}", None),
        ("POST", f"/v1/vector_stores/{db}/file_batches/{SECRET}/cancel", None),
        ("GET", f"/v1/vector_stores/{db}/file_batches/{SECRET}/files", None),
        ("POST", "/v1/files", {SECRET: SECRET}),
        ("GET", f"/v1/files?purpose={SECRET}", None),
        ("GET", f"/v1/files/{SECRET}", None),
        ("GET", f"/v1/files/{SECRET}/content", None),
        ("DELETE", f"/v1/files/{SECRET}", None),
        ("POST", "/v1/embeddings", {"model": "hashing", "input": SECRET}),
        ("POST", "/v1/vector-io/get", {"vector_db_id": db, "chunk_ids": [SECRET]}),
        ("POST", "/v1/vector-io/list", {"vector_db_id": db, "after": SECRET, "filters": filters}),
        ("POST", "/v1/vector-io/delete", {"vector_db_id": db, "chunk_ids": [SECRET]}),
        ("GET", "/v1/tools/openai", None),
        ("POST", "/v1/tools/openai/call", {"id": SECRET, "function": called}),
        ("POST", "/v1/tools/openai/call", {"id": SECRET, "function": {**called, "name": SECRET}}),
        ("POST", "/v1/rerank", {"model": "bm25", "query": SECRET, "documents": [SECRET]}),
        ("POST", "/v2/rerank", {"model": SECRET, "query": SECRET, "documents": [SECRET]}),
        ("POST", "/rerank", {"query": SECRET, "texts": [SECRET]}),
        ("GET", "/qdrant", None),
        ("GET", "/qdrant/collections", None),
        ("GET", f"/qdrant/collections/{db}", None),
        ("POST", f"/qdrant/collections/{db}/points/query", {"query": [1.0], "using": SECRET}),
        ("POST", "/v1/dify/retrieval", {"knowledge_id": db, "query": SECRET}),
        ("POST", "/v1/dify/retrieval", {"knowledge_id": SECRET, "query": SECRET}),
        ("GET", "/librechat/health", None),
        ("GET", "/librechat/ids", None),
        ("GET", f"/librechat/documents?ids={SECRET}", None),
        ("DELETE", "/librechat/documents", [SECRET]),
        ("POST", "/librechat/embed", {"file_id": SECRET}),
        ("POST", "/librechat/query", {"query": SECRET, "file_id": SECRET}),
        ("POST", "/librechat/query_multiple", {"query": SECRET, "file_ids": [SECRET]}),
        ("GET", f"/{SECRET}?q={SECRET}", None),
        ("PUT", f"/v1/vector-dbs/{SECRET}", None),
        ("DELETE", f"/v1/vector-dbs/{db}", None),
        ("GET", "/v1/whoami", None),
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"user": SECRET, SECRET: SECRET}),
        ("POST", f"/v1/keys/{SECRET}/revoke", None),
        ("POST", "/v1/keys", {"user": SECRET}),  # the last: from then on, each request needs one
    ]


def test_the_requests_reach_every_route(app: InProcess) -> None:
    """No route is without a request here."""
    routes = [re.compile(re.sub(r"\{\w+\}", ".+", path)) for path in app.app.openapi()["paths"]]
    paths = [path.partition("?")[0] for _, path, _ in requests()]
    assert [r.pattern for r in routes if not any(r.fullmatch(path) for path in paths)] == []


def own_records(caplog: pytest.LogCaptureFixture) -> str:
    """Return what was logged; httpx is the test's own client and logs URLs, not the server."""
    told = [record for record in caplog.records if not record.name.startswith("http")]
    return "\n".join(f"{record.name} {record.getMessage()} {record.exc_text}" for record in told)


def test_no_text_of_a_user_is_logged(app: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """For every route, served and refused, no logger says at INFO what a user sent.

    If this fails: questions and documents collect in log files, which are kept and shipped.
    """
    caplog.set_level(logging.INFO)
    statuses = [app.send(method, path, body).status_code for method, path, body in requests()]
    assert set(statuses) == {200, 400, 404, 405, 409}
    assert SECRET not in own_records(caplog)


def test_a_failure_logs_no_text_of_a_user(
    app: InProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nothing foresaw, with the question in its message, does not leak it."""
    caplog.set_level(logging.INFO)
    app.register()

    async def fail(_: Retrieval, vector_db_id: str, query: str, **more: Any) -> None:
        raise RuntimeError(f"cannot search for {query}")

    monkeypatch.setattr(Retrieval, "search", fail)
    body = {"vector_db_id": "db", "query": SECRET}
    response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == 500
    assert SECRET not in response.text
    assert "RuntimeError" in caplog.text
    assert SECRET not in own_records(caplog)


def test_there_is_a_line_for_each_request(app: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The access log has method, route, status, time and request id, and no query string."""
    caplog.set_level(logging.INFO, logger="corral.access")
    app.register("a/b")
    app.send("GET", "/v1/vector-dbs/a/b?secret=1", headers={"x-request-id": "id-1"})
    app.send("GET", "/nowhere")
    lines = [r.getMessage() for r in caplog.records if r.name == "corral.access"]
    assert len(lines) == 3
    assert re.fullmatch(r"GET /v1/vector-dbs/\{vector_db_id\} 200 \d+\.\d ms id-1", lines[1])
    assert re.fullmatch(r"GET /\* 404 \d+\.\d ms \w+", lines[2])


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", f"/v1/vector-dbs/{SECRET}", "GET /v1/vector-dbs/{vector_db_id} 400"),
        ("GET", f"/v1/vector-db/{SECRET}", "GET /v1/* 404"),
        ("GET", f"/v1/tool-runtime/{SECRET}", "GET /v1/tool-runtime/* 404"),
        ("GET", f"/v1/v1/health/{SECRET}", "GET /v1/* 404"),
        ("PUT", f"/v1/models/{SECRET}", "PUT /v1/models/{model_id} 405"),
        ("GET", f"/docs/assets/{SECRET}", "GET /docs/assets/{name} 404"),
        ("GET", f"/{SECRET}", "GET /* 404"),
    ],
)
def test_what_was_not_found_names_its_template(
    app: InProcess, caplog: pytest.LogCaptureFixture, method: str, path: str, said: str
) -> None:
    """The log says how far a path is one of the server's, and nothing of the rest.

    If this fails: an operator cannot see which of its clients' addresses is wrong, or reads names.
    """
    caplog.set_level(logging.INFO, logger="corral.access")
    app.send(method, path)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "corral.access"]
    assert line.startswith(f"{said} ")


def test_what_was_refused_before_its_route_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that is too large, and a Host that is not ours, were meant for a route."""
    caplog.set_level(logging.INFO, logger="corral.access")
    with InProcess(tmp_path, run_config(limits={"max_body_mib": 0.001})) as app:
        app.send("POST", "/v1/vector-io/insert", {"text": SECRET * 1000})
        app.send("GET", "/v1/models", headers={"host": "rebound.example"})
    lines = [r.getMessage() for r in caplog.records if r.name == "corral.access"]
    assert [line.rsplit(" ", 3)[0] for line in lines] == [
        "POST /v1/vector-io/insert 413",
        "GET /v1/models 421",
    ]


def test_a_missing_package_is_logged_with_its_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an operator has to mend is in the log, not only in a caller's reply."""
    from corral.api.errors import MissingDependency

    with InProcess(tmp_path, run_config()) as app:
        app.register()

        async def fail(*given: Any, **more: Any) -> None:
            raise MissingDependency("inline::x", "y", "pip install y")

        monkeypatch.setattr(Retrieval, "search", fail)
        body = {"vector_db_id": "db", "query": "fox"}
        assert app.send("POST", "/v1/vector-io/query", body).status_code == 424
    assert "pip install y" in caplog.text


def test_a_served_process_logs_no_text_of_a_user(tmp_path: Path) -> None:
    """`corral serve` writes the access lines to its output, and nothing of a user."""
    import httpx

    server = ServerProcess(tmp_path)
    try:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for method, path, body in requests():
                client.request(method, path, json=body)
    finally:
        server.stop()
    told = server.log.read_text()
    assert "POST /v1/vector-io/query 200" in told
    assert SECRET not in told
