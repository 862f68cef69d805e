"""PostgreSQL with the state is away: each route says when to repeat, and recovers by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..providers.conftest import url_of
from ..providers.vector_io.pgvector.conftest import Server, postgresql
from .harness import InProcess, run_config

BODIES: dict[str, dict[str, Any]] = {
    "/v1/vector-dbs": {"vector_db_id": "new", "embedding_model": "hashing"},
    "/v1/vector-io/query": {"vector_db_id": "db", "query": "sheep"},
    "/v1/vector-io/insert": {"vector_db_id": "db", "chunks": [{"content": "x"}]},
    "/v1/vector_stores": {"name": "farm"},
    "/v1/responses": {"model": "corral/db", "input": "sheep"},
    "/v1/conversations": {},
}
"""Bodies that reach the state; the others of POST are empty."""


def check_all_routes(app: InProcess) -> int:
    """Send a request to each route; return how many got 503, and check that no other 5xx came."""
    away = 0
    for path, methods in app.ok("GET", "/openapi.json")["paths"].items():
        for method in methods:
            there = path.replace("{vector_db_id}", "db").replace("{", "").replace("}", "")
            body = BODIES.get(path, {}) if method in ("post", "put", "patch") else None
            answer = app.send(method.upper(), there, body)
            if answer.status_code >= 500:
                assert answer.status_code == 503, (method, path, answer.text)
                assert int(answer.headers["retry-after"]) >= 1, (method, path)
                away += 1
    return away


@pytest.mark.parametrize("end", [Server.kill, Server.stop])
def test_every_route_is_unavailable_for_a_while(
    tmp_path: Path, end: Callable[[Server], None]
) -> None:
    """While PostgreSQL restarts, each failure is a 503 with `Retry-After`; then all is well.

    If this fails: clients give up on requests that would succeed seconds later.
    """
    with postgresql() as server, InProcess(tmp_path, run_config(state=url_of(server))) as app:
        registration = {"vector_db_id": "db", "embedding_model": "hashing"}
        app.ok("POST", "/v1/vector-dbs", {**registration, "provider_id": "sqlite"})
        end(server)
        assert check_all_routes(app) > 20
        server.start()
        assert app.contents("sheep") == []
        assert not check_all_routes(app)
