"""Two servers with one state in PostgreSQL: each serves what the other has written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from corral.providers.state.opening import SCHEMA
from corral.providers.state.tables import HEAD

from ..providers.conftest import url_of
from ..providers.vector_io.pgvector.conftest import postgresql
from .cli.conftest import Corral, invoke
from .harness import live_server, run_config, wait_until

__all__ = ["invoke"]

STALE_SECONDS = 1
RATE = 60
"""Requests a minute of a key with a limit."""
REGISTRATION = {"vector_db_id": "notes", "embedding_model": "hashing", "provider_id": "sqlite"}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Yield the URL of a database."""
    with postgresql() as server:
        yield url_of(server)


@pytest.fixture
def state_url(database: str) -> str:
    """Return the URL of a database without a state."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    return database


@pytest.fixture
def servers(tmp_path: Path, state_url: str) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Yield clients of two servers, each with a data folder of its own."""
    config = run_config(state=state_url)
    with (
        live_server(config, tmp_path / "a") as one,
        live_server(config, tmp_path / "b") as other,
        httpx.Client(base_url=one, timeout=60) as first,
        httpx.Client(base_url=other, timeout=60) as second,
    ):
        yield first, second


def names(client: httpx.Client) -> list[str]:
    """Return the ids of the registered vector DBs."""
    listed = client.get("/v1/vector-dbs").raise_for_status().json()["data"]
    return [each["identifier"] for each in listed]


def test_a_registration_is_everywhere(servers: tuple[httpx.Client, httpx.Client]) -> None:
    """What one server registers or deletes, the other lists so; a name is registered once."""
    first, second = servers
    assert names(first) == names(second) == []
    assert first.post("/v1/vector-dbs", json=REGISTRATION).status_code == 200
    wait_until(lambda: names(second) == ["notes"], STALE_SECONDS)
    again = second.post("/v1/vector-dbs", json=REGISTRATION)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "elsewhere")
    assert first.post("/v1/vector-dbs", json=REGISTRATION).status_code == 200
    assert first.delete("/v1/vector-dbs/notes").status_code < 300
    wait_until(lambda: names(second) == [], STALE_SECONDS)


def test_a_revoked_key_is_refused_everywhere(
    servers: tuple[httpx.Client, httpx.Client], tmp_path: Path, state_url: str, invoke: Corral
) -> None:
    """The command line writes keys into the state of its run.yaml; both servers see it at once.

    If this fails: a key that leaked is revoked on one replica, and opens the others.
    """
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({"state": state_url}), encoding="utf-8")

    def corral(*words: str) -> str:
        done = invoke("--home", tmp_path / "c", "--config", file, *words)
        assert done.exit_code == 0, done.output
        return done.stdout

    secret = corral("keys", "create", "ann", "--role", "admin").strip()
    statuses = [server.get("/v1/vector-dbs").status_code for server in servers]
    assert statuses == [401, 401]
    for server in servers:
        server.headers["authorization"] = f"Bearer {secret}"
        assert names(server) == []
    corral("keys", "revoke", secret.split("_")[1])
    statuses = [server.get("/v1/vector-dbs").status_code for server in servers]
    assert statuses == [401, 401]


def test_the_limit_of_a_key_holds_over_all_servers(
    servers: tuple[httpx.Client, httpx.Client], tmp_path: Path, state_url: str, invoke: Corral
) -> None:
    """Two servers together admit the requests of one minute, and no more.

    Each may hold a twentieth of them that it took before; docs/access.md states this.
    """
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({"state": state_url}), encoding="utf-8")
    words = ("keys", "create", "ann", "--role", "admin", "--requests-per-minute", RATE)
    done = invoke("--home", tmp_path / "c", "--config", file, *words)
    assert done.exit_code == 0, done.output
    headers, begun = {"authorization": f"Bearer {done.stdout.strip()}"}, time.monotonic()
    statuses = [
        server.get("/v1/vector-dbs", headers=headers).status_code for server in servers * RATE
    ]
    passed = RATE * (time.monotonic() - begun) / 60
    assert set(statuses) == {200, 429}
    assert RATE * 18 / 20 <= statuses.count(200) <= RATE + passed


def test_the_password_is_shown_nowhere(
    tmp_path: Path, state_url: str, invoke: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither commands nor refusals show a password of `state`, whatever is wrong with it."""
    file = tmp_path / "run.yaml"
    whole = "postgresql://ann:pa55word@127.0.0.1:9/corral"
    for url in (whole, "postgresql://ann:@pa55word@db/x", "postgresql://ann:pa55word", "pa55word"):
        file.write_text(json.dumps({"state": url}), encoding="utf-8")
        for words in (("config", "show"), ("dbs", "list"), ("keys", "list"), ("state", "upgrade")):
            done = invoke("--home", tmp_path / "c", "--config", file, *words)
            assert "pa55word" not in done.output + caplog.text
            assert done.exit_code == 2 or url == whole
    file.write_text(json.dumps({"state": state_url}), encoding="utf-8")
    upgraded = invoke("--home", tmp_path / "c", "--config", file, "state", "upgrade")
    assert upgraded.exit_code == 0
    again = invoke("--home", tmp_path / "c", "--config", file, "state", "upgrade")
    assert f"has schema version {HEAD} already" in again.stdout
