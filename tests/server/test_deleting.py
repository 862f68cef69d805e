"""Vector DBs that are deleted over HTTP while requests use them, or whose provider has left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from .harness import InProcess, Json, message_of, run_config

PROVIDERS = ["chroma", "faiss", "memory", "qdrant", "sqlite"]


def config_of(*names: str) -> Any:
    """Return a configuration with these inline providers."""
    config = run_config()
    entries = [{"provider_id": name, "provider_type": f"inline::{name}"} for name in names]
    providers = {**config.providers.model_dump(), "vector_io": entries}
    return config.model_validate({**config.model_dump(), "providers": providers})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_requests_under_a_deletion_never_fail_with_5xx(tmp_path: Path, provider: str) -> None:
    """Each is answered with 200, or with the 400 of an unknown vector DB, in 8 rounds of 8.

    If this fails: a request holds something of the vector DB beside its index.
    """
    asked: Json = {"content": "fox", "vector_db_ids": ["db"]}
    requests: list[tuple[str, Json]] = [
        ("/v1/vector-io/query", {"vector_db_id": "db", "query": "fox"}),
        ("/v1/tool-runtime/rag-tool/query", asked),
        ("/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [{"content": "a fox"}]}),
    ]
    with InProcess(tmp_path, config_of(provider)) as app:
        for number in range(8):
            app.register()
            app.insert("the fox sleeps")

            async def ask(path: str, body: Json) -> list[int]:
                found: list[int] = []
                while 400 not in found:
                    found.append((await app.http.post(path, json=body)).status_code)
                return found

            async def delete(wait: float = 0.01 * (number % 4)) -> list[int]:
                await asyncio.sleep(wait)
                return [(await app.http.delete("/v1/vector-dbs/db")).status_code]

            async def both() -> list[list[int]]:
                asking = [ask(path, body) for path, body in requests * 2]
                return await asyncio.gather(delete(), *asking)

            [deleted], *answered = app.run(both)
            assert deleted == 200
            assert {status for one in answered for status in one} <= {200, 400}


def test_a_vector_db_whose_provider_has_left_is_deleted_with_a_word(tmp_path: Path) -> None:
    """The reply names the provider and says that the chunks stay; any other reply is null."""
    with InProcess(tmp_path, config_of("sqlite", "memory")) as app:
        app.register("far", provider_id="sqlite")
        app.register("near", provider_id="memory")
    with InProcess(tmp_path, config_of("memory")) as app:
        note = app.ok("DELETE", "/v1/vector-dbs/far")["note"]
        assert "'sqlite' is no longer in run.yaml" in note
        assert app.ok("DELETE", "/v1/vector-dbs/near") is None
        assert app.ok("GET", "/v1/vector-dbs")["data"] == []


@pytest.mark.sqlite_state("its file is locked; tests/providers/state has both databases")
def test_a_locked_registry_is_a_503_that_may_be_repeated(tmp_path: Path) -> None:
    """A registration says who holds the file; clients repeat it; queries go on."""
    with InProcess(tmp_path) as app:
        app.register()
        app.insert("the fox sleeps")
        connection = apsw.Connection(str(tmp_path / "state.db"))
        connection.execute("BEGIN IMMEDIATE")
        body = {"vector_db_id": "new", "embedding_model": "hashing"}
        refused = app.send("POST", "/v1/vector-dbs", body)
        assert refused.status_code == 503
        assert "state.db is locked" in message_of(refused)
        assert "x-should-retry" not in refused.headers
        assert app.contents("fox") == ["the fox sleeps"]
        connection.close()
        app.register("new")
