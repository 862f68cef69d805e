"""A server whose clock the tests set, and OpenAI's own client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..harness import live_server, run_config
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
def url(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a real server that answers once the files of a request are read."""
    with live_server(run_config(ingestion=PATIENT), tmp_path) as address:
        yield address
