"""Claims on background tasks: only one process of an installation runs a task at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, select, update

from corral.api.errors import CorralError
from corral.providers.state.leases import Leases
from corral.providers.state.state import State, database_time, upsert
from corral.providers.state.tables import CLAIMS

RENEW_SECONDS = 2.0

_C = CLAIMS.c
_LOG = logging.getLogger(__name__)


class Claims:
    """The claims of one process.

    The process renews its lease while it works. If it has not renewed the lease for
    `LEASE_SECONDS`, another process takes over its tasks. A process that was frozen for longer than
    that cancels its work when it wakes up. Until then two processes may run the same task, so tasks
    must be safe to repeat.

    Args:
        state: The tables.
    """

    def __init__(self, state: State) -> None:
        self._area = state.area("claims")
        self._leases = Leases(state)
        self._owner = uuid4().hex
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
        number = await self._claim(task)
        if number is None:
            return False
        self._running.add(task)
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        done = False
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            done = working.done() and not working.cancelled() and not working.exception()
        finally:
            await _end(renewing, working)
            self._running.discard(task)
            with suppress(CorralError):  # The lease will expire.
                await self._release(task, number, every if done else None)
        if working.cancelled():
            _LOG.warning("This process was frozen; another one may do its background work.")
            return False
        working.result()
        return True

    # --- inside ------------------------------------------------------------------------------

    async def _claim(self, task: str) -> int | None:
        """Claim a task and return the claim's number; None if the task is not due or is claimed."""
        if task in self._running:
            return None
        rows = await self._area.read(select(_C.owner).where(_C.task == task))
        owner = rows[0].owner if rows else None
        if owner not in (None, self._owner) and owner not in await self._leases.expired([owner]):
            return None
        await self._leases.renew(self._owner)

        def claim(table: Connection) -> int | None:
            row = table.execute(select(CLAIMS).where(_C.task == task)).one_or_none()
            now = database_time(table)
            if row is not None and (row.owner != owner or (owner is None and row.due > now)):
                return None
            values = {"task": task, "owner": self._owner, "number": row.number + 1 if row else 1}
            upsert(table, CLAIMS, [{**values, "due": now}], "owner", "number", "due")
            return int(values["number"])

        return await self._area.write(claim, durable=False)

    async def _release(self, task: str, number: int, every: float | None) -> None:
        """Release the claim on a task, unless another process has taken it over."""
        ours = (_C.task == task) & (_C.owner == self._owner) & (_C.number == number)
        due = _C.due if every is None else _C.due + every
        freed = update(CLAIMS).where(ours).values(owner=None, due=due)
        await self._area.write(lambda table: table.execute(freed), durable=False)
        if not self._running:
            await self._leases.end(self._owner)

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
