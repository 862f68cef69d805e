"""The service that the tests of remote::qdrant talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .qdrant_service import Service, running_service


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service() as found:
        yield found
