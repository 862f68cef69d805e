"""remote::pgvector: makes and opens the tables of vector DBs in one schema of one database."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from corral.api.errors import CorralError
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.strays import strays
from corral.providers.vector_io.pgvector.attached import AttachedIndex
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.database import Database
from corral.providers.vector_io.pgvector.index import PgvectorIndex
from corral.providers.vector_io.pgvector.pool import Connection
from corral.providers.vector_io.pgvector.schema import (
    check_database,
    drop_tables,
    stored_tables,
)
from corral.providers.vector_io.pgvector.tables import PREFIX, Tables


class PgvectorProvider(VectorIOProvider):
    """Holds four tables a vector DB, and one pool of connections."""

    def __init__(self, provider_id: str, config: PgvectorConfig) -> None:
        super().__init__(provider_id)
        self._database = Database(provider_id, config)

    async def open_index(
        self, vector_db: VectorDB, *, create: bool = False
    ) -> PgvectorIndex | AttachedIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            ConfigError: The extension, the schema or a right is missing; the hint says how to mend
                it.
        """
        attach = self._database.config.attach
        # By its id too: what is registered already may hold a name that was never used.
        attachment = attach.get(vector_db.provider_resource_id) or attach.get(vector_db.identifier)
        index: PgvectorIndex | AttachedIndex
        if attachment is None:
            index = PgvectorIndex(vector_db, self._database)
        else:
            index = AttachedIndex(vector_db, self._database, attachment)
        try:
            await index.prepare(create=create)
        except BaseException:
            await index.close()
            raise
        return index

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the tables that no registration holds, with their ids; see the contract."""
        schema = self._database.config.schema_name
        self._database.use()
        try:
            held = await self._database.run(partial(stored_tables, schema=schema))
        finally:
            await self._database.release()
        found = await strays(held, registered, lambda db: Tables(db, schema).name, PREFIX)
        return [Orphan(name, partial(self._drop, name), held[name]) for name in found]

    async def _drop(self, name: str) -> None:
        schema = self._database.config.schema_name
        self._database.use()
        try:
            await self._database.run(partial(drop_tables, schema=schema, name=name))
        finally:
            await self._database.release()

    def resources(self) -> Collection[str]:
        """Return the names of the attached tables."""
        return self._database.config.attach.keys()

    async def health(self) -> Health:
        """Ask the database for its encoding and the extension's version."""

        async def check(connection: Connection) -> None:
            await check_database(connection)

        self._database.use()
        try:
            await self._database.run(check)
        except CorralError as error:
            return Health("Error", str(error))
        finally:
            await self._database.release()
        return Health("OK")

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()


def create(provider_id: str, config: PgvectorConfig, home: Path) -> PgvectorProvider:
    """Build the provider (its spec's factory); it connects when it is first used."""
    return PgvectorProvider(provider_id, config)
