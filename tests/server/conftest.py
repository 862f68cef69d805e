"""Servers for the tests to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import InProcess, live_server, run_config


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app in process, on SQLite and the hashing embedder, with an empty home."""
    with InProcess(tmp_path) as started:
        yield started


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a real server on a free port of 127.0.0.1."""
    with live_server(run_config(), tmp_path) as address:
        yield address
