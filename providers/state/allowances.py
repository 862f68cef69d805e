"""Rate limits shared by all processes: token buckets that fill up within a minute."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from corral.providers.state.state import State, database_time, upsert
from corral.providers.state.tables import QUOTAS

KEPT_SECONDS = 3600.0
"""Age in seconds at which a row without debt is deleted; its allowance has long been full again."""

_Q = QUOTAS.c


@dataclass(frozen=True, slots=True)
class Part:
    """A request of a process for a part of one allowance.

    Attributes:
        per_minute: The size of the allowance, which is full at first; 0 for no limit.
        used: Amount that the process has already used without a grant; it may cause a debt.
        wanted: Amount that the process requests in advance.
    """

    per_minute: float = 0.0
    used: float = 0.0
    wanted: float = 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a `Part`.

    Attributes:
        amount: The granted amount: a whole number from 0 to `wanted`.
        left: The rest of the allowance; negative for a debt.
    """

    amount: int
    left: float


class Allowances:
    """The allowances of all callers of an installation, by the clock of its database.

    Args:
        state: The tables.
    """

    def __init__(self, state: State) -> None:
        self._area = state.area("quotas")

    async def take(self, caller: str, requests: Part, size: Part) -> tuple[Grant, Grant]:
        """Take parts of a caller's two allowances: requests, and bytes of request bodies.

        Raises:
            ProviderError: The state cannot be written.
        """

        def take(table: Connection) -> tuple[Grant, Grant]:
            now = database_time(table)
            row = table.execute(select(QUOTAS).where(_Q.caller == caller)).one_or_none()
            if row is None:
                table.execute(delete(QUOTAS).where(_Q.at < now - KEPT_SECONDS, _Q.bytes >= 0))
            seconds = now - row.at if row else math.inf
            first = _granted(requests, row.requests if row else 0.0, seconds)
            second = _granted(size, row.bytes if row else 0.0, seconds)
            left = {"requests": first.left, "bytes": second.left}
            upsert(table, QUOTAS, [{"caller": caller, "at": now, **left}], "at", *left)
            return first, second

        return await self._area.write(take, durable=False)


def _granted(part: Part, left: float, seconds: float) -> Grant:
    """Return the grant from an allowance that had `left` remaining `seconds` ago."""
    if not part.per_minute:
        return Grant(0, 0.0)
    filled = min(part.per_minute, left + max(0.0, seconds) * part.per_minute / 60)
    left = filled - part.used
    amount = math.floor(max(0.0, min(part.wanted, left)))
    return Grant(amount, left - amount)
