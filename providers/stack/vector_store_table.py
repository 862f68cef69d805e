"""Vector stores: a vector DB as OpenAI's API sees it, and what only that view has.

A registration is a vector store. Beside it, in `vector_stores.db`, stand its description, its
metadata and when it expires. A row belongs to one registration, named by tenant, identifier and
time: a successor of the same name does not inherit it. Of a store that has expired only the row is
left, until somebody deletes it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from corral.api.errors import Expired
from corral.api.vector_dbs import VectorDB
from corral.providers.base.cursor import Places
from corral.providers.base.database import Database, Schema

SECONDS_A_DAY = 86_400
STRAY_SECONDS = 3600
"""Age from which on a row without a registration is nobody's: the process that made it is dead."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vector_stores (tenant TEXT NOT NULL, identifier TEXT NOT NULL,"
    " created_at REAL NOT NULL, name TEXT NOT NULL, description TEXT, metadata TEXT,"
    " expires_after_days INTEGER, last_active_at INTEGER NOT NULL, expired_at INTEGER,"
    " PRIMARY KEY (tenant, identifier)) STRICT",
    "CREATE TABLE IF NOT EXISTS chunk_expiry (tenant TEXT NOT NULL, identifier TEXT NOT NULL,"
    " created_at REAL NOT NULL, chunk_id TEXT NOT NULL, due INTEGER NOT NULL,"
    " PRIMARY KEY (tenant, identifier, created_at, chunk_id, due)) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS chunk_expiry_by_due ON chunk_expiry (due)",
)
TABLES = Schema(SCHEMA)
REMEDY = "Move it away: vector stores lose their descriptions, metadata and expiry, and no chunks."

_DETAILS = (
    "name", "description", "metadata", "expires_after_days", "last_active_at", "expired_at"
)  # fmt: skip
_COLUMNS = ", ".join(("tenant", "identifier", "created_at", *_DETAILS))
_DROP_OF_ANOTHER = (
    "DELETE FROM vector_stores WHERE tenant = ? AND identifier = ? AND created_at <> ?"
)
_NOTE_ACTIVITY = (
    "INSERT INTO vector_stores (tenant, identifier, created_at, name, last_active_at)"
    " VALUES (?, ?, ?, '', ?) ON CONFLICT DO UPDATE SET last_active_at = excluded.last_active_at"
    " WHERE last_active_at < excluded.last_active_at AND expired_at IS NULL"
    " AND ifnull(last_active_at + expires_after_days * 86400 > excluded.last_active_at, 1)"
)
_DUE = "expired_at IS NULL AND last_active_at + expires_after_days * 86400 <= ?"

Key = tuple[str, str]
"""A tenant and an identifier."""
Place = tuple[str, str, float]
"""A registration: its tenant, its identifier, and when it was made."""


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A vector store.

    Attributes:
        tenant, identifier: What tells it from others.
        created_at: Of its registration, in Unix seconds.
        name: For people; "" for none.
        description: For people, or None.
        metadata: Pairs of text, or None.
        expires_after_days: Without activity; None: it never expires.
        last_active_at: Unix seconds.
        expired_at: When it was found to have expired, or None.
        vector_db: Its registration; None where it has expired.
    """

    tenant: str
    identifier: str
    created_at: float
    name: str
    description: str | None = None
    metadata: Mapping[str, str] | None = None
    expires_after_days: int | None = None
    last_active_at: int = 0
    expired_at: int | None = None
    vector_db: VectorDB | None = None

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return self.tenant, self.identifier

    @property
    def registered(self) -> VectorDB:
        """Its registration, of a store that has not expired."""
        assert self.vector_db is not None  # noqa: S101 - see `VectorStores.usable`
        return self.vector_db

    @property
    def expires_at(self) -> int | None:
        """Unix seconds, or None."""
        days = self.expires_after_days
        return None if days is None else self.last_active_at + days * SECONDS_A_DAY

    def is_over(self, now: float) -> bool:
        """Return True if it has expired at a time, noticed or not."""
        return self.expired_at is not None or (
            self.expires_at is not None and self.expires_at <= now
        )

    def check(self, now: float, field: str) -> None:
        """Raise Expired if it has expired at a time; `field` names it in the request."""
        if self.is_over(now):
            raise Expired(
                f"The vector store {self.identifier!r} has expired.",
                hint="Its files are gone. Delete it, and create another.",
                field=field,
            )


class VectorStoreTable:
    """What only OpenAI's view of a vector DB has, shared safely by tasks and processes.

    Activity is noted in memory and written by `flush`: what a killed process had not written yet
    makes a store expire that much earlier.

    Args:
        clock: Says the time, in Unix seconds.

    Attributes:
        changed: Set when something may expire earlier than `next_expiry` has said.
    """

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = Database(home / "vector_stores.db", TABLES, remedy=REMEDY)
        self.clock = clock
        self.changed = asyncio.Event()
        self._active: dict[Place, int] = {}
        self.places: Places[tuple[float, str]] = Places()

    # --- stores ------------------------------------------------------------------------------

    async def store(self, vector_db: VectorDB) -> VectorStore:
        """Return a registered vector DB as a store."""
        rows = await self._rows("tenant = ? AND identifier = ?", vector_db.key)
        return self._joined(vector_db, rows.get(vector_db.key))

    async def stores(self, tenant: str, registered: Sequence[VectorDB]) -> list[VectorStore]:
        """Return a tenant's registered vector DBs as stores, and what is left of expired ones."""
        rows = await self._rows("tenant = ?", (tenant,))
        found = [self._joined(each, rows.get(each.key)) for each in registered]
        names = {each.key for each in found}
        left = [row for key, row in rows.items() if key not in names and row.expired_at]
        return found + left

    async def expired(self, tenant: str, identifier: str) -> VectorStore | None:
        """Return what is left of a store that has expired, or None."""
        condition = "tenant = ? AND identifier = ? AND expired_at NOT NULL"
        return (await self._rows(condition, (tenant, identifier))).get((tenant, identifier))

    async def put(self, store: VectorStore, fields: Collection[str] = _DETAILS) -> None:
        """Store what only this view has of a store.

        Args:
            store: As it is to be.
            fields: What changes in a row that is there; others may be changing the rest.
        """
        metadata = None if store.metadata is None else json.dumps(dict(store.metadata))
        row = (
            *store.key, store.created_at, store.name, store.description, metadata,
            store.expires_after_days, store.last_active_at, store.expired_at,
        )  # fmt: skip
        marks = ", ".join("?" * len(row))
        changes = ", ".join(f"{name} = excluded.{name}" for name in fields)
        query = (
            f"INSERT INTO vector_stores ({_COLUMNS}) VALUES ({marks})"  # noqa: S608 - our own columns
            f" ON CONFLICT DO UPDATE SET {changes}"
        )

        def write(file: apsw.Connection) -> None:
            file.execute(_DROP_OF_ANOTHER, (*store.key, store.created_at))
            file.execute(query, row)

        await self._file.write(write)
        self.changed.set()

    async def remove(self, tenant: str, identifier: str) -> None:
        """Forget what only this view has."""
        query = "DELETE FROM vector_stores WHERE tenant = ? AND identifier = ?"
        await self._file.write(lambda file: file.execute(query, (tenant, identifier)))

    # --- activity and expiry -----------------------------------------------------------------

    async def use(self, vector_db: VectorDB) -> None:
        """Note that a vector DB is being used, through whichever API.

        Raises:
            Expired: Its time is over, whether or not the sweep has come.
        """
        kept: dict[Key, VectorStore | None] = self._file.kept()
        key = vector_db.key
        if key not in kept:
            kept[key] = (await self._rows("tenant = ? AND identifier = ?", key)).get(key)
        self._joined(vector_db, kept[key]).check(self.clock(), "vector_db_id")
        self._active[(*vector_db.key, vector_db.created_at)] = int(self.clock())

    async def flush(self) -> None:
        """Write what was noted of activity; it does not revive what had expired before it."""
        noted, self._active = self._active, {}

        def write(file: apsw.Connection) -> None:
            for (tenant, identifier, created_at), at in noted.items():
                place = (tenant, identifier, created_at)
                file.execute(_DROP_OF_ANOTHER, place)
                file.execute(_NOTE_ACTIVITY, (*place, at))

        if noted:
            try:
                await self._file.write(write)
            except BaseException:
                self._active = {**noted, **self._active}
                raise

    async def mark_expired(self) -> list[VectorStore]:
        """Mark the stores whose time is over; return all that are marked."""
        now = int(self.clock())
        query = f"UPDATE vector_stores SET expired_at = ? WHERE {_DUE}"  # noqa: S608 - our own text
        if await self._rows(_DUE, (now,)):
            await self._file.write(lambda file: file.execute(query, (now, now)))
        return list((await self._rows("expired_at NOT NULL", ())).values())

    async def drop_strays(self, registered: Sequence[VectorDB]) -> None:
        """Forget rows whose registration is gone."""
        known = {(*each.key, each.created_at) for each in registered}
        before = int(self.clock()) - STRAY_SECONDS
        rows = await self._rows("expired_at IS NULL AND last_active_at < ?", (before,))
        for key, row in rows.items():
            if (*key, row.created_at) not in known:
                await self.remove(*key)

    async def next_expiry(self) -> int | None:
        """Return when the next store or chunk expires, in Unix seconds; None: never."""
        stores = (
            "SELECT min(last_active_at + expires_after_days * 86400) FROM vector_stores"
            " WHERE expired_at IS NULL"
        )
        query = f"SELECT ({stores}), (SELECT min(due) FROM chunk_expiry)"  # noqa: S608 - ours
        times = [due for due in (await self._file.read(query))[0] if due is not None]
        return min(times, default=None)

    # --- chunks ------------------------------------------------------------------------------

    async def schedule(self, vector_db: VectorDB, due: Mapping[str, int]) -> None:
        """Note when chunks that are stored next have to be looked at.

        What a chunk's own record says decides then, so a note that no chunk follows does no harm.
        """
        place = (*vector_db.key, vector_db.created_at)
        await self._note([(*place, chunk_id, at) for chunk_id, at in due.items()])
        self.changed.set()

    async def postpone(self, place: Place, chunk_ids: Sequence[str], at: int) -> None:
        """Note chunks to be looked at once more, later."""
        await self._note([(*place, chunk_id, at) for chunk_id in chunk_ids])

    async def _note(self, rows: Sequence[tuple[str, str, float, str, int]]) -> None:
        query = "INSERT OR IGNORE INTO chunk_expiry VALUES (?, ?, ?, ?, ?)"
        await self._file.write(lambda file: file.executemany(query, rows))

    async def due_chunks(self, now: int) -> dict[Place, list[str]]:
        """Return the chunks to look at by a time, by registration."""
        query = (
            "SELECT DISTINCT tenant, identifier, created_at, chunk_id FROM chunk_expiry"
            " WHERE due <= ?"
        )
        found: dict[Place, list[str]] = {}
        for tenant, identifier, created_at, chunk_id in await self._file.read(query, now):
            found.setdefault((tenant, identifier, created_at), []).append(chunk_id)
        return found

    async def looked_at(self, place: Place, chunk_ids: Sequence[str], now: int) -> None:
        """Forget what was noted of chunks up to a time."""
        query = (
            "DELETE FROM chunk_expiry WHERE tenant = ? AND identifier = ? AND created_at = ?"
            " AND chunk_id = ? AND due <= ?"
        )
        rows = [(*place, chunk_id, now) for chunk_id in chunk_ids]
        await self._file.write(lambda file: file.executemany(query, rows))

    async def close(self) -> None:
        """Write what was noted, and close the file."""
        await self.flush()
        await self._file.close()

    # --- inside ------------------------------------------------------------------------------

    async def _rows(self, condition: str, values: Sequence[Any]) -> dict[Key, VectorStore]:
        query = f"SELECT {_COLUMNS} FROM vector_stores WHERE {condition}"  # noqa: S608 - our own
        found = {}
        for row in await self._file.read(query, *values):
            parsed = VectorStore(*row)
            metadata = json.loads(row[5]) if row[5] is not None else None
            found[parsed.key] = replace(parsed, metadata=metadata)
        return found

    def _joined(self, vector_db: VectorDB, row: VectorStore | None) -> VectorStore:
        """Return a store made of its registration and its row, if that is of this registration."""
        ours = row is not None and row.created_at == vector_db.created_at
        kept = row if row is not None and ours else _bare(vector_db)
        if kept.expired_at is not None:
            return kept
        noted = self._active.get((*vector_db.key, vector_db.created_at), 0)
        alive = kept.expires_at is None or noted < kept.expires_at
        return replace(
            kept,
            name=vector_db.vector_db_name or "",
            vector_db=vector_db,
            last_active_at=max(kept.last_active_at, noted if alive else 0),
        )


def _bare(vector_db: VectorDB) -> VectorStore:
    """Return a store of which nothing is known but its registration."""
    return VectorStore(
        *vector_db.key,
        created_at=vector_db.created_at,
        name=vector_db.vector_db_name or "",
        last_active_at=int(vector_db.created_at),
    )
