"""Leases: they show which workers, on any machine, are alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sqlalchemy import delete, select

from corral.providers.state.state import State, upsert
from corral.providers.state.tables import LEASES

LEASE_SECONDS = 20.0
"""Seconds without a heartbeat after which a worker counts as dead."""


class Leases:
    """The heartbeats of workers, counted in a table.

    Clocks of different machines are never compared. Each process measures with its own clock for
    how long a count has not changed, so it cannot detect a dead worker in its first
    `LEASE_SECONDS`.

    Args:
        state: The tables.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, state: State, clock: Callable[[], float] = time.monotonic) -> None:
        self._area = state.area("leases")
        self._clock = clock
        self._seen: dict[str, tuple[int | None, float]] = {}
        self._renewed: dict[str, float] = {}

    async def renew(self, *names: str) -> None:
        """Renew the leases of workers of this process."""
        now, rows = self._clock(), [{"name": name, "beat": 1} for name in names]
        beat = LEASES.c.beat + 1
        await self._area.write(lambda table: upsert(table, LEASES, rows, beat=beat), durable=False)
        self._renewed |= dict.fromkeys(names, now)

    def is_current(self, name: str) -> bool:
        """Return True unless other processes may take over the work of this process's worker."""
        return self._clock() < self._renewed.get(name, float("-inf")) + LEASE_SECONDS

    async def expired(self, names: Iterable[str]) -> set[str]:
        """Return the workers without a heartbeat for `LEASE_SECONDS`, by this process's clock."""
        asked, now = set(names), self._clock()
        query = select(LEASES.c.name, LEASES.c.beat).where(LEASES.c.name.in_(asked))
        beats = {row.name: row.beat for row in await self._area.read(query)}
        for name in asked:
            beat = beats.get(name)
            if name not in self._seen or self._seen[name][0] != beat:
                self._seen[name] = beat, now
        self._seen = {name: seen for name, seen in self._seen.items() if name in asked}
        return {name for name, (_, since) in self._seen.items() if now >= since + LEASE_SECONDS}

    async def end(self, name: str) -> None:
        """Delete the lease of a worker that has ended."""
        ended = delete(LEASES).where(LEASES.c.name == name)
        await self._area.write(lambda table: table.execute(ended), durable=False)
