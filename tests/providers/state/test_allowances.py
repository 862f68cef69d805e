"""Allowances that processes share, in both databases."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.providers.state.allowances import Allowances, Grant, Part
from corral.providers.state.state import State


@pytest.fixture
async def allowances(tmp_path: Path, state_url: str) -> AsyncIterator[tuple[Allowances, ...]]:
    """Yield the allowances of one database as two processes see them."""
    states = [State(tmp_path, state_url) for _ in range(2)]
    yield tuple(map(Allowances, states))
    for state in states:
        await state.close()


async def test_parts_come_from_one_allowance(allowances: tuple[Allowances, ...]) -> None:
    """Two processes get whole parts, until what was there at first and has come since is taken.

    If this fails: each process grants a whole allowance, or parts of it are lost.
    """
    begun, taken, rate = time.monotonic(), 0, 100
    for each in allowances * 20:
        grant, _ = await each.take("ann", Part(rate, wanted=7), Part())
        assert 0 <= grant.left <= rate
        taken += grant.amount
    assert rate <= taken <= rate * (1 + (time.monotonic() - begun) / 60)
    grant, none = await allowances[0].take("bob", Part(rate, wanted=7), Part())
    assert (grant, none) == (Grant(7, 93), Grant(0, 0))


async def test_a_debt_is_the_debt_of_all(allowances: tuple[Allowances, ...]) -> None:
    """What one process used beyond the allowance is missing for the other, until it has filled.

    If this fails: a caller evades its limit by sending large bodies to each process in turn.
    """
    begun = time.monotonic()
    await allowances[0].take("ann", Part(), Part(60, used=600))
    _, grant = await allowances[1].take("ann", Part(), Part(60, wanted=3))
    assert grant.amount == 0
    assert -540 <= grant.left <= -540 + time.monotonic() - begun
