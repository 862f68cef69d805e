"""How routes are made."""

from __future__ import annotations

import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Annotated, Any

import pytest
from fastapi import Depends
from pydantic import BaseModel

from corral.server.routing import ContractRoute


class Body(BaseModel):
    """What the endpoint below takes."""

    name: str


def nothing() -> None:
    """Stand for what an endpoint depends on."""


async def endpoint(body: Body, given: Annotated[None, Depends(nothing)]) -> Body:
    """Return what it got."""
    return body


def test_an_endpoint_is_read_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route is matched without its endpoint's signature; who asks for more gets all of it.

    If this fails: each command and each server reads all endpoints when it starts, or a second app
    in another thread sees a route that is read in part.
    """
    read: list[object] = []
    true_signature = inspect.signature

    def slow(call: Any, **options: Any) -> inspect.Signature:
        read.append(call)
        time.sleep(0.02)  # so that the threads below overlap
        return true_signature(call, **options)

    monkeypatch.setattr(inspect, "signature", slow)
    route = ContractRoute("/v1/{name}", endpoint, methods=["POST"])
    scope = {"type": "http", "method": "POST", "path": "/v1/one", "path_params": {}}
    assert route.matches(scope)[1]["path_params"] == {"name": "one"}
    assert not read
    together = Barrier(4)

    def body_and_dependencies(_: int) -> tuple[Any, int]:
        together.wait()
        assert route.body_field is not None
        return route.body_field.field_info.annotation, len(route.dependant.dependencies)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(body_and_dependencies, range(4)))
    assert found == [(Body, 2)] * 4  # who may use it is a dependency, too
    assert endpoint in read
