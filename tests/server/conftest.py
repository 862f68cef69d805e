"""Servers for the tests to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..bench.report.headless import Browser, find_browser
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a headless browser; `make test` installs one."""
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium: run `make test`, which installs one with npm")
    with Browser(binary) as started:
        yield started
