"""A server whose clock the tests set, and OpenAI's own client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .doubles import Clock, ClockedApp


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still until it is told otherwise."""
    return Clock()


@pytest.fixture
def app(tmp_path: Path, clock: Clock) -> Iterator[ClockedApp]:
    """Yield the app in process, on SQLite and the hashing embedder, with that clock."""
    with ClockedApp(tmp_path, clock) as started:
        yield started
