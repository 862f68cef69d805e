"""The service that the tests of remote::rerank talk to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..json_service import Service, running_service


def scores(request: dict[str, Any]) -> Any:
    """Answer in either shape, the best first: a text's score is the number that it ends in."""
    texts = request.get("texts") or request["documents"]
    name = "score" if "texts" in request else "relevance_score"
    found = [{"index": i, name: float(text.rsplit(" ", 1)[-1])} for i, text in enumerate(texts)]
    found.sort(key=lambda each: -each[name])
    return found if "texts" in request else {"id": "x", "results": found}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A running service, with any proxy of the environment passed by."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service(scores) as found:
        yield found
