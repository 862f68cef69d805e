"""A server that starts loads the models of its vector DBs before anybody asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.providers.base.config import RunConfig
from corral.providers.embedding._local.embedder import LocalProvider

from ..providers.embedding.onnx.model_folders import table_folder
from .harness import InProcess

MODEL = "table"


def config(folder: Path) -> RunConfig:
    """Return a configuration with one model of that folder."""
    settings = {"models": [{"model": MODEL, "path": str(folder), "dimension": 3}], "threads": 1}
    local = {"provider_id": "l", "provider_type": "inline::onnx", "config": settings}
    return RunConfig.model_validate(
        {"providers": {"embedding": [local]}, "default_embedding_model": MODEL}
    )


def registered(home: Path, folder: Path) -> None:
    """Register a vector DB with that model, and end the server."""
    with InProcess(home, config(folder)) as app:
        body = {"vector_db_id": "db", "embedding_model": MODEL, "provider_id": "sqlite"}
        assert app.send("POST", "/v1/vector-dbs", body).is_success


def until(app: InProcess, done: Callable[[], bool]) -> None:
    """Let the server run until something has happened, for a minute at most."""
    end = time.monotonic() + 60
    while not done() and time.monotonic() < end:
        app.run(lambda: asyncio.sleep(0.01))
    assert done()


def test_a_model_in_use_is_loaded_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start loads it though nobody asks; a start without vector DBs loads nothing.

    If this fails: the first question after every restart waits for the model.
    """
    loaded: list[str] = []
    load = LocalProvider._load

    def counting(self: LocalProvider[Any], served: Any) -> object:
        loaded.append(MODEL)
        return load(self, served)

    monkeypatch.setattr(LocalProvider, "_load", counting)
    folder = table_folder(tmp_path / "model")
    with InProcess(tmp_path / "empty", config(folder)) as app:
        app.run(lambda: asyncio.sleep(0.1))
        assert loaded == []
    registered(tmp_path / "home", folder)
    loaded.clear()
    with InProcess(tmp_path / "home", config(folder)) as app:
        until(app, lambda: bool(loaded))


def test_a_model_that_is_gone_does_not_keep_the_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what is missing, and so does the question that needs the model.

    If this fails: one lost file stops everything else that the server holds.
    """
    folder = table_folder(tmp_path / "model")
    registered(tmp_path / "home", folder)
    (folder / "model.onnx").unlink()
    with (
        caplog.at_level(logging.WARNING, "corral.providers.stack.background"),
        InProcess(tmp_path / "home", config(folder)) as app,
    ):
        until(app, lambda: bool(caplog.records))
        assert "has no file" in caplog.text
        body = {"vector_db_id": "db", "query": "red barn"}
        reply = app.send("POST", "/v1/vector-io/query", body)
        assert not reply.is_success
        assert "has no file" in reply.text
