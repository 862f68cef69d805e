"""The service that the tests of remote::qdrant talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .qdrant_service import Service, running_service

URL_VARIABLE = "CORRAL_TEST_QDRANT_URL"
"""Where the second processes of the conformance suite find the service."""


@pytest.fixture(scope="session")
def shared_service() -> Iterator[None]:
    """A running service for all tests, with any proxy of the environment passed by."""
    with pytest.MonkeyPatch.context() as patch, running_service() as found:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv(URL_VARIABLE, found.url)
        yield


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service() as found:
        yield found
