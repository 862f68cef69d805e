"""The service that the tests of remote::chat talk to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..json_service import Service, running_service


def echo(request: dict[str, Any]) -> Any:
    """Answer with the prompt in upper case."""
    content = request["messages"][0]["content"].upper()
    message = {"role": "assistant", "content": content}
    return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service(echo) as found:
        yield found
