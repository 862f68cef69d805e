"""Vector stores: OpenAI's view of a vector DB, and the fields that only this view has.

Every registration is a vector store. Its description, metadata and expiry are in
`vector_stores.db`. A row belongs to one registration, identified by tenant, identifier and creation
time: a later registration of the same name does not inherit it. After a store has expired, only the
row remains, until a user deletes it.
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
"""Age after which a row without a registration counts as left by a dead process."""

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
"""A registration: tenant, identifier and creation time in Unix seconds."""


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A vector store.

    Attributes:
        tenant, identifier: The unique key.
        created_at: Creation time of its registration, in Unix seconds.
        name: Display name; "" for none.
        description: Text for users, or None.
        metadata: Pairs of text, or None.
        expires_after_days: Days without activity until it expires; None: it never expires.
        last_active_at: Time of the last activity, in Unix seconds.
        expired_at: Time when it was marked expired, in Unix seconds, or None.
        vector_db: Its registration; None if it has expired.
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
        """Tenant and identifier."""
        return self.tenant, self.identifier

    @property
    def registered(self) -> VectorDB:
        """The registration of a store that has not expired."""
        assert self.vector_db is not None  # noqa: S101 - see `VectorStores.usable`
        return self.vector_db

    @property
    def expires_at(self) -> int | None:
        """Time of expiry in Unix seconds, or None."""
        days = self.expires_after_days
        return None if days is None else self.last_active_at + days * SECONDS_A_DAY

    def is_over(self, now: float) -> bool:
        """Return True if it has expired at a time, marked or not."""
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
    """The fields that only OpenAI's view of a vector DB has; safe for tasks and processes.

    Activity is recorded in memory and written by `flush`: if a process is killed before it writes,
    a store expires earlier by that much.

    Args:
        home: The data folder.
        clock: Returns the time, in Unix seconds.

    Attributes:
        changed: Set when data may expire before the last `next_expiry`.
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
        """Return a tenant's registered vector DBs as stores, and the rows of expired stores."""
        rows = await self._rows("tenant = ?", (tenant,))
        found = [self._joined(each, rows.get(each.key)) for each in registered]
        names = {each.key for each in found}
        left = [row for key, row in rows.items() if key not in names and row.expired_at]
        return found + left

    async def expired(self, tenant: str, identifier: str) -> VectorStore | None:
        """Return the row of a store that has expired, or None."""
        condition = "tenant = ? AND identifier = ? AND expired_at NOT NULL"
        return (await self._rows(condition, (tenant, identifier))).get((tenant, identifier))

    async def put(self, store: VectorStore, fields: Collection[str] = _DETAILS) -> None:
        """Write the fields of a store that only this view has.

        Args:
            store: The new state.
            fields: Fields to change in an existing row; other requests may change the others.
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
        """Delete the store's own fields; keep the registration."""
        query = "DELETE FROM vector_stores WHERE tenant = ? AND identifier = ?"
        await self._file.write(lambda file: file.execute(query, (tenant, identifier)))

    # --- activity and expiry -----------------------------------------------------------------

    async def use(self, vector_db: VectorDB) -> None:
        """Record activity of a vector DB, through any API.

        Raises:
            Expired: The store has expired, even if the sweep has not run.
        """
        kept: dict[Key, VectorStore | None] = self._file.kept()
        key = vector_db.key
        if key not in kept:
            kept[key] = (await self._rows("tenant = ? AND identifier = ?", key)).get(key)
        self._joined(vector_db, kept[key]).check(self.clock(), "vector_db_id")
        self._active[(*vector_db.key, vector_db.created_at)] = int(self.clock())

    async def flush(self) -> None:
        """Write the recorded activity; it does not revive stores that expired before it."""
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
        """Mark expired stores; return all marked stores."""
        now = int(self.clock())
        query = f"UPDATE vector_stores SET expired_at = ? WHERE {_DUE}"  # noqa: S608 - our own text
        if await self._rows(_DUE, (now,)):
            await self._file.write(lambda file: file.execute(query, (now, now)))
        return list((await self._rows("expired_at NOT NULL", ())).values())

    async def drop_strays(self, registered: Sequence[VectorDB]) -> None:
        """Delete old rows without a registration."""
        known = {(*each.key, each.created_at) for each in registered}
        before = int(self.clock()) - STRAY_SECONDS
        rows = await self._rows("expired_at IS NULL AND last_active_at < ?", (before,))
        for key, row in rows.items():
            if (*key, row.created_at) not in known:
                await self.remove(*key)

    async def next_expiry(self) -> int | None:
        """Return the time of the next expiry of a store or chunk, in Unix seconds; None: never."""
        stores = (
            "SELECT min(last_active_at + expires_after_days * 86400) FROM vector_stores"
            " WHERE expired_at IS NULL"
        )
        query = f"SELECT ({stores}), (SELECT min(due) FROM chunk_expiry)"  # noqa: S608 - ours
        times = [due for due in (await self._file.read(query))[0] if due is not None]
        return min(times, default=None)

    # --- chunks ------------------------------------------------------------------------------

    async def schedule(self, vector_db: VectorDB, due: Mapping[str, int]) -> None:
        """Schedule the expiry check of chunks that will be stored next.

        The check reads the chunk's own record, so an entry without a chunk does no harm.

        Args:
            due: Time of the check by chunk id, in Unix seconds.
        """
        place = (*vector_db.key, vector_db.created_at)
        await self._note([(*place, chunk_id, at) for chunk_id, at in due.items()])
        self.changed.set()

    async def postpone(self, place: Place, chunk_ids: Sequence[str], at: int) -> None:
        """Schedule another check of chunks, in Unix seconds."""
        await self._note([(*place, chunk_id, at) for chunk_id in chunk_ids])

    async def _note(self, rows: Sequence[tuple[str, str, float, str, int]]) -> None:
        query = "INSERT OR IGNORE INTO chunk_expiry VALUES (?, ?, ?, ?, ?)"
        await self._file.write(lambda file: file.executemany(query, rows))

    async def due_chunks(self, now: int) -> dict[Place, list[str]]:
        """Return the ids of chunks to check by a time, by registration."""
        query = (
            "SELECT DISTINCT tenant, identifier, created_at, chunk_id FROM chunk_expiry"
            " WHERE due <= ?"
        )
        found: dict[Place, list[str]] = {}
        for tenant, identifier, created_at, chunk_id in await self._file.read(query, now):
            found.setdefault((tenant, identifier, created_at), []).append(chunk_id)
        return found

    async def looked_at(self, place: Place, chunk_ids: Sequence[str], now: int) -> None:
        """Delete the scheduled checks of chunks up to a time."""
        query = (
            "DELETE FROM chunk_expiry WHERE tenant = ? AND identifier = ? AND created_at = ?"
            " AND chunk_id = ? AND due <= ?"
        )
        rows = [(*place, chunk_id, now) for chunk_id in chunk_ids]
        await self._file.write(lambda file: file.executemany(query, rows))

    async def close(self) -> None:
        """Write the recorded activity, and close the file."""
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
        """Join a registration with its row, unless the row belongs to another registration."""
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
    """Return a store without a row, from its registration."""
    return VectorStore(
        *vector_db.key,
        created_at=vector_db.created_at,
        name=vector_db.vector_db_name or "",
        last_active_at=int(vector_db.created_at),
    )
