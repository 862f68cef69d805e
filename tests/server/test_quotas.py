"""Rate limits: what one key may take, told with 429 and when to come back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from corral.api.principal import Role
from corral.providers.base.config import ServerSettings
from corral.providers.base.server_config import RateLimits
from corral.providers.state.allowances import Allowances
from corral.providers.state.state import State
from corral.server.access.quotas import MAX_CALLERS, Quotas, TooMany

from .harness import InProcess, message_of, run_config
from .secured import Holder, holder, keys_of, nobody


class Clock:
    """A time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def limited(home: Path, **limits: Any) -> InProcess:
    """Return a server with some rate limits."""
    config = run_config()
    config.server = ServerSettings.model_validate({"port": 0, "rate_limits": limits})
    return InProcess(home, config)


def test_requests_a_minute() -> None:
    """As many as are allowed at once, then one for each part of a minute; the error says when.

    If this fails: a limit of 60 lets through more than 60 in a minute, or fewer.
    """
    clock = Clock()
    quotas, limits = Quotas(clock), RateLimits(requests_per_minute=60)
    for _ in range(60):
        quotas.admit("ann", limits)
    with pytest.raises(TooMany) as refused:
        quotas.admit("ann", limits)
    assert refused.value.seconds == 1
    quotas.admit("bob", limits)
    clock.now += 0.5
    with pytest.raises(TooMany):
        quotas.admit("ann", limits)
    clock.now += 0.6
    quotas.admit("ann", limits)
    admitted = 0
    for _ in range(600):
        clock.now += 0.1
        try:
            quotas.admit("ann", limits)
            admitted += 1
        except TooMany:
            pass
    assert admitted in (60, 61)


def test_bytes_a_minute() -> None:
    """A body that takes too much is not cut off; the next request waits until it is made up for."""
    clock = Clock()
    quotas, limits = Quotas(clock), RateLimits(mib_per_minute=1)
    quotas.admit("ann", limits).count(3 * 1024 * 1024)
    with pytest.raises(TooMany) as refused:
        quotas.admit("ann", limits)
    assert refused.value.seconds == 121
    clock.now += 121
    quotas.admit("ann", limits)


def test_requests_at_once() -> None:
    """A request counts until it has ended, however it ends."""
    quotas, limits = Quotas(Clock()), RateLimits(concurrent_requests=2)
    with quotas.admit("ann", limits), quotas.admit("ann", limits):
        with pytest.raises(TooMany, match="2 requests at once"):
            quotas.admit("ann", limits)
        with quotas.admit("bob", limits):
            pass
    with pytest.raises(RuntimeError), quotas.admit("ann", limits):
        raise RuntimeError
    with quotas.admit("ann", limits), quotas.admit("ann", limits):
        pass


def test_callers_are_forgotten_when_they_owe_nothing() -> None:
    """Memory is bounded by who is there, and nobody gets a new allowance by waiting for that.

    If this fails: made-up users fill the memory, or a debt is gone.
    """
    clock = Clock()
    quotas, limits = Quotas(clock), RateLimits(requests_per_minute=1, mib_per_minute=1)
    quotas.admit("debtor", limits).count(100 * 1024 * 1024)
    running = quotas.admit("running", limits)
    with running:
        for number in range(MAX_CALLERS):
            quotas.admit(number, limits)
        clock.now += 61
        quotas.admit("one more", limits)
        assert len(quotas._uses) == 3
        with pytest.raises(TooMany):
            quotas.admit("debtor", limits)


def test_callers_without_a_byte_limit_are_forgotten_too() -> None:
    """What they have sent is no debt, and a debt is paid by waiting.

    If this fails: everybody who ever sent a body stays in memory.
    """
    clock = Clock()
    quotas = Quotas(clock)
    for number in range(MAX_CALLERS):
        limits = RateLimits(mib_per_minute=1) if number % 2 else RateLimits()
        quotas.admit(number, limits).count(2 * 1024 * 1024)
    clock.now += 61
    quotas.admit("early", RateLimits())
    assert len(quotas._uses) == 1


async def test_processes_share_the_allowances(tmp_path: Path) -> None:
    """Two processes together admit one allowance; neither holds more than a part of it unused.

    If this fails: a key can do as much on each replica as it may on all together.
    """
    state = State(tmp_path)
    first, second = (Quotas(shared=Allowances(state)) for _ in range(2))
    limits, begun = RateLimits(requests_per_minute=100), time.monotonic()

    async def admitted(quotas: Quotas, most: int) -> int:
        for count in range(most):
            try:
                await quotas.refill("ann", limits)
                quotas.admit("ann", limits)
            except TooMany:
                return count
        return most

    assert await admitted(second, 1) == 1
    count = await admitted(first, 1000)
    most = 100 * (1 + (time.monotonic() - begun) / 60)
    assert 95 <= count <= most - 5
    assert 4 <= await admitted(second, 1000) <= most - count
    await state.close()


async def test_processes_share_the_debt_of_a_body(tmp_path: Path) -> None:
    """A body that one process has let through counts at the next request of any process."""
    state = State(tmp_path)
    first, second = (Quotas(shared=Allowances(state)) for _ in range(2))
    limits = RateLimits(mib_per_minute=1)
    await first.refill("ann", limits)
    first.admit("ann", limits).count(3 * 1024 * 1024)
    await first.settle("ann", limits)
    for quotas in (first, second):
        with pytest.raises(TooMany) as refused:
            await quotas.refill("ann", limits)
        assert 60 < refused.value.seconds <= 121
    await state.close()


def test_the_answer_is_429_with_a_time(tmp_path: Path) -> None:
    """It names the limit and its setting, and other keys and the public pages go on.

    If this fails: clients cannot tell when to come back, or one key stops all.
    """
    with limited(tmp_path, requests_per_minute=2) as app:
        ann, bob = holder(app, "ann"), holder(app, "bob")
        assert [ann.status("GET", "/v1/vector-dbs") for _ in range(3)] == [200, 200, 429]
        refused = ann.send("GET", "/v1/vector-dbs")
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert "x-should-retry" not in refused.headers
        assert "2 requests a minute" in message_of(refused)
        assert "server.rate_limits.requests_per_minute" in message_of(refused)
        assert bob.status("GET", "/v1/vector-dbs") == 200
        assert nobody(app).status("GET", "/v1/health") == 200
        assert nobody(app).status("GET", "/v1/vector-dbs") == 401


def test_a_key_may_have_limits_of_its_own(tmp_path: Path) -> None:
    """What was said at its creation counts, and the server's where nothing was."""
    with limited(tmp_path, requests_per_minute=1, mib_per_minute=0.001) as app:
        limits = RateLimits(requests_per_minute=100)
        ann = holder(app, "ann", Role.WRITER, limits=limits)
        ann.register("db")
        ann.insert("x" * 4000)
        refused = ann.send("GET", "/v1/vector-dbs")
        assert (refused.status_code, "0.001 MiB a minute" in message_of(refused)) == (429, True)


def test_requests_that_wait_count_as_running(tmp_path: Path) -> None:
    """Two keys of one user are two callers; a third request of one key at once is refused."""
    with limited(tmp_path, concurrent_requests=2) as app:
        _, secret = app.run(lambda: keys_of(app).create("ann", role=Role.WRITER))
        ann, other = Holder(app, secret), holder(app, "ann", Role.WRITER)
        body = {"vector_db_id": "db", "embedding_model": "hashing"}
        assert ann.status("POST", "/v1/vector-dbs", body) == 200
        headers = {"authorization": f"Bearer {ann.secret}"}

        async def together() -> list[int]:
            sent = [app.http.get("/v1/vector-dbs?counts=true", headers=headers) for _ in range(3)]
            return [reply.status_code for reply in await asyncio.gather(*sent)]

        assert sorted(app.run(together)) == [200, 200, 429]
        assert other.status("GET", "/v1/vector-dbs") == 200
