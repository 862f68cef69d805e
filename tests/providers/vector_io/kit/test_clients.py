"""A client that several indexes share: opened by the first call, closed after the last one."""

from __future__ import annotations

import pytest

from corral.api.errors import Unavailable
from corral.providers.vector_io.kit.clients import SharedAsyncClient, SharedClient

Log = list[str]


def shared(log: Log) -> SharedClient[str]:
    """Return a client that notes when it is opened and closed."""

    def connect() -> str:
        log.append("open")
        return "client"

    return SharedClient("farm", connect, lambda client: log.append(f"close {client}"))


def test_a_call_keeps_the_client_that_its_user_has_left() -> None:
    """The client is closed when the last call ends, if all users have left during it.

    If this fails: who deletes a vector DB while a search is under way cuts the search off.
    """
    log = Log()
    client = shared(log)
    client.enter()
    with client.calling():
        client.connected()
        client.leave()
        assert log == ["open"]
    assert log == ["open", "close client"]


def test_a_late_call_does_not_open_the_client_again() -> None:
    """Without users a call is refused with the provider's name."""
    log = Log()
    client = shared(log)
    with client.using():
        pass
    with pytest.raises(Unavailable, match="farm"), client.calling():
        client.connected()
    assert log == []


async def test_tasks_keep_the_client_likewise() -> None:
    """The twin for tasks closes after the last call, and opens again for a new user."""
    log = Log()

    async def connect() -> str:
        log.append("open")
        return "client"

    async def disconnect(client: str) -> None:
        log.append(f"close {client}")

    client = SharedAsyncClient("farm", connect, disconnect)
    for _ in range(2):
        client.enter()
        async with client.calling():
            await client.connected()
            await client.leave()
            assert log == ["open"]
        assert log == ["open", "close client"]
        log.clear()
    with pytest.raises(Unavailable, match="farm"):
        async with client.calling():
            pass
