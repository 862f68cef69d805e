"""Vector stores: OpenAI's view of a vector DB, and the fields that only this view has.

Every registration is a vector store. Its description, metadata and expiry are in a separate table.
A row belongs to one registration, identified by tenant, identifier and creation time, so a later
registration of the same name does not inherit it. After a store has expired, only the row remains,
until a user deletes it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from corral.api.errors import Expired
from corral.api.vector_dbs import VectorDB
from corral.providers.base.cursor import Places
from corral.providers.stack.vector_db_table import Key, at
from corral.providers.state.state import State, upsert
from corral.providers.state.tables import CHUNK_EXPIRY, VECTOR_STORES

SECONDS_A_DAY = 86_400
STRAY_SECONDS = 3600
"""Age after which a row without a registration counts as left by a dead process."""

_DETAILS = (
    "name", "description", "metadata", "expires_after_days", "last_active_at", "expired_at"
)  # fmt: skip
_STORES, _EXPIRY = VECTOR_STORES.c, CHUNK_EXPIRY.c
_EXPIRES_AT = _STORES.last_active_at + _STORES.expires_after_days * SECONDS_A_DAY

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
        expires_after_days: Days without activity until it expires; None if it never expires.
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
        state: The tables.
        clock: Returns the time, in Unix seconds.

    Attributes:
        changed: Set when data may expire before the last `next_expiry`.
    """

    def __init__(self, state: State, clock: Callable[[], float] = time.time) -> None:
        self._area = state.area("vector_stores", cached=True)
        self.clock = clock
        self.changed = asyncio.Event()
        self._active: dict[Place, int] = {}
        self.places: Places[tuple[float, str]] = Places()

    # --- stores ------------------------------------------------------------------------------

    async def store(self, vector_db: VectorDB) -> VectorStore:
        """Return a registered vector DB as a store."""
        rows = await self._rows(at(VECTOR_STORES, vector_db.key))
        return self._joined(vector_db, rows.get(vector_db.key))

    async def stores(self, tenant: str, registered: Sequence[VectorDB]) -> list[VectorStore]:
        """Return a tenant's registered vector DBs as stores, and the rows of expired stores."""
        rows = await self._rows(_STORES.tenant == tenant)
        found = [self._joined(each, rows.get(each.key)) for each in registered]
        names = {each.key for each in found}
        left = [row for key, row in rows.items() if key not in names and row.expired_at]
        return found + left

    async def expired(self, tenant: str, identifier: str) -> VectorStore | None:
        """Return the row of a store that has expired, or None."""
        key = tenant, identifier
        found = await self._rows(at(VECTOR_STORES, key) & _STORES.expired_at.is_not(None))
        return found.get(key)

    async def put(self, store: VectorStore, fields: Collection[str] = _DETAILS) -> None:
        """Write the fields of a store that only this view has.

        Args:
            store: The new state.
            fields: Fields to change in an existing row; other requests may change the others.
        """
        metadata = None if store.metadata is None else json.dumps(dict(store.metadata))
        row = {
            "tenant": store.tenant,
            "identifier": store.identifier,
            "created_at": store.created_at,
            "name": store.name,
            "description": store.description,
            "metadata": metadata,
            "expires_after_days": store.expires_after_days,
            "last_active_at": store.last_active_at,
            "expired_at": store.expired_at,
        }

        def write(connection: Connection) -> None:
            _drop_of_another(connection, (*store.key, store.created_at))
            upsert(connection, VECTOR_STORES, [row], *fields)

        await self._area.write(write)
        self.changed.set()

    async def remove(self, tenant: str, identifier: str) -> None:
        """Delete the store's own fields; keep the registration."""
        removed = delete(VECTOR_STORES).where(at(VECTOR_STORES, (tenant, identifier)))
        await self._area.write(lambda connection: connection.execute(removed))

    # --- activity and expiry -----------------------------------------------------------------

    async def use(self, vector_db: VectorDB) -> None:
        """Record activity of a vector DB, through any API.

        Raises:
            Expired: The store has expired, even if the sweep has not run.
        """
        kept: dict[Key, VectorStore | None] = self._area.kept()
        key = vector_db.key
        if key not in kept:
            kept[key] = (await self._rows(at(VECTOR_STORES, key))).get(key)
        self._joined(vector_db, kept[key]).check(self.clock(), "vector_db_id")
        self._active[(*vector_db.key, vector_db.created_at)] = int(self.clock())

    async def flush(self) -> None:
        """Write the recorded activity; it does not revive stores that expired before it."""
        noted, self._active = self._active, {}

        def write(connection: Connection) -> None:
            for place, moment in noted.items():
                _drop_of_another(connection, place)
                _note_activity(connection, place, moment)

        if noted:
            try:
                await self._area.write(write)
            except BaseException:
                self._active = {**noted, **self._active}
                raise

    async def mark_expired(self) -> list[VectorStore]:
        """Mark expired stores; return all marked stores."""
        now = int(self.clock())
        due = and_(_STORES.expired_at.is_(None), now >= _EXPIRES_AT)
        if await self._rows(due):
            marked = update(VECTOR_STORES).where(due).values(expired_at=now)
            await self._area.write(lambda connection: connection.execute(marked))
        return list((await self._rows(_STORES.expired_at.is_not(None))).values())

    async def drop_strays(self, registered: Sequence[VectorDB]) -> None:
        """Delete old rows without a registration."""
        known = {(*each.key, each.created_at) for each in registered}
        before = int(self.clock()) - STRAY_SECONDS
        rows = await self._rows(_STORES.expired_at.is_(None) & (_STORES.last_active_at < before))
        for key, row in rows.items():
            if (*key, row.created_at) not in known:
                await self.remove(*key)

    async def next_expiry(self) -> int | None:
        """Return the Unix time at which the next store or chunk expires; None if none does."""
        store = select(func.min(_EXPIRES_AT)).where(_STORES.expired_at.is_(None))
        chunk = select(func.min(_EXPIRY.due))
        query = select(store.scalar_subquery(), chunk.scalar_subquery())
        times = [due for due in (await self._area.read(query))[0] if due is not None]
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
        columns = ("tenant", "identifier", "created_at", "chunk_id", "due")
        values = [dict(zip(columns, row, strict=True)) for row in rows]
        await self._area.write(lambda connection: upsert(connection, CHUNK_EXPIRY, values))

    async def due_chunks(self, now: int) -> dict[Place, list[str]]:
        """Return the ids of chunks to check by a time, by registration."""
        columns = _EXPIRY.tenant, _EXPIRY.identifier, _EXPIRY.created_at, _EXPIRY.chunk_id
        query = select(*columns).where(_EXPIRY.due <= now).distinct()
        found: dict[Place, list[str]] = {}
        for tenant, identifier, created_at, chunk_id in await self._area.read(query):
            found.setdefault((tenant, identifier, created_at), []).append(chunk_id)
        return found

    async def looked_at(self, place: Place, chunk_ids: Sequence[str], now: int) -> None:
        """Delete the scheduled checks of chunks up to a time."""
        tenant, identifier, created_at = place
        looked_at = delete(CHUNK_EXPIRY).where(
            at(CHUNK_EXPIRY, (tenant, identifier)),
            _EXPIRY.created_at == created_at,
            _EXPIRY.chunk_id == bindparam("looked_at"),
            _EXPIRY.due <= now,
        )
        rows = [{"looked_at": chunk_id} for chunk_id in chunk_ids]
        if rows:
            await self._area.write(lambda connection: connection.execute(looked_at, rows))

    async def close(self) -> None:
        """Write the recorded activity."""
        await self.flush()

    # --- inside ------------------------------------------------------------------------------

    async def _rows(self, condition: ColumnElement[bool]) -> dict[Key, VectorStore]:
        found = {}
        for row in await self._area.read(select(VECTOR_STORES).where(condition)):
            parsed = VectorStore(*row)
            metadata = json.loads(row.metadata) if row.metadata is not None else None
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


def _drop_of_another(connection: Connection, place: Place) -> None:
    """Delete the row of another registration of the same name."""
    tenant, identifier, created_at = place
    of_another = _STORES.created_at != created_at
    key = tenant, identifier
    connection.execute(delete(VECTOR_STORES).where(at(VECTOR_STORES, key), of_another))


def _note_activity(connection: Connection, place: Place, moment: int) -> None:
    """Record activity; it does not revive a store that expired before it."""
    tenant, identifier, created_at = place
    alive = or_(_EXPIRES_AT.is_(None), moment < _EXPIRES_AT) & _STORES.expired_at.is_(None)
    row = {
        "tenant": tenant,
        "identifier": identifier,
        "created_at": created_at,
        "name": "",
        "last_active_at": moment,
    }
    older = (_STORES.last_active_at < moment) & alive
    upsert(connection, VECTOR_STORES, [row], "last_active_at", where=older)


def _bare(vector_db: VectorDB) -> VectorStore:
    """Return a store without a row, from its registration."""
    return VectorStore(
        *vector_db.key,
        created_at=vector_db.created_at,
        name=vector_db.vector_db_name or "",
        last_active_at=int(vector_db.created_at),
    )
