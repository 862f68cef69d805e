"""Write-ahead logs for machines that share a state: a row for each write in progress."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Delete, Update, delete, select, update
from typing_extensions import override

from corral.api.errors import CorralError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.state import State, upsert
from corral.providers.state.tables import WRITES
from corral.providers.vector_io.kit.names import stored_name
from corral.providers.vector_io.kit.retries import CHECK_BEFORE_REQUEST
from corral.providers.vector_io.kit.write_ahead import (
    UNREADABLE,
    WAIT_SECONDS,
    Intent,
    WriteLog,
)

BEAT_SECONDS = 2.0
"""Interval, in seconds, at which a writer sends heartbeats."""
POLL_SECONDS = 0.2
"""Interval, in seconds, at which a waiting writer checks the lock."""

S = TypeVar("S", Update, Delete)

_LOG = logging.getLogger(__name__)


class StateWriteLog(WriteLog):
    """The log of one vector DB in the tables of a state.

    The row of a vector DB exists while a writer has the lock or has left an entry. A writer keeps
    increasing its `beat`. If it has not done so for `LEASE_SECONDS`, by the clock of a waiting
    process, it is dead or frozen, and the waiting process takes over the lock and the entry. Each
    change of the row names its writer, so a frozen writer that wakes up cannot change the row. It
    also sends no further requests to the engine (`CHECK_BEFORE_REQUEST`).

    Args:
        state: The tables.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, state: State, vector_db: VectorDB, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._area = state.area("writes")
        self._name = stored_name(vector_db)
        self._clock = clock
        self._tasks = asyncio.Lock()
        self._writer = ""
        self._renewed = 0.0
        self._entry: bytes | None = None

    @override
    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self._tasks:
            await self._acquire()
            beating = asyncio.create_task(self._beat())
            check = CHECK_BEFORE_REQUEST.set(self._check)
            try:
                yield
            finally:
                CHECK_BEFORE_REQUEST.reset(check)
                beating.cancel()
                await asyncio.shield(self._release())

    @override
    async def pending(self) -> Intent | None:
        if self._entry is None:
            return None
        try:
            return Intent.from_bytes(self._entry)
        except UNREADABLE as error:
            _LOG.error(
                "An unfinished write cannot be read and is put aside: %s", type(error).__name__
            )
            aside = {"name": f"{self._name}.unread", "writer": "", "beat": 0, "entry": self._entry}
            await self._area.write(lambda table: upsert(table, WRITES, [aside], "entry"))
            self._entry = None
            return None

    @override
    async def log(self, intent: Intent) -> None:
        entry = await asyncio.to_thread(intent.to_bytes)
        await self._change(self._row(update(WRITES)).values(entry=entry), durable=True)
        self._entry = entry

    @override
    async def clear(self) -> None:
        self._entry = None  # `_release` deletes the row with it, in one transaction.

    @override
    async def drop(self) -> None:
        dropped = delete(WRITES).where(WRITES.c.name == self._name)
        await self._area.write(lambda table: table.execute(dropped))

    # --- the lock ----------------------------------------------------------------------------

    async def _acquire(self) -> None:
        """Insert the row, or take it over from a writer that ended or has stopped its beats."""
        started = since = self._clock()
        self._writer = uuid4().hex
        holder: tuple[str, int] | None = None
        while not await self._claimed(holder if since + LEASE_SECONDS <= self._clock() else None):
            while True:
                if self._clock() >= started + WAIT_SECONDS:
                    raise Unavailable(
                        "Another process writes to this vector DB.", hint="Try again."
                    )
                await asyncio.sleep(POLL_SECONDS)
                now, current = self._clock(), await self._holder()
                if current != holder:
                    holder, since = current, now
                if current is None or now >= since + LEASE_SECONDS:
                    break

    async def _holder(self) -> tuple[str, int] | None:
        """Return the writer that has the lock, and its beat; None if it is free."""
        query = select(WRITES.c.writer, WRITES.c.beat).where(WRITES.c.name == self._name)
        rows = await self._area.read(query)
        return next(((row.writer, row.beat) for row in rows if row.writer), None)

    async def _claimed(self, dead: tuple[str, int] | None) -> bool:
        """Claim the row if it is free or belongs to `dead`; return True if this was successful."""

        def claim(table: Connection) -> tuple[bytes | None] | None:
            row = table.execute(select(WRITES).where(WRITES.c.name == self._name)).first()
            if row is not None and row.writer and (row.writer, row.beat) != dead:
                return None
            own = {"name": self._name, "writer": self._writer, "beat": 0}
            upsert(table, WRITES, [own], "writer", "beat")
            return (row.entry if row else None,)

        now = self._clock()
        claimed = await self._area.write(claim, durable=False)
        if claimed is not None:
            self._renewed = now
            [self._entry] = claimed
        return claimed is not None

    def _check(self) -> None:
        """Raise Unavailable if another process may have taken over the lock."""
        if self._clock() >= self._renewed + LEASE_SECONDS:
            raise _lost()

    async def _beat(self) -> None:
        beat = WRITES.c.beat + 1
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = self._clock()
            with suppress(CorralError):  # The next heartbeat may still come in time.
                await self._change(self._row(update(WRITES)).values(beat=beat), durable=False)
                self._renewed = now

    async def _release(self) -> None:
        """Delete the row, or keep it for the next writer if it has an entry."""
        if self._entry is None:
            await self._change(self._row(delete(WRITES)), durable=False)
        else:
            await self._change(self._row(update(WRITES)).values(writer=""), durable=False)

    def _row(self, statement: S) -> S:
        return statement.where(WRITES.c.name == self._name, WRITES.c.writer == self._writer)

    async def _change(self, statement: Update | Delete, *, durable: bool) -> None:
        """Change the row if this writer still has the lock.

        Raises:
            Unavailable: Another process has taken over the lock.
        """

        def execute(table: Connection) -> int:
            return table.execute(statement).rowcount

        if not await self._area.write(execute, durable=durable):
            raise _lost()


def _lost() -> Unavailable:
    return Unavailable(
        "Another process has finished this write, because this one stood still.",
        hint="Try again.",
    )
