"""remote::pgvector: creates and opens the tables of vector DBs in one schema of one database."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

from corral.api.engine_index import EngineIndex
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import stored_name, strays
from corral.providers.vector_io.kit.refusals import health_of
from corral.providers.vector_io.pgvector.client import Database, check_database
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.engine import PgvectorEngine
from corral.providers.vector_io.pgvector.records import PREFIX, Tuning, drop_tables, stored_tables
from corral.providers.vector_io.pgvector.search.attached import AttachedEngine


class PgvectorProvider(VectorIOProvider):
    """Keeps four tables per vector DB, and one pool of connections.

    Args:
        config: The database and its settings.
        tuning: The tuning of the tables.
    """

    def __init__(
        self, provider_id: str, config: PgvectorConfig, tuning: Tuning | None = None
    ) -> None:
        super().__init__(provider_id)
        self._tuning = tuning or Tuning()
        self.database = Database(provider_id, config)

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract.

        Raises:
            ConfigError: The extension, the schema or a privilege is missing; the hint has the
                remedy.
        """
        attach = self.database.config.attach
        # A registration may have an unused resource id, so the vector DB's id counts as well. Not
        # for tenants: their ids can equal a configured name.
        names = () if vector_db.tenant else (vector_db.provider_resource_id, vector_db.identifier)
        attachment = next((attach[name] for name in names if name in attach), None)
        engine: PgvectorEngine | AttachedEngine
        if attachment is None:
            engine = PgvectorEngine(vector_db, self.database, self._tuning)
        else:
            engine = AttachedEngine(vector_db, self.database, attachment)
        try:
            await engine.prepare(create=create)
        except BaseException:
            await engine.close()
            raise
        return EngineIndex(engine)

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the tables without a registration, with their ids; see the contract."""
        schema = self.database.config.schema_name
        async with self.database.client.using():
            held = await self.database.run(partial(stored_tables, schema=schema))
        name_of = partial(stored_name, prefix=PREFIX)
        found = await strays(held, registered, self._drop, name_of, PREFIX)
        return [replace(orphan, vector_db_id=held[orphan.name]) for orphan in found]

    async def _drop(self, name: str) -> None:
        schema = self.database.config.schema_name
        async with self.database.client.using():
            await self.database.run(partial(drop_tables, schema=schema, name=name))

    def resources(self) -> Collection[str]:
        """Return the names of the attached tables."""
        return self.database.config.attach.keys()

    async def health(self) -> Health:
        """Check the database's encoding and the extension's version."""
        async with self.database.client.using():
            return await health_of(self.database.run(check_database))

    async def close(self) -> None:
        """Close the connections."""
        await self.database.client.close()


def create(provider_id: str, config: PgvectorConfig, home: Path) -> PgvectorProvider:
    """Build the provider (its spec's factory); it connects on first use."""
    return PgvectorProvider(provider_id, config)
