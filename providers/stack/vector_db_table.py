"""The registrations of vector DBs, on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import apsw

from corral.api.chunks import STORED
from corral.api.errors import Conflict, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.base.database import Database, Schema

TABLES = Schema(
    (
        "CREATE TABLE IF NOT EXISTS vector_dbs (tenant TEXT NOT NULL, identifier TEXT NOT NULL,"
        " registration TEXT NOT NULL, PRIMARY KEY (tenant, identifier)) STRICT",
        "CREATE TABLE IF NOT EXISTS rebuilds (tenant TEXT NOT NULL, identifier TEXT NOT NULL,"
        " created_at REAL NOT NULL, changes TEXT NOT NULL, closed_until REAL NOT NULL DEFAULT 0,"
        " PRIMARY KEY (tenant, identifier)) STRICT",
        # Recording a name again gives it a new number, so that a write after its record was read
        # is not deleted with that record.
        "CREATE TABLE IF NOT EXISTS rebuild_notes (number INTEGER PRIMARY KEY AUTOINCREMENT,"
        " tenant TEXT NOT NULL, identifier TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,"
        " UNIQUE (tenant, identifier, kind, name) ON CONFLICT REPLACE) STRICT",
        "CREATE TABLE IF NOT EXISTS installation (id TEXT NOT NULL) STRICT",
        # A random UUID (version 4), made once with the registry.
        "INSERT INTO installation SELECT substr(hex, 1, 12) || '4' || substr(hex, 14, 3) || 'a'"
        " || substr(hex, 18) FROM (SELECT lower(hex(randomblob(16))) AS hex)"
        " WHERE NOT EXISTS (SELECT 1 FROM installation)",
    )
)
REGISTRY_NAME = "registry.db"
REMEDY = "Restore it from a backup, or move it away and register the vector DBs again."

Key = tuple[str, str]
"""A tenant and an identifier: `VectorDB.key`."""


class VectorDBTable:
    """Registrations in one SQLite file, shared safely by tasks and processes; see `Database`.

    Every call sees the registrations of other processes. Parsed registrations are cached until any
    process writes to the file.

    Args:
        path: The file; created with its folder if it does not exist.

    Raises:
        ConfigError: The file is damaged, cannot be opened, or was written by a newer Corral.
        Unavailable: Another process has locked the file.
    """

    def __init__(self, path: Path) -> None:
        self.file = Database(path, TABLES, remedy=REMEDY)
        self.file.open()
        self._installation = ""

    @property
    def generation(self) -> int:
        """Increases when a read sees a new write of this or another process."""
        return self.file.generation

    async def installation(self) -> str:
        """Return the permanent id of this installation: a UUID as 32 hex digits."""
        if not self._installation:
            [(self._installation,)] = await self.file.read("SELECT id FROM installation")
        return self._installation

    async def all(self) -> list[VectorDB]:
        """Return the registrations of all tenants."""
        query = "SELECT registration FROM vector_dbs ORDER BY tenant, identifier"
        return _parsed(await self.file.read(query))

    async def of(self, tenant: str) -> list[VectorDB]:
        """Return the registrations of one tenant, by identifier."""
        query = "SELECT registration FROM vector_dbs WHERE tenant = ? ORDER BY identifier"
        return _parsed(await self.file.read(query, tenant))

    async def find(self, tenant: str, identifier: str) -> VectorDB | None:
        """Return one registration, or None. Do not mutate it: it is cached."""
        kept: dict[Key, VectorDB] = self.file.kept()
        key = tenant, identifier
        if key in kept:
            await asyncio.sleep(0)  # a fast engine's query may never yield otherwise
        else:
            query = "SELECT registration FROM vector_dbs WHERE tenant = ? AND identifier = ?"
            for found in _parsed(await self.file.read(query, *key)):
                kept[key] = found
        return kept.get(key)

    async def known(self, tenant: str, identifiers: Iterable[str]) -> set[str]:
        """Return the registered identifiers of a tenant among `identifiers`."""
        names = list(identifiers)
        marks = ", ".join("?" * len(names))
        query = "SELECT identifier FROM vector_dbs WHERE tenant = ? AND identifier IN"
        found = await self.file.read(f"{query} ({marks})", tenant, *names)
        return {name for (name,) in found}

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
            Unavailable: Another process has locked the file; nothing was stored.
        """
        row = (*vector_db.key, vector_db.model_dump_json())

        def insert(file: apsw.Connection) -> None:
            try:
                file.execute("INSERT INTO vector_dbs VALUES (?, ?, ?)", row)
            except apsw.ConstraintError:
                raise Conflict(
                    f"Vector DB {vector_db.identifier!r} exists.", field="vector_db_id"
                ) from None

        await self.file.write(insert)

    async def replace(self, stored: VectorDB, changed: VectorDB) -> None:
        """Replace a registration if it has not changed since it was read.

        Raises:
            Conflict: It was changed, deleted or registered again in the meantime.
            Unavailable: Another process has locked the file; nothing was changed.
        """
        row = (changed.model_dump_json(), *stored.key)

        def update(file: apsw.Connection) -> None:
            if stored_in(file, stored.key) != stored:
                raise Conflict(
                    f"Vector DB {stored.identifier!r} was changed by another request.",
                    hint="Nothing was changed. Try again.",
                    field="vector_db_id",
                )
            file.execute(
                "UPDATE vector_dbs SET registration = ? WHERE tenant = ? AND identifier = ?", row
            )

        await self.file.write(update)

    async def remove(self, vector_db: VectorDB) -> None:
        """Delete a registration, but not a later registration of the same identifier.

        Raises:
            Unavailable: Another process has locked the file; the registration still exists.
        """

        def delete(file: apsw.Connection) -> None:
            stored = stored_in(file, vector_db.key)
            if stored is not None and stored.created_at == vector_db.created_at:
                query = "DELETE FROM vector_dbs WHERE tenant = ? AND identifier = ?"
                file.execute(query, vector_db.key)

        await self.file.write(delete)

    async def close(self) -> None:
        """Close the file after the running calls."""
        await self.file.close()


def recorded_installation(home: Path) -> str:
    """Return the id of the installation in a data folder, opened read-only.

    Returns:
        32 hex digits; "" if the folder has no registry, or it cannot be read.
    """
    try:
        file = apsw.Connection(str(home / REGISTRY_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.CantOpenError:
        return ""
    try:
        return str(file.execute("SELECT id FROM installation").get)
    except apsw.Error:
        return ""
    finally:
        file.close()


def stored_in(file: apsw.Connection, key: tuple[str, str]) -> VectorDB | None:
    """Return the registration under a key, within a transaction, or None."""
    query = "SELECT registration FROM vector_dbs WHERE tenant = ? AND identifier = ?"
    row = file.execute(query, key).fetchone()
    return VectorDB.model_validate_json(str(row[0]), context=STORED) if row else None


def _parsed(rows: Iterable[tuple[str]]) -> list[VectorDB]:
    return [VectorDB.model_validate_json(each, context=STORED) for (each,) in rows]
