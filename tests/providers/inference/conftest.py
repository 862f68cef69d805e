"""The service that the tests of remote::chat talk to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ...chat_service import USAGE, events, piece
from ..json_service import Service, running_service


def echo(request: dict[str, Any]) -> bytes:
    """Answer with the prompt in upper case, in two pieces."""
    text = request["messages"][0]["content"].upper()
    counted = {"choices": [], "usage": USAGE}
    return events(piece(text[:2]), piece(text[2:], "stop"), counted)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service(echo) as found:
        yield found
