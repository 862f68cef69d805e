"""Claims: one process of an installation at a time does a task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, select, update

from corral.api.errors import Conflict, CorralError
from corral.providers.base.owner import Owner
from corral.providers.state.leases import LEASE_SECONDS, Leases
from corral.providers.state.state import State, database_time, upsert
from corral.providers.state.tables import CLAIMS

RENEW_SECONDS = 2.0

T = TypeVar("T")

_C = CLAIMS.c
_LOG = logging.getLogger(__name__)


class Claims:
    """The claims of one process.

    The process renews its lease while it works. Other processes take a task over once its owner has
    not renewed for `LEASE_SECONDS`; those of the same data folder, at once if it was killed. A
    process that was frozen for longer cancels its work when it wakes up, so for a moment two may
    work: a task must be safe to repeat.

    Args:
        state: The tables.
        home: The data folder, for the locks of its processes.
    """

    def __init__(self, state: State, home: Path) -> None:
        self._area = state.area("claims")
        self._leases = Leases(state)
        self._process = Owner(home / "claims")
        self._owner = self._process.name
        self._entering, self._entered = asyncio.Lock(), 0
        self._running: set[str] = set()

    async def run(
        self, task: str, work: Callable[[], Awaitable[Any]], *, every: float = 0.0
    ) -> bool:
        """Run a task and return True, or return False if it is not due or runs elsewhere.

        Args:
            task: Name of the task, the same in all processes.
            work: The work to do; it may be repeated after a failure.
            every: Seconds from the beginning of the work until the task is due again in any
                process. If the work fails or is taken over, the task stays due.

        Raises:
            CorralError: The work failed, or the state cannot be used.
        """
        if task in self._running:
            return False
        self._running.add(task)
        try:
            if not (replaced := await self._replaceable(task)):
                return False
            async with self._alive():
                number = await self._claim(task, replaced)
                if number is None:
                    return False
                working = await self._run(task, number, work, every)
        finally:
            self._running.discard(task)
        if working.cancelled():
            _LOG.warning("This process was frozen; another one may do its background work.")
            return False
        working.result()
        return True

    async def result(self, task: str, work: Callable[[], Awaitable[T]], action: str) -> T:
        """Do work that a caller waits for, and return its result.

        Args:
            task, work: As in `run`.
            action: What the work does, in the error, such as "rebuilds this vector DB".

        Raises:
            Conflict: Another process does it.
            CorralError: The work failed, or the state cannot be used.
        """
        results: list[T] = []

        async def store() -> None:
            results.append(await work())

        if not await self.run(task, store):
            raise Conflict(
                f"Another process {action}.",
                hint=f"Try again when it has ended; if it died, in {LEASE_SECONDS:g} seconds.",
            )
        return results[0]

    # --- inside ------------------------------------------------------------------------------

    async def _replaceable(self, task: str) -> set[str | None]:
        """Return the owners of a task that this process may replace: none if one is alive."""
        rows = await self._area.read(select(_C.task, _C.owner).where(_C.owner.is_not(None)))
        owners = {row.task: row.owner for row in rows}
        owner, others = owners.get(task), {*owners.values()} - {self._owner}
        if owner in others and owner not in await self._dead(others):
            return set()
        return {owner, None}

    async def _dead(self, owners: Collection[str]) -> set[str]:
        """Return the owners that were killed in this data folder, or whose lease has expired."""
        expired = await self._leases.expired(owners)
        killed = await asyncio.to_thread(lambda: {*filter(self._was_killed, owners)})
        return expired | killed

    def _was_killed(self, owner: str) -> bool:
        return self._process.is_here(owner) and self._process.is_dead(owner)

    @asynccontextmanager
    async def _alive(self) -> AsyncIterator[None]:
        """Have the lock and the lease of this process."""
        async with self._entering:
            if not self._entered:
                await asyncio.to_thread(self._process.enter)
            self._entered += 1
        try:
            await self._leases.renew(self._owner)
            yield
        finally:
            async with self._entering:
                self._entered -= 1
                if not self._entered:
                    with suppress(CorralError):  # it runs out
                        await self._leases.end(self._owner)
                    await asyncio.to_thread(self._process.leave)

    async def _claim(self, task: str, replaced: Collection[str | None]) -> int | None:
        """Claim a task; return the number of the claim, or None if it is not this process's."""

        def claim(table: Connection) -> int | None:
            row = table.execute(select(CLAIMS).where(_C.task == task)).one_or_none()
            now = database_time(table)
            if row is not None and (
                row.owner not in replaced or (row.owner is None and row.due > now)
            ):
                return None
            values = {"task": task, "owner": self._owner, "number": row.number + 1 if row else 1}
            upsert(table, CLAIMS, [{**values, "due": now}], "owner", "number", "due")
            return int(values["number"])

        return await self._area.write(claim, durable=False)

    async def _run(
        self, task: str, number: int, work: Callable[[], Awaitable[Any]], every: float
    ) -> asyncio.Future[Any]:
        """Do work under a claim, and free its task; return the ended work."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        done = False
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            done = working.done() and not working.cancelled() and not working.exception()
        finally:
            await _end(renewing, working)
            with suppress(CorralError):  # the lease runs out
                await self._release(task, number, every, done)
        return working

    async def _release(self, task: str, number: int, every: float, done: bool) -> None:
        """Free a task, if it was not taken over."""
        ours = (_C.task == task) & (_C.owner == self._owner) & (_C.number == number)
        due = _C.due + every if done else _C.due
        freed = update(CLAIMS).where(ours).values(owner=None, due=due)
        ended = delete(CLAIMS).where(ours)
        statement = freed if every else ended
        await self._area.write(lambda table: table.execute(statement), durable=False)

    async def _renew(self) -> None:
        """Keep renewing the lease. Return once it has expired."""
        while self._leases.is_current(self._owner):
            await asyncio.sleep(RENEW_SECONDS)
            if self._leases.is_current(self._owner):  # The process was not frozen.
                with suppress(CorralError):
                    await self._leases.renew(self._owner)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks that are still running, and wait for all."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
