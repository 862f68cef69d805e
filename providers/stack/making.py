"""Vector DBs that are being created: an engine has their data, but they are not registered yet.

Every process of an installation can list them, so no process treats their data as orphans.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sqlalchemy import bindparam, delete, insert, select, update

from corral.api.chunks import STORED
from corral.api.errors import CorralError
from corral.api.vector_dbs import VectorDB
from corral.providers.base.owner import Owner
from corral.providers.state.state import State
from corral.providers.state.tables import MAKING

RENEW_SECONDS = 20.0
FORGET_SECONDS = 120.0
"""Time without a renewal after which a process on another machine counts as dead. It must exceed
the difference between the clocks of two machines."""


class Making:
    """A row for each vector DB that is being created, and a lock held by the creating process.

    Args:
        state: The tables.
        folder: Folder of the locks; created with the first lock.
        clock: Returns the time in Unix seconds.
    """

    def __init__(self, state: State, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._area = state.area("making")
        self._folder, self._clock = folder, clock

    @asynccontextmanager
    async def of(self, vector_db: VectorDB) -> AsyncIterator[None]:
        """List a vector DB while it is being created, until it is registered or has failed."""
        owner = Owner(self._folder)
        await asyncio.to_thread(owner.enter)
        row = {
            "name": owner.name,
            "vector_db": vector_db.model_dump_json(),
            "renewed_at": self._clock(),
        }
        await self._area.write(lambda table: table.execute(insert(MAKING), row))
        renewing = asyncio.create_task(self._renew(owner.name))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.shield(self._end(owner))

    async def all(self) -> list[VectorDB]:
        """Return the vector DBs that live processes are creating; forget those of dead ones."""
        found = []
        for row in await self._area.read(select(MAKING)):
            if await asyncio.to_thread(self._is_dead, row.name, row.renewed_at):
                await self._forget(row.name)
            else:
                found.append(VectorDB.model_validate_json(row.vector_db, context=STORED))
        return found

    def _is_dead(self, name: str, renewed_at: float) -> bool:
        reader = Owner(self._folder)
        if not reader.is_here(name):
            return renewed_at < self._clock() - FORGET_SECONDS
        is_dead = reader.is_dead(name)
        if is_dead:
            reader.forget(name)
        return is_dead

    async def _renew(self, name: str) -> None:
        renewed = update(MAKING).where(MAKING.c.name == name)
        renewed = renewed.values(renewed_at=bindparam("at"))
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            # The next renewal follows before other processes consider it dead.
            with suppress(CorralError):
                await self._area.write(lambda table: table.execute(renewed, {"at": self._clock()}))

    async def _end(self, owner: Owner) -> None:
        try:
            await self._forget(owner.name)
        finally:
            await asyncio.to_thread(owner.leave)

    async def _forget(self, name: str) -> None:
        forgotten = delete(MAKING).where(MAKING.c.name == name)
        await self._area.write(lambda table: table.execute(forgotten))
