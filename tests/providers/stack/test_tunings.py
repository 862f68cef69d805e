"""Runs of tunings: their rows in the state, one at a time, and what is left of a dead process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from corral.api.errors import Conflict, InvalidRequest, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.stack.tunings import MAX_TUNINGS, STOPPED, Progress, Tuning, Tunings
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.state import State
from corral.providers.state.tables import TUNINGS

WAIT_SECONDS = 120


def vector_db(name: str = "db", created_at: float = 1.0) -> VectorDB:
    """Return a registration."""
    return VectorDB(
        identifier=name,
        provider_id="sqlite",
        provider_resource_id=name,
        embedding_model="hashing",
        embedding_dimension=8,
        created_at=created_at,
    )


class Clock:
    """A clock that stands still until it is told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Work of ten steps that waits after the third until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def __call__(self, progress: Progress) -> Mapping[str, Any]:
        progress.total = 10
        progress.advance(3)
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        progress.advance(6)
        return {"chosen": "hybrid"}


@pytest.fixture
def clock() -> Clock:
    """Return the clock by which the second process measures leases."""
    return Clock()


@pytest.fixture
async def two(
    tmp_path: Path, state_url: str, clock: Clock
) -> AsyncIterator[tuple[Tunings, Tunings, State]]:
    """Yield the tunings of two processes, and the state of the second."""
    states = [State(tmp_path, state_url) for _ in range(2)]
    made = Tunings(states[0]), Tunings(states[1], clock)
    yield (*made, states[1])
    for each in made:
        await each.close()
    for state in states:
        await state.close()


async def when(
    tunings: Tunings, tuning: Tuning, *, status: str, of: VectorDB | None = None
) -> Tuning:
    """Return a tuning once it has a status."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (now := await tunings.get(of or vector_db(), tuning.tuning_id)).status != status:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.02)
    return now


async def test_a_run_shows_its_progress_and_its_report(two: tuple[Tunings, Tunings, State]) -> None:
    """Another process sees them; the end has a time, and as many steps as were done."""
    mine, other, _ = two
    work = Work()
    made = await mine.start(vector_db(), "main", "ann", work)
    assert (made.status, made.judged_set, made.user) == ("queued", "main", "ann")
    seen = await when(other, made, status="running")
    assert (seen.done, seen.total, seen.ended_at, seen.report) == (3, 10, None, None)
    work.may_end.set()
    ended = await when(other, made, status="completed")
    assert (ended.done, ended.total, ended.report) == (9, 9, {"chosen": "hybrid"})
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.started_at


async def test_a_vector_db_is_tuned_once_at_a_time(two: tuple[Tunings, Tunings, State]) -> None:
    """A second start is refused in every process; another vector DB waits for its turn.

    If this fails: two tunings take all processors, or apply what the other has replaced.
    """
    mine, other, _ = two
    first, second = Work(), Work()
    made = await mine.start(vector_db(), "main", "", first)
    await first.begun.wait()
    for each in (mine, other):
        with pytest.raises(Conflict, match="is running"):
            await each.start(vector_db(), "main", "", Work())
    waiting = await mine.start(vector_db("b"), "main", "", second)
    assert not second.begun.is_set()
    first.may_end.set()
    await when(mine, made, status="completed")
    await second.begun.wait()
    second.may_end.set()
    await when(mine, waiting, status="completed", of=vector_db("b"))
    again = await mine.start(vector_db(), "main", "", first)
    await when(mine, again, status="completed")


@pytest.mark.parametrize("process", [0, 1])
async def test_any_process_cancels_a_run(two: tuple[Tunings, Tunings, State], process: int) -> None:
    """The work is cancelled, and a run that has ended stays as it is."""
    work = Work()
    made = await two[0].start(vector_db(), "main", "", work)
    await work.begun.wait()
    await (two[0], two[1])[process].cancel(vector_db(), made.tuning_id)
    ended = await when(two[1], made, status="cancelled")
    assert work.cancelled
    assert ended.report is None
    assert (await two[0].cancel(vector_db(), made.tuning_id)).status == "cancelled"


async def test_a_waiting_run_is_cancelled(two: tuple[Tunings, Tunings, State]) -> None:
    """It never begins."""
    mine = two[0]
    first, second = Work(), Work()
    await mine.start(vector_db("b"), "main", "", first)
    await first.begun.wait()
    made = await mine.start(vector_db(), "main", "", second)
    await mine.cancel(vector_db(), made.tuning_id)
    await when(mine, made, status="cancelled")
    assert not second.begun.is_set()


async def test_a_failure_says_why(
    two: tuple[Tunings, Tunings, State], caplog: pytest.LogCaptureFixture
) -> None:
    """An error for users is shown; the message of a bug is neither shown nor logged."""

    async def refuses(progress: Progress) -> Mapping[str, Any]:
        raise InvalidRequest("Too few questions.")

    async def breaks(progress: Progress) -> Mapping[str, Any]:
        raise ValueError("secret")

    made = await two[0].start(vector_db(), "main", "", refuses)
    assert "Too few questions." in (await when(two[0], made, status="failed")).error
    made = await two[0].start(vector_db(), "main", "", breaks)
    assert (await when(two[0], made, status="failed")).error == "The server failed."
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_server_that_stops_says_so(two: tuple[Tunings, Tunings, State]) -> None:
    """Its runs fail at once with the reason."""
    work = Work()
    made = await two[0].start(vector_db(), "main", "", work)
    await work.begun.wait()
    await two[0].close()
    found = await two[1].get(vector_db(), made.tuning_id)
    assert (found.status, found.error, work.cancelled) == ("failed", STOPPED, True)


async def test_the_run_of_a_dead_process_fails(
    two: tuple[Tunings, Tunings, State], clock: Clock
) -> None:
    """Once its lease has run out, it counts as failed, and another may start.

    If this fails: after a crash a vector DB can never be tuned again.
    """
    _, other, state = two
    row = {
        "tuning_id": "dead", "tenant": "", "identifier": "db", "created_at": 1.0,
        "judged_set": "main", "user": "", "status": "running", "done": 1, "total": 2,
        "cancelled": 0, "error": "", "owner": "gone", "started_at": 1.0,
    }  # fmt: skip
    await state.area("tunings").write(lambda connection: connection.execute(insert(TUNINGS), row))
    assert (await other.get(vector_db(), "dead")).status == "running"
    clock.now = LEASE_SECONDS + 1
    found = await other.get(vector_db(), "dead")
    assert (found.status, found.error) == ("failed", STOPPED)


async def test_the_newest_are_stored_and_belong_to_a_registration(
    two: tuple[Tunings, Tunings, State],
) -> None:
    """The oldest are deleted; a later registration of the same name has none."""
    mine = two[0]
    work = Work()
    work.may_end.set()
    ids = []
    for _ in range(MAX_TUNINGS + 2):
        made = await mine.start(vector_db(), "main", "", work)
        await when(mine, made, status="completed")
        ids.append(made.tuning_id)
    stored = [each.tuning_id for each in await mine.all(vector_db())]
    assert stored == ids[: -MAX_TUNINGS - 1 : -1]
    later = vector_db(created_at=2.0)
    assert await mine.all(later) == []
    with pytest.raises(NotFound):
        await mine.get(later, ids[-1])
