"""Tunings of vector DBs: runs in the background, their progress, reports, and the way back.

The work itself is passed in. A run belongs to the process that started it, which renews a lease
while it works; a run without a living process counts as failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from corral.api.errors import Conflict, CorralError, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.stack.vector_db_table import at
from corral.providers.state.leases import Leases
from corral.providers.state.state import AnyRow, State
from corral.providers.state.tables import TUNINGS

MAX_TUNINGS = 20
"""Tunings of a vector DB that are stored; the oldest are deleted."""
LOOK_SECONDS = 0.5
"""Time between two notes of the progress, and the delay of a cancellation by another process."""
STOPPED = "The server stopped before the tuning had ended."

Status: TypeAlias = Literal["queued", "running", "completed", "failed", "cancelled"]
LIVE: tuple[Status, ...] = ("queued", "running")

_T = TUNINGS.c
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """The progress of a run, in steps; `total` is an estimate."""

    done: int = 0
    total: int = 0
    started: bool = False

    def advance(self, number: int = 1) -> None:
        """Count steps."""
        self.done += number


Work: TypeAlias = Callable[[Progress], Awaitable[Mapping[str, Any]]]
"""Returns the report of a run, as JSON."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A run.

    Attributes:
        judged_set: Name of the set of judged questions.
        user: The user that started it; "" for none.
        done, total: Progress in steps; `total` is an estimate, 0 if it has not begun.
        error: The reason for a failure; "" for none.
        report: The report of a completed run.
        before: The settings of the registration before the recommended ones were applied; None if
            they are not applied.
        started_at, ended_at: Unix seconds.
    """

    tuning_id: str
    judged_set: str
    user: str
    status: Status
    done: int
    total: int
    error: str
    report: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    started_at: float
    ended_at: float | None


class Tunings:
    """The tunings of all vector DBs; one at a time runs in a process, the others wait.

    Args:
        state: The tables.
        clock: Returns the time in seconds, from any start, to measure leases.
    """

    def __init__(self, state: State, clock: Callable[[], float] = time.monotonic) -> None:
        self._area = state.area("tunings")
        self._leases = Leases(state, clock)
        self._owner = uuid4().hex
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(1)

    async def start(self, vector_db: VectorDB, judged_set: str, user: str, work: Work) -> Tuning:
        """Start a run in the background and return it.

        Args:
            work: Reports its progress, and may be cancelled.

        Raises:
            Conflict: A tuning of the vector DB runs or waits.
        """
        await self._end_abandoned()
        await self._leases.renew(self._owner)
        tenant, identifier = vector_db.key
        tuning_id = uuid4().hex
        row = {
            "tuning_id": tuning_id,
            "tenant": tenant,
            "identifier": identifier,
            "created_at": vector_db.created_at,
            "judged_set": judged_set,
            "user": user,
            "status": "queued",
            "done": 0,
            "total": 0,
            "cancelled": 0,
            "error": "",
            "owner": self._owner,
            "started_at": time.time(),
        }

        def start(connection: Connection) -> None:
            own = at(TUNINGS, vector_db.key)
            connection.execute(delete(TUNINGS).where(own, _T.created_at != vector_db.created_at))
            if connection.execute(select(_T.number).where(own, _T.status.in_(LIVE))).first():
                raise Conflict(
                    f"A tuning of vector DB {identifier!r} is running.",
                    hint="Wait until it has ended, or cancel it.",
                    field="vector_db_id",
                )
            newest = select(_T.number).where(own).order_by(_T.number.desc())
            old = connection.scalars(newest.offset(MAX_TUNINGS - 1)).all()
            connection.execute(delete(TUNINGS).where(_T.number.in_(old)))
            connection.execute(insert(TUNINGS), row)

        await self._area.write(start)
        task = asyncio.create_task(self._run(tuning_id, work))
        self._tasks[tuning_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(tuning_id, None))
        return await self.get(vector_db, tuning_id)

    async def all(self, vector_db: VectorDB) -> list[Tuning]:
        """Return the tunings of a vector DB, the newest first."""
        await self._end_abandoned()
        query = select(TUNINGS).where(_of(vector_db)).order_by(_T.number.desc())
        return [_tuning(row) for row in await self._area.read(query)]

    async def get(self, vector_db: VectorDB, tuning_id: str) -> Tuning:
        """Return a tuning of a vector DB.

        Raises:
            NotFound: The vector DB has no such tuning.
        """
        await self._end_abandoned()
        query = select(TUNINGS).where(_of(vector_db), _T.tuning_id == tuning_id)
        for row in await self._area.read(query):
            return _tuning(row)
        raise NotFound(
            f"Vector DB {vector_db.identifier!r} has no tuning {tuning_id!r}.",
            hint="GET /v1/tunings lists them.",
            field="tuning_id",
        )

    async def cancel(self, vector_db: VectorDB, tuning_id: str) -> Tuning:
        """Ask the process of a run to end it; a run that has ended stays as it is.

        Raises:
            NotFound: The vector DB has no such tuning.
        """
        await self.get(vector_db, tuning_id)
        await self._set(tuning_id, _T.status.in_(LIVE), cancelled=1)
        return await self.get(vector_db, tuning_id)

    async def note_applied(self, tuning_id: str, before: Mapping[str, Any] | None) -> None:
        """Note the settings that the recommended ones replace; None once they are back."""
        noted = None if before is None else json.dumps(dict(before))
        await self._set(tuning_id, before=noted)

    async def close(self) -> None:
        """End the runs of this process; their rows say so."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- inside ------------------------------------------------------------------------------

    async def _run(self, tuning_id: str, work: Work) -> None:
        progress = Progress()
        working = asyncio.create_task(self._in_turn(work, progress))
        stopped = False
        try:
            while not working.done():
                await asyncio.wait({working}, timeout=LOOK_SECONDS)
                if not working.done() and not await self._goes_on(tuning_id, progress):
                    break
        except asyncio.CancelledError:
            stopped = True
        working.cancel()
        await asyncio.wait({working})
        with suppress(CorralError):  # the lease runs out, and the run counts as failed
            await self._finish(tuning_id, working, progress, stopped=stopped)
            if self._tasks.keys() <= {tuning_id}:
                await self._leases.end(self._owner)

    async def _in_turn(self, work: Work, progress: Progress) -> Mapping[str, Any]:
        async with self._turn:
            progress.started = True
            return await work(progress)

    async def _goes_on(self, tuning_id: str, progress: Progress) -> bool:
        """Renew the lease and note the progress; return False if the run is to end."""
        status = "running" if progress.started else "queued"
        values = {"status": status, "done": progress.done, "total": progress.total}
        with suppress(CorralError):  # the next look may succeed
            await self._leases.renew(self._owner)
            goes_on = _T.status.in_(LIVE) & (_T.cancelled == 0)
            return await self._set(tuning_id, goes_on, durable=False, **values) == 1
        return True

    async def _finish(
        self,
        tuning_id: str,
        working: asyncio.Task[Mapping[str, Any]],
        progress: Progress,
        *,
        stopped: bool,
    ) -> None:
        values: dict[str, Any] = {"done": progress.done, "total": progress.total}
        if working.cancelled():
            values |= {"status": "failed" if stopped else "cancelled"}
            values |= {"error": STOPPED if stopped else ""}
        elif (error := working.exception()) is not None:
            values |= {"status": "failed", "error": _words(error)}
        else:
            report = json.dumps(working.result())
            values |= {"status": "completed", "report": report, "total": progress.done}
        await self._set(tuning_id, _T.status.in_(LIVE), ended_at=time.time(), **values)

    async def _end_abandoned(self) -> None:
        """Mark the runs of processes that have ended as failed."""
        query = select(_T.owner).where(_T.status.in_(LIVE), _T.owner != self._owner).distinct()
        owners = [row.owner for row in await self._area.read(query)]
        dead = await self._leases.expired(owners)
        if dead:
            abandoned = update(TUNINGS).where(_T.owner.in_(dead), _T.status.in_(LIVE))
            ended = abandoned.values(status="failed", error=STOPPED, ended_at=time.time())
            await self._area.write(lambda connection: connection.execute(ended))

    async def _set(
        self,
        tuning_id: str,
        *conditions: ColumnElement[bool],
        durable: bool = True,
        **values: Any,
    ) -> int:
        """Change a row, if it meets the conditions; return the number of changed rows."""
        changed = update(TUNINGS).where(_T.tuning_id == tuning_id, *conditions).values(**values)
        return await self._area.write(lambda c: c.execute(changed).rowcount, durable=durable)


def _of(vector_db: VectorDB) -> ColumnElement[bool]:
    return at(TUNINGS, vector_db.key) & (_T.created_at == vector_db.created_at)


def _words(error: BaseException) -> str:
    """Return the reason for a failure; a bug shows only in the log."""
    if isinstance(error, CorralError):
        return str(error)
    _LOG.error("A tuning failed: %s", type(error).__name__)
    _LOG.debug("the same, with its message", exc_info=error)
    return "The server failed."


def _tuning(row: AnyRow) -> Tuning:
    return Tuning(
        tuning_id=row.tuning_id,
        judged_set=row.judged_set,
        user=row.user,
        status=cast(Status, row.status),
        done=row.done,
        total=row.total,
        error=row.error,
        report=None if row.report is None else json.loads(row.report),
        before=None if row.before is None else json.loads(row.before),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
