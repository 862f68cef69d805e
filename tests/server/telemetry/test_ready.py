"""Readiness: whether a load balancer should send requests here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corral.providers.base.config import ProviderEntry

from ..harness import InProcess, run_config

CLOSED = "http://127.0.0.1:9"  # nobody listens on the discard port


def test_a_server_whose_defaults_work_is_ready(tmp_path: Path) -> None:
    """A second database that is down is shown, and does not make the server unready."""
    config = run_config()
    config.providers.vector_io.append(
        ProviderEntry(provider_id="far", provider_type="remote::chroma", config={"url": CLOSED})
    )
    with InProcess(tmp_path, config) as app:
        reply = app.send("GET", "/v1/ready")
    assert reply.status_code == 200
    states = {p["provider_id"]: p["status"] for p in reply.json()["providers"]}
    assert states == {"sqlite": "OK", "far": "Error", "hashing": "OK", "extractive": "OK"}


def test_a_server_without_its_database_is_not_ready(tmp_path: Path) -> None:
    """The default provider is down: 503, and the answer names it without its settings.

    If this fails: users are sent to a server that can only answer 503.
    """
    config = run_config()
    config.providers.vector_io[:] = [
        ProviderEntry(provider_id="far", provider_type="remote::chroma", config={"url": CLOSED})
    ]
    with InProcess(tmp_path, config) as app:
        reply = app.send("GET", "/v1/ready")
        assert app.send("GET", "/v1/health").status_code == 200, "it lives"
    assert reply.status_code == 503
    assert "Not ready: the vector_io provider 'far' cannot serve." in reply.json()["detail"]
    assert CLOSED not in reply.text
    states = {p["provider_id"]: p["status"] for p in reply.json()["providers"]}
    assert states == {"far": "Error", "hashing": "OK", "extractive": "OK"}


def test_a_database_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All providers are asked at once, within one time; who hangs beyond it is an Error.

    If this fails: the load balancer's own time is over, and a server that works gets no requests.
    """
    config = run_config()
    for name in ("far", "farther"):
        config.providers.vector_io.append(
            ProviderEntry(provider_id=name, provider_type="inline::memory")
        )
    with InProcess(tmp_path, config) as app:
        released = asyncio.Event()
        for name in ("far", "farther"):
            monkeypatch.setattr(app.app.state.stack.vector_io(name), "health", released.wait)
        # Where it waits for them, `released` is set by nobody: the request never ends.
        reply = app.run(lambda: asyncio.wait_for(app.http.get("/v1/ready"), 60))
    assert reply.status_code == 200
    states = {p["provider_id"]: p["status"] for p in reply.json()["providers"]}
    assert states == {
        "sqlite": "OK",
        "far": "Error",
        "farther": "Error",
        "hashing": "OK",
        "extractive": "OK",
    }
