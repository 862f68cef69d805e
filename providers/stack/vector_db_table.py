"""The registrations of vector DBs, on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from corral.api.chunks import STORED
from corral.api.errors import Conflict, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.state.state import Rows, State
from corral.providers.state.tables import JUDGED_QUESTIONS, JUDGED_SETS, TUNINGS, VECTOR_DBS

AREA = "registrations"
"""The area of the registrations and rebuilds, which change in one transaction."""

Key = tuple[str, str]
"""A tenant and an identifier: `VectorDB.key`."""

_REGISTRATION = VECTOR_DBS.c.registration


class VectorDBTable:
    """Registrations, shared safely by tasks, processes and machines; see `State`.

    Parsed registrations are cached until any process writes in their area.

    Args:
        state: The tables.
    """

    def __init__(self, state: State) -> None:
        self._area = state.area(AREA, cached=True)

    @property
    def generation(self) -> int:
        """Increases when a read sees a new write of this or another process."""
        return self._area.generation

    async def all(self) -> list[VectorDB]:
        """Return the registrations of all tenants."""
        query = select(_REGISTRATION).order_by(VECTOR_DBS.c.tenant, VECTOR_DBS.c.identifier)
        return _parsed(await self._area.read(query))

    async def of(self, tenant: str) -> list[VectorDB]:
        """Return the registrations of one tenant, by identifier."""
        query = select(_REGISTRATION).where(VECTOR_DBS.c.tenant == tenant)
        return _parsed(await self._area.read(query.order_by(VECTOR_DBS.c.identifier)))

    async def find(self, tenant: str, identifier: str) -> VectorDB | None:
        """Return one registration, or None. Do not mutate it: it is cached."""
        kept: dict[Key, VectorDB] = self._area.kept()
        key = tenant, identifier
        if key in kept:
            await asyncio.sleep(0)  # Otherwise a query on a fast engine might never yield.
        else:
            query = select(_REGISTRATION).where(at(VECTOR_DBS, key))
            for found in _parsed(await self._area.read(query)):
                kept[key] = found
        return kept.get(key)

    async def known(self, tenant: str, identifiers: Iterable[str]) -> set[str]:
        """Return the registered identifiers of a tenant among `identifiers`."""
        query = select(VECTOR_DBS.c.identifier).where(
            VECTOR_DBS.c.tenant == tenant, VECTOR_DBS.c.identifier.in_(list(identifiers))
        )
        return {row.identifier for row in await self._area.read(query)}

    async def get(self, tenant: str, identifier: str) -> VectorDB:
        """Return one registration of a tenant.

        Raises:
            NotFound: It does not exist, or belongs to another tenant; the hint lists some of the
                tenant's vector DBs.
        """
        found = await self.find(tenant, identifier)
        if found is not None:
            return found
        known = [db.identifier for db in await self.of(tenant)]
        some = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
        raise NotFound(
            f"There is no vector DB {identifier!r}.",
            hint=f"Registered: {some or 'none yet'}.",
            field="vector_db_id",
        )

    async def add(self, vector_db: VectorDB) -> None:
        """Store a registration.

        Raises:
            Conflict: The tenant already has a vector DB with this identifier.
            Unavailable: Another process has locked the state; nothing was stored.
        """
        tenant, identifier = vector_db.key
        row = {
            "tenant": tenant,
            "identifier": identifier,
            "registration": vector_db.model_dump_json(),
        }

        def add(connection: Connection) -> None:
            try:
                connection.execute(insert(VECTOR_DBS), row)
            except IntegrityError:
                raise Conflict(f"Vector DB {identifier!r} exists.", field="vector_db_id") from None

        await self._area.write(add)

    async def replace(self, stored: VectorDB, changed: VectorDB) -> None:
        """Replace a registration if it has not changed since it was read.

        Raises:
            Conflict: It was changed, deleted or registered again in the meantime.
            Unavailable: Another process has locked the state; nothing was changed.
        """

        def change(connection: Connection) -> None:
            if stored_in(connection, stored.key) != stored:
                raise Conflict(
                    f"Vector DB {stored.identifier!r} was changed by another request.",
                    hint="Nothing was changed. Try again.",
                    field="vector_db_id",
                )
            put(connection, changed)

        await self._area.write(change)

    async def remove(self, vector_db: VectorDB) -> None:
        """Delete a registration with its judged questions and its tunings.

        A later registration of the same identifier stays.

        Raises:
            Unavailable: Another process has locked the state; the registration still exists.
        """

        def remove(connection: Connection) -> None:
            stored = stored_in(connection, vector_db.key)
            if stored is not None and stored.created_at == vector_db.created_at:
                _delete_questions(connection, vector_db.key)
                for table in (JUDGED_SETS, TUNINGS, VECTOR_DBS):
                    connection.execute(delete(table).where(at(table, vector_db.key)))

        await self._area.write(remove)


def at(table: Table, key: Key) -> ColumnElement[bool]:
    """Return the condition for the row of a tenant and an identifier."""
    tenant, identifier = key
    return (table.c.tenant == tenant) & (table.c.identifier == identifier)


def stored_in(connection: Connection, key: Key) -> VectorDB | None:
    """Return the registration under a key, within a transaction, or None."""
    rows = connection.execute(select(_REGISTRATION).where(at(VECTOR_DBS, key))).all()
    return next(iter(_parsed(rows)), None)


def put(connection: Connection, changed: VectorDB) -> None:
    """Replace a registration, within a transaction."""
    values = {"registration": changed.model_dump_json()}
    connection.execute(update(VECTOR_DBS).where(at(VECTOR_DBS, changed.key)).values(values))


def _delete_questions(connection: Connection, key: Key) -> None:
    sets = select(JUDGED_SETS.c.number).where(at(JUDGED_SETS, key))
    connection.execute(delete(JUDGED_QUESTIONS).where(JUDGED_QUESTIONS.c.judged_set.in_(sets)))


def _parsed(rows: Rows) -> list[VectorDB]:
    return [VectorDB.model_validate_json(row.registration, context=STORED) for row in rows]
