"""A server whose clock the tests set, and OpenAI's own client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ...chat_service import ChatService, running_chat
from ..harness import live_server, run_config
from .answers import add_notes, with_model
from .doubles import PATIENT, Clock, ClockedApp


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still until it is told otherwise."""
    return Clock()


@pytest.fixture
def app(tmp_path: Path, clock: Clock) -> Iterator[ClockedApp]:
    """Yield the app in process, on SQLite and the hashing embedder, with that clock."""
    with ClockedApp(tmp_path, clock) as started:
        yield started


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatService]:
    """A scripted language model, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_chat() as running:
        yield running


@pytest.fixture
def answering(service: ChatService, tmp_path: Path) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server with the notes and the scripted model."""
    with (
        live_server(with_model(service), tmp_path) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as made,
    ):
        add_notes(address)
        yield made


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a real server that answers once the files of a request are read."""
    with live_server(run_config(ingestion=PATIENT), tmp_path) as address:
        yield address
