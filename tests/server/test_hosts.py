"""Names that the server answers to: a page of another origin cannot make a browser read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from corral.providers.base.config import RunConfig, ServerSettings
from corral.server.app import create_app

from .harness import InProcess, live_server, message_of, run_config

FOREIGN = [
    "rebound.example",
    "rebound.example:8321",
    "127.0.0.1.nip.example",
    "localhost.example",
    "notlocalhost",
    "169.254.169.254",
    "user@localhost",
    "localhost:1:2",
    "[::1",
    "",
]
LOCAL = [
    "localhost",
    "LocalHost:8321",
    "localhost.",
    "corral.localhost:8321",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.8.9.10",
    "[::1]:8321",
]


def with_server(**settings: Any) -> RunConfig:
    """Return a configuration with some settings of `server`."""
    config = run_config()
    config.server = ServerSettings(**settings)
    return config


def statuses(config: RunConfig, home: Path, hosts: list[str]) -> dict[str, int]:
    """Return the status for each Host, asked of a real server on 127.0.0.1."""
    with live_server(config, home) as url, httpx.Client(base_url=url) as http:
        return {h: http.get("/v1/vector-dbs", headers={"host": h}).status_code for h in hosts}


def test_a_foreign_host_is_refused(tmp_path: Path) -> None:
    """On loopback only local names and the address itself are answered.

    If this fails: a web page whose name was pointed at 127.0.0.1 reads and writes every vector DB.
    """
    found = statuses(run_config(), tmp_path, [*FOREIGN, *LOCAL])
    assert {host: found[host] for host in FOREIGN} == dict.fromkeys(FOREIGN, 421)
    assert {host: found[host] for host in LOCAL} == dict.fromkeys(LOCAL, 200)


def test_every_route_refuses_it_and_nothing_is_changed(app: InProcess) -> None:
    """A write, the documentation and what does not exist are refused alike, with what to do."""
    foreign = {"host": "rebound.example", "content-type": "application/json"}
    body = b'{"vector_db_id": "db", "embedding_model": "hashing"}'
    refused = app.send("POST", "/v1/vector-dbs", content=body, headers=foreign)
    assert refused.status_code == 421
    assert "server.allowed_hosts" in message_of(refused)
    assert app.ok("GET", "/v1/vector-dbs")["data"] == []
    for path in ("/docs", "/openapi.json", "/nowhere"):
        assert app.send("GET", path, headers={"host": "rebound.example"}).status_code == 421


def test_a_setting_names_more_hosts(tmp_path: Path) -> None:
    """`server.allowed_hosts` adds names, without regard to case and port; `*` adds all."""
    config = with_server(allowed_hosts=["corral.example.org"])
    found = statuses(config, tmp_path, ["Corral.Example.org:443", "other.example.org", "localhost"])
    assert list(found.values()) == [200, 421, 200]
    assert statuses(with_server(allowed_hosts=["*"]), tmp_path, ["a.example"]) == {"a.example": 200}


def test_the_bound_name_and_address_are_answered(tmp_path: Path) -> None:
    """`server.host` is a name of the server; on all addresses, every address is, but no name."""
    assert statuses(with_server(host="box.lan"), tmp_path, ["box.lan:8321"]) == {
        "box.lan:8321": 200
    }
    for anywhere in ("0.0.0.0", "::"):
        hosts = ["10.1.2.3:8321", "[fd00::1]", "0.0.0.0", "rebound.example"]
        found = statuses(with_server(host=anywhere), tmp_path, hosts)
        assert list(found.values()) == [200, 200, 200, 421]


def test_in_process_any_url_works(tmp_path: Path) -> None:
    """A test client calls the app under whatever name it likes; a forged Host is refused still."""
    with TestClient(create_app(run_config(), tmp_path)) as client:
        assert client.get("/v1/health").status_code == 200
        assert client.get("https://corral.example/v1/health").status_code == 200
        forged = client.get("/v1/health", headers={"host": "rebound.example"})
        assert forged.status_code == 421


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "*.example", "a b", ""])
def test_a_host_is_a_name_only(name: str) -> None:
    """What could never match a Host is refused when the configuration is read."""
    with pytest.raises(ValidationError, match="is not a host name"):
        ServerSettings(allowed_hosts=[name])
