"""Claims on background work: one process of an installation at a time does a task."""

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

    The process renews its lease while it works. Other processes take a task over once its owner has
    not renewed for `LEASE_SECONDS`. A process that was frozen for longer cancels its work when it
    wakes up, so for a moment two may work: a task must be safe to repeat.

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
        """Do work, unless another process does it or it is not due; return True if it was done.

        Args:
            task: Name of the task, the same in all processes.
            work: May be repeated after a failure.
            every: Time in seconds, from the beginning of the work, until the task is due again in
                any process; if the work fails or is taken over, it stays due.

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
            with suppress(CorralError):  # the lease runs out
                await self._release(task, number, every if done else None)
        if working.cancelled():
            _LOG.warning("This process was frozen; another one may do its background work.")
            return False
        working.result()
        return True

    # --- inside ------------------------------------------------------------------------------

    async def _claim(self, task: str) -> int | None:
        """Claim a task; return the number of the claim, or None if it is not this process's."""
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
        """Free a task, if it was not taken over."""
        ours = (_C.task == task) & (_C.owner == self._owner) & (_C.number == number)
        due = _C.due if every is None else _C.due + every
        freed = update(CLAIMS).where(ours).values(owner=None, due=due)
        await self._area.write(lambda table: table.execute(freed), durable=False)
        if not self._running:
            await self._leases.end(self._owner)

    async def _renew(self) -> None:
        """Renew the lease; return when it has run out."""
        while self._leases.is_current(self._owner):
            await asyncio.sleep(RENEW_SECONDS)
            if self._leases.is_current(self._owner):  # it was not frozen
                with suppress(CorralError):
                    await self._leases.renew(self._owner)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs, and wait for it."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
