"""Calls in flight: deletion waits for them, and not for ever."""

from __future__ import annotations

import pytest

from corral.api.calls import InFlight
from corral.api.errors import NotFound, Unavailable


async def test_a_deletion_does_not_wait_for_ever() -> None:
    """Where a call does not end, the deletion says so, and calls are accepted as before.

    If this fails: one query that hangs keeps a vector DB from being deleted, or from being used.
    """
    in_flight = InFlight("db", drain_seconds=0.05)
    with in_flight:
        with pytest.raises(Unavailable, match=r"'db' is in use: 1 requests? .*Nothing was deleted"):
            async with in_flight.closing():
                pytest.fail("entered while a call was running")
        with in_flight:
            pass
    async with in_flight.closing():
        with pytest.raises(NotFound, match="'db' was deleted or closed"):
            in_flight.__enter__()
