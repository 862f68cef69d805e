"""Running rebuilds, and the writes during them: two tables in the registrations' file.

They share the file with the registrations, so that the switch is one transaction: a write is either
recorded before the switch and replayed, or finds the new index registered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from corral.api.chunks import STORED
from corral.api.vector_dbs import VectorDB
from corral.api.writes import Write
from corral.providers.base.database import Database
from corral.providers.stack.vector_db_table import stored_in

_ALL = "SELECT tenant, identifier, created_at, changes, closed_until FROM rebuilds"
_STANDING = """
SELECT registration, r.tenant, r.identifier, created_at, changes, closed_until
FROM vector_dbs v LEFT JOIN rebuilds r USING (tenant, identifier)
WHERE v.tenant = ? AND v.identifier = ?
"""

Kind = Literal["chunk", "document"]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A running rebuild.

    Attributes:
        key: Tenant and identifier of the vector DB.
        created_at: `created_at` of its registration, in Unix seconds.
        changes: Fields of the registration that the rebuild changes, including `rebuilt_at`.
        closed_until: Time until which writers wait for the switch, in Unix seconds; 0: no wait.
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

    def __init__(self, file: Database) -> None:
        self._file = file

    async def all(self) -> list[Rebuild]:
        """Return the running rebuilds of all tenants."""
        return list(map(_rebuild, await self._file.read(_ALL)))

    async def find(self, vector_db: VectorDB) -> Rebuild | None:
        """Return the rebuild of a registered vector DB, or None."""
        return (await self.standing(vector_db))[1]

    async def standing(self, vector_db: VectorDB) -> tuple[VectorDB | None, Rebuild | None]:
        """Return the current registration under a vector DB's key, and its rebuild."""
        rows = await self._file.read(_STANDING, *vector_db.key)
        if not rows:
            return None, None
        stored = VectorDB.model_validate_json(rows[0][0], context=STORED)
        is_rebuilt = rows[0][1] is not None and rows[0][3] == stored.created_at
        return stored, _rebuild(rows[0][1:]) if is_rebuilt else None

    async def begin(self, rebuild: Rebuild) -> Rebuild:
        """Store a rebuild unless one exists; return the stored rebuild."""
        row = (*rebuild.key, rebuild.created_at, json.dumps(dict(rebuild.changes)))

        def insert(file: apsw.Connection) -> Rebuild:
            found = file.execute(
                f"{_ALL} WHERE tenant = ? AND identifier = ?", rebuild.key
            ).fetchall()
            if found and found[0][2] == rebuild.created_at:
                return _rebuild(found[0])
            _forget(file, rebuild.key)  # left by a killed process for an earlier registration
            query = (
                "INSERT INTO rebuilds(tenant, identifier, created_at, changes) VALUES (?, ?, ?, ?)"
            )
            file.execute(query, row)
            return rebuild

        return await self._file.write(insert)

    async def let_wait(self, rebuild: Rebuild, *, until: float) -> None:
        """Make writers wait for the switch until a time, in Unix seconds; 0 releases them."""
        query = "UPDATE rebuilds SET closed_until = ? WHERE tenant = ? AND identifier = ?"
        await self._file.write(lambda file: file.execute(query, (until, *rebuild.key)))

    async def forget(self, key: tuple[str, str]) -> None:
        """Delete a rebuild and its recorded writes."""
        await self._file.write(lambda file: _forget(file, key))

    # --- writes during a rebuild -------------------------------------------------------------

    async def note(self, vector_db: VectorDB, write: Write) -> bool:
        """Record a write that the index of a vector DB already has.

        Returns:
            False if that index no longer serves, or its rebuild has ended: nothing was recorded.
        """
        names: list[tuple[Kind, str]] = [("chunk", name) for name in write.loose_ids]
        names += [("document", name) for name in sorted(write.replaced)]
        rows = [(*vector_db.key, *name) for name in names]

        def insert(file: apsw.Connection) -> bool:
            stored = stored_in(file, vector_db.key)
            query = "SELECT created_at FROM rebuilds WHERE tenant = ? AND identifier = ?"
            found = file.execute(query, vector_db.key).fetchall()
            serves = stored is not None and stored.built_at == vector_db.built_at
            if not serves or found != [(vector_db.created_at,)]:
                return False
            query = "INSERT INTO rebuild_notes(tenant, identifier, kind, name) VALUES (?, ?, ?, ?)"
            file.executemany(query, rows)
            return True

        return await self._file.write(insert)

    async def notes(self, rebuild: Rebuild, limit: int) -> list[Note]:
        """Return the oldest recorded writes, at most `limit`."""
        query = (
            "SELECT number, kind, name FROM rebuild_notes WHERE tenant = ? AND identifier = ?"
            " ORDER BY number LIMIT ?"
        )
        return [Note(*row) for row in await self._file.read(query, *rebuild.key, limit)]

    async def settle(self, notes: Sequence[Note]) -> None:
        """Delete records of writes that have been replayed."""
        numbers = [(note.number,) for note in notes]
        query = "DELETE FROM rebuild_notes WHERE number = ?"
        await self._file.write(lambda file: file.executemany(query, numbers))

    async def switch(self, rebuild: Rebuild) -> VectorDB | None:
        """Register the new index in place of the old one, unless a write remains to be replayed.

        Returns:
            The new registration; None if nothing was changed.
        """

        def swap(file: apsw.Connection) -> VectorDB | None:
            query = "SELECT 1 FROM rebuild_notes WHERE tenant = ? AND identifier = ? LIMIT 1"
            left = file.execute(query, rebuild.key).fetchall()
            stored = None if left else stored_in(file, rebuild.key)
            if stored is None or stored.created_at != rebuild.created_at:
                return None
            changed = rebuild.target(stored)
            query = "UPDATE vector_dbs SET registration = ? WHERE tenant = ? AND identifier = ?"
            file.execute(query, (changed.model_dump_json(), *rebuild.key))
            _forget(file, rebuild.key)
            return changed

        return await self._file.write(swap)


def _rebuild(row: tuple[Any, ...]) -> Rebuild:
    tenant, identifier, created_at, changes, closed_until = row
    return Rebuild((tenant, identifier), created_at, json.loads(changes), closed_until)


def _forget(file: apsw.Connection, key: tuple[str, str]) -> None:
    file.execute("DELETE FROM rebuilds WHERE tenant = ? AND identifier = ?", key)
    file.execute("DELETE FROM rebuild_notes WHERE tenant = ? AND identifier = ?", key)
