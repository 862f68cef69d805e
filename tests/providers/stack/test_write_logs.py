"""Machines that share a state write to a vector DB one after the other, and finish each other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from corral.api.chunks import Chunk
from corral.api.errors import Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.stack.background import Sweep
from corral.providers.stack.stack import Stack
from corral.providers.stack.write_logs import BEAT_SECONDS, StateWriteLog
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.state import State, upsert
from corral.providers.state.tables import WRITES
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.retries import retried, retried_async
from corral.providers.vector_io.kit.write_ahead import Intent

from ..vector_io.qdrant.conftest import stand_in
from ..vector_io.registrations import registration

DB = registration("memory", embedding_dimension=3)
WRITE = Intent([], np.empty((0, 3), np.float32), frozenset(), ["a", "b"])


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
async def machines(tmp_path: Path, state_url: str) -> AsyncIterator[list[State]]:
    """Yield the state as two machines have it open."""
    states = [State(tmp_path, state_url) for _ in range(2)]
    try:
        yield states
    finally:
        for state in states:
            await state.close()


async def test_machines_write_one_after_the_other(machines: list[State]) -> None:
    """No two writers to one vector DB have its lock at the same time.

    If this fails: two replicas replace a document at once, and chunks of both versions stay.
    """
    inside, most = 0, 0

    async def write(log: StateWriteLog) -> None:
        nonlocal inside, most
        async with log.locked():
            inside += 1
            most = max(most, inside)
            await log.log(WRITE)
            await asyncio.sleep(0.01)
            await log.clear()
            inside -= 1

    logs = [StateWriteLog(state, DB) for state in machines for _ in range(2)]
    await asyncio.gather(*(write(log) for log in logs))
    assert most == 1


async def test_a_frozen_writer_is_replaced_and_stops(machines: list[State]) -> None:
    """Another machine takes its lock and its write after the lease; it sends no further request.

    If this fails: a frozen machine holds up a vector DB for ever, or overwrites newer documents
    when it wakes up.
    """
    clock, ours = Clock(), Clock()
    frozen, next_one = StateWriteLog(machines[0], DB, clock), StateWriteLog(machines[1], DB, ours)
    requests: list[str] = []

    async def request() -> None:
        requests.append("sent")

    async def takes_over() -> None:
        async with next_one.locked():
            assert (await next_one.pending() or WRITE).deleted == ["a", "b"]
            await next_one.clear()

    async def wakes_up() -> None:
        async with frozen.locked():
            await frozen.log(WRITE)
            await retried_async(request, lambda _: False, 1, 0)
            taking = asyncio.create_task(takes_over())
            while not taking.done():
                await asyncio.sleep(BEAT_SECONDS / 20)
                ours.now += LEASE_SECONDS / 4
            await taking
            clock.now += LEASE_SECONDS
            with pytest.raises(Unavailable, match="stood still"):
                await retried_async(request, lambda _: False, 1, 0)
            in_thread = partial(retried, partial(requests.append, "sent"), lambda _: False, 1, 0)
            with pytest.raises(Unavailable, match="stood still"):
                await asyncio.to_thread(in_thread, within_seconds=1)
            await frozen.clear()

    with pytest.raises(Unavailable, match="stood still"):
        await wakes_up()
    assert requests == ["sent"]


async def test_a_writer_with_a_beat_is_waited_for(machines: list[State]) -> None:
    """A write that takes longer than the lease keeps its lock while its process works.

    If this fails: two machines write to one vector DB because a large document takes long.
    """
    ours = Clock()
    at_work, waiting = StateWriteLog(machines[0], DB), StateWriteLog(machines[1], DB, ours)

    async def waits() -> None:
        async with waiting.locked():
            pass

    async with at_work.locked():
        waiter = asyncio.create_task(waits())
        for _ in range(4):  # each step is shorter than the lease, and a beat falls into it
            await asyncio.sleep(1.5 * BEAT_SECONDS)
            ours.now += LEASE_SECONDS / 2
        assert not waiter.done()
    await waiter


async def test_the_sweep_finishes_a_write_that_was_left(
    tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica carries out the logged write of a dead one, in a vector DB that it has open.

    If this fails: after a crash, searches return half of a document until the next write.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with stand_in() as settings:
        far = {"provider_id": "far", "provider_type": "remote::qdrant", "config": settings}
        hashing = {"provider_type": "inline::hashing", "config": {"dimension": 3}}
        providers = {"vector_io": [far], "embedding": [{"provider_id": "hashing", **hashing}]}
        config = RunConfig.model_validate({"state": postgresql_url, "providers": providers})
        stack = Stack(config, tmp_path)
        try:
            new = VectorDBRegistration(vector_db_id="db", embedding_model="hashing")
            await stack.register(new)
            index = await stack.index("db")
            chunk = Chunk(chunk_id="a", content="Hay.", metadata={"document_id": "d"})
            left = Intent([chunk], np.ones((1, 3), np.float32), frozenset({"d"}))
            row = {"name": stored_name(index.vector_db), "writer": "", "beat": 0}
            rows = [{**row, "entry": left.to_bytes()}]
            await stack.state.area("writes").write(lambda table: upsert(table, WRITES, rows))
            await Sweep(stack).once()
            assert [each.content for each in await index.get_chunks(["a"])] == ["Hay."]
            assert await stack.state.area("writes").read(select(WRITES)) == []
        finally:
            await stack.close()
