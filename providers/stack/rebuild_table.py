"""Running rebuilds, and the writes during them: two tables in the area of the registrations.

They share the area with the registrations, so that the switch is one transaction: a write is either
recorded before the switch and replayed, or finds the new index registered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, and_, delete, insert, select, update

from corral.api.chunks import STORED
from corral.api.errors import Conflict
from corral.api.vector_dbs import VectorDB
from corral.api.writes import Write
from corral.providers.stack.vector_db_table import AREA, Key, at, put, stored_in
from corral.providers.state.state import AnyRow, State
from corral.providers.state.tables import REBUILD_NOTES, REBUILDS, VECTOR_DBS

Kind = Literal["chunk", "document"]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A running rebuild.

    Attributes:
        key: Tenant and identifier of the vector DB.
        created_at: `created_at` of its registration, in Unix seconds.
        changes: Fields of the registration that the rebuild changes, including `rebuilt_at`.
        closed_until: Time until which writers wait for the switch, in Unix seconds; 0 for no wait.
    """

    key: tuple[str, str]
    created_at: float
    changes: Mapping[str, Any]
    closed_until: float = 0.0

    @property
    def embeds(self) -> bool:
        """True if chunks are embedded again, False if embeddings are copied."""
        return "fingerprint" in self.changes

    def target(self, stored: VectorDB) -> VectorDB:
        """Return the registration after the rebuild."""
        return VectorDB.model_validate({**stored.model_dump(mode="json"), **self.changes})


@dataclass(frozen=True, slots=True)
class Note:
    """A record that a chunk or a document was written."""

    number: int
    kind: Kind
    name: str


class RebuildTable:
    """Rebuilds, by vector DB."""

    def __init__(self, state: State) -> None:
        self._area = state.area(AREA, cached=True)

    async def all(self) -> list[Rebuild]:
        """Return the running rebuilds of all tenants."""
        return list(map(_rebuild, await self._area.read(select(REBUILDS))))

    async def find(self, vector_db: VectorDB) -> Rebuild | None:
        """Return the rebuild of a registered vector DB, or None."""
        return (await self.standing(vector_db))[1]

    async def standing(self, vector_db: VectorDB) -> tuple[VectorDB | None, Rebuild | None]:
        """Return the current registration under a vector DB's key, and its rebuild."""
        same = [VECTOR_DBS.c[name] == REBUILDS.c[name] for name in ("tenant", "identifier")]
        query = select(VECTOR_DBS.c.registration, REBUILDS)
        query = query.outerjoin_from(VECTOR_DBS, REBUILDS, and_(*same))
        rows = await self._area.read(query.where(at(VECTOR_DBS, vector_db.key)))
        if not rows:
            return None, None
        stored = VectorDB.model_validate_json(rows[0].registration, context=STORED)
        is_rebuilt = rows[0].created_at == stored.created_at
        return stored, _rebuild(rows[0]) if is_rebuilt else None

    async def begin(self, rebuild: Rebuild) -> Rebuild:
        """Store a rebuild unless one exists; return the stored rebuild."""
        row = {
            **_named(rebuild.key),
            "created_at": rebuild.created_at,
            "changes": json.dumps(dict(rebuild.changes)),
            "closed_until": 0.0,
        }

        def begin(connection: Connection) -> Rebuild:
            query = select(REBUILDS).where(at(REBUILDS, rebuild.key))
            stored = connection.execute(query).one_or_none()
            if stored is not None and stored.created_at == rebuild.created_at:
                return _rebuild(stored)
            # Left by a killed process for an earlier registration.
            _forget(connection, rebuild.key)
            connection.execute(insert(REBUILDS), row)
            return rebuild

        return await self._area.write(begin)

    async def let_wait(self, rebuild: Rebuild, *, until: float) -> None:
        """Make writers wait for the switch until a time, in Unix seconds; 0 releases them."""
        change = update(REBUILDS).where(at(REBUILDS, rebuild.key)).values(closed_until=until)
        await self._area.write(lambda connection: connection.execute(change))

    async def forget(self, key: Key) -> None:
        """Delete a rebuild and its recorded writes."""
        await self._area.write(lambda connection: _forget(connection, key))

    # --- writes during a rebuild -------------------------------------------------------------

    async def note(self, vector_db: VectorDB, write: Write) -> bool:
        """Record a write that the index of a vector DB already has.

        Returns:
            False if that index no longer serves, or its rebuild has ended: nothing was recorded.
        """
        names: list[tuple[Kind, str]] = [("chunk", name) for name in write.loose_ids]
        names += [("document", name) for name in sorted(write.replaced)]
        rows = [{**_named(vector_db.key), "kind": kind, "name": name} for kind, name in names]

        def note(connection: Connection) -> bool:
            stored = stored_in(connection, vector_db.key)
            query = select(REBUILDS.c.created_at).where(at(REBUILDS, vector_db.key))
            serves = stored is not None and stored.built_at == vector_db.built_at
            if not serves or connection.scalars(query).all() != [vector_db.created_at]:
                return False
            # A name that is recorded again gets a new number, so that a write after its record was
            # read is not deleted with that record.
            for row in rows:
                same = [REBUILD_NOTES.c[column] == value for column, value in row.items()]
                connection.execute(delete(REBUILD_NOTES).where(*same))
                connection.execute(insert(REBUILD_NOTES), row)
            return True

        return await self._area.write(note)

    async def notes(self, rebuild: Rebuild, limit: int) -> list[Note]:
        """Return the oldest recorded writes, at most `limit`."""
        notes = REBUILD_NOTES.c
        query = select(notes.number, notes.kind, notes.name)
        query = query.where(at(REBUILD_NOTES, rebuild.key)).order_by(notes.number).limit(limit)
        return [Note(*row) for row in await self._area.read(query)]

    async def settle(self, notes: Sequence[Note]) -> None:
        """Delete records of writes that have been replayed."""
        numbers = [note.number for note in notes]
        settled = delete(REBUILD_NOTES).where(REBUILD_NOTES.c.number.in_(numbers))
        await self._area.write(lambda connection: connection.execute(settled))

    async def switch(self, rebuild: Rebuild) -> VectorDB | None:
        """Register the new index in place of the old one, unless a write remains to be replayed.

        Returns:
            The new registration; None if nothing was changed.

        Raises:
            Conflict: The rebuild has ended; another process may have begun a new one.
        """

        def swap(connection: Connection) -> VectorDB | None:
            running = select(REBUILDS).where(at(REBUILDS, rebuild.key))
            row = connection.execute(running).one_or_none()
            if row is None or _rebuild(row).changes != rebuild.changes:
                raise Conflict("Another process has ended this rebuild.")
            query = select(REBUILD_NOTES.c.number).where(at(REBUILD_NOTES, rebuild.key)).limit(1)
            left = connection.execute(query).all()
            stored = None if left else stored_in(connection, rebuild.key)
            if stored is None or stored.created_at != rebuild.created_at:
                return None
            changed = rebuild.target(stored)
            put(connection, changed)
            _forget(connection, rebuild.key)
            return changed

        return await self._area.write(swap)


def _named(key: Key) -> dict[str, str]:
    return {"tenant": key[0], "identifier": key[1]}


def _rebuild(row: AnyRow) -> Rebuild:
    key = row.tenant, row.identifier
    return Rebuild(key, row.created_at, json.loads(row.changes), row.closed_until)


def _forget(connection: Connection, key: Key) -> None:
    for table in (REBUILDS, REBUILD_NOTES):
        connection.execute(delete(table).where(at(table, key)))
