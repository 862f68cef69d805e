"""Claims on background work: one process at a time, and another one after its death."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert

from corral.api.errors import Conflict, Unavailable
from corral.providers.state.claims import Claims
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.state import State
from corral.providers.state.tables import CLAIMS

DAY = 86_400.0
WAIT_SECONDS = 120


class Work:
    """Work that counts its runs, and waits until it may end."""

    def __init__(self) -> None:
        self.count, self.begun, self.may_end = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self.begun.set()
        await self.may_end.wait()


@pytest.fixture
async def claims(tmp_path: Path, state_url: str) -> AsyncIterator[tuple[Claims, Claims]]:
    """Yield the claims of two processes on one database."""
    states = [State(tmp_path, state_url) for _ in range(2)]
    yield Claims(states[0], tmp_path / "one"), Claims(states[1], tmp_path / "other")
    for state in states:
        await state.close()


async def test_one_process_works_at_a_time(claims: tuple[Claims, Claims]) -> None:
    """While one works, the others and it itself decline; other tasks are free."""
    first, second = claims
    work, other = Work(), Work()
    other.may_end.set()
    running = asyncio.create_task(first.run("sweep", work))
    await work.begun.wait()
    assert not await second.run("sweep", other)
    assert not await first.run("sweep", other)
    assert await second.run("sync", other)
    work.may_end.set()
    assert await running
    assert await second.run("sweep", other)
    assert (work.count, other.count) == (1, 2)


async def test_work_with_an_interval_is_done_once_in_it(claims: tuple[Claims, Claims]) -> None:
    """After one process has done it, it is due for none; after a failure, it is due for all.

    If this fails: each replica runs each sync of a schedule, or one failure skips a day.
    """
    first, second = claims
    work = Work()
    work.may_end.set()

    async def failing() -> None:
        raise Unavailable("The source is away.")

    with pytest.raises(Unavailable):
        await first.run("sync", failing, every=DAY)
    assert await second.run("sync", work, every=DAY)
    assert not await first.run("sync", work, every=DAY)
    assert not await second.run("sync", work, every=DAY)


async def test_cancelled_work_is_free_at_once(claims: tuple[Claims, Claims]) -> None:
    """A server that stops leaves its work to another one without a pause."""
    first, second = claims
    work = Work()
    running = asyncio.create_task(first.run("sync", work, every=DAY))
    await work.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    work.may_end.set()
    assert await second.run("sync", work, every=DAY)


WORKER = """
import asyncio, pathlib, sys
from corral.providers.state.claims import Claims
from corral.providers.state.state import State

async def work():
    print("working", flush=True)
    await asyncio.sleep(1e6)

async def main(home, url):
    home = pathlib.Path(home)
    print("done", await Claims(State(home, url), home).run("sweep", work), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def worker(tmp_path: Path, postgresql_url: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that claims the sweep and works without end."""
    command = [sys.executable, "-c", WORKER, str(tmp_path / "other"), postgresql_url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_dead_or_frozen_work_is_taken_over_after_the_lease(
    tmp_path: Path, postgresql_url: str, worker: subprocess.Popen[str], end: signal.Signals
) -> None:
    """Another process does the work no sooner than a lease later; one that wakes up stops its own.

    If this fails: a replica that died holds the sweep up forever, or two replicas go on with it, or
    those that look for several dead processes in turn take over from none.
    """
    assert worker.stdout is not None
    assert worker.stdout.readline() == "working\n"
    worker.send_signal(end)
    state = State(tmp_path, postgresql_url)
    left = {"task": "sync", "owner": "dead", "number": 1, "due": 0.0}
    await state.area("claims").write(lambda table: table.execute(insert(CLAIMS), left))
    claims, work, begun = Claims(state, tmp_path), Work(), time.monotonic()
    work.may_end.set()
    tasks = {"sweep", "sync"}
    async with asyncio.timeout(WAIT_SECONDS):
        while tasks:
            tasks -= {task for task in tasks if await claims.run(task, work)}
            await asyncio.sleep(0.5)
    assert time.monotonic() - begun >= LEASE_SECONDS
    if end == signal.SIGSTOP:
        worker.send_signal(signal.SIGCONT)
        assert worker.stdout.readline() == "done False\n"
    assert work.count == 2
    await state.close()


async def test_work_of_a_process_that_was_killed_in_the_folder_is_free_at_once(
    tmp_path: Path, postgresql_url: str, worker: subprocess.Popen[str]
) -> None:
    """A process of the same data folder needs no lease to know; a caller gets a 409 until then.

    If this fails: whoever repeats a command that was killed waits for a lease.
    """
    assert worker.stdout is not None
    assert worker.stdout.readline() == "working\n"
    state = State(tmp_path, postgresql_url)
    claims, work = Claims(state, tmp_path / "other"), Work()
    work.may_end.set()
    with pytest.raises(Conflict, match="Another process sweeps"):
        await claims.result("sweep", work, "sweeps")
    worker.kill()
    worker.wait()
    await claims.result("sweep", work, "sweeps")
    assert work.count == 1
    await state.close()
