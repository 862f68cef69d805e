"""Reads of chunks without a search: by id, or by a filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import sql

from corral.api.filters import Filter
from corral.providers.vector_io.pgvector import filters as conditions
from corral.providers.vector_io.pgvector.client import Connection, Database, Row, Statement


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads the chunks of Corral's tables, or of an attached table.

    Attributes:
        database: The provider's connections.
        chunks: The FROM item `c`, with the columns of the table of chunks.
        role: The database role that restricted principals read as.
    """

    database: Database
    chunks: sql.Composable
    role: str | None = None

    async def rows(
        self,
        template: LiteralString,
        filters: Filter | None = None,
        parameters: Mapping[str, Any] | None = None,
        **parts: sql.Composable,
    ) -> list[Row]:
        """Return the rows of a statement with `{chunks}` and `{where}`, a filter's condition."""
        bound = dict(parameters or {})
        where = conditions.condition(filters, bound)
        statement = sql.SQL(template).format(chunks=self.chunks, where=where, **parts)
        return await self.run(Statement(statement.as_bytes(None)), bound)

    async def run(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        """Return the rows of a statement."""

        async def work(connection: Connection) -> list[Row]:
            async with conditions.in_scope(connection, self.role):
                return await (await connection.ask(statement, parameters)).fetchall()

        return await self.database.run(work)

    async def count(self, filters: Filter | None) -> int:
        """Return the number of chunks that pass."""
        [(count,)] = await self.rows("SELECT count(*) FROM {chunks} WHERE {where}", filters)
        return int(count)

    async def chunk_ids(self, after: str, limit: int, filters: Filter | None) -> list[str]:
        """Return the first ids above an id, ascending by code point, of the chunks that pass."""
        found = await self.rows(
            "SELECT c.chunk_id FROM {chunks} WHERE c.chunk_id > %(after)s::text AND {where}"
            " ORDER BY c.chunk_id LIMIT %(limit)s",
            filters,
            {"after": after, "limit": limit},
        )
        return [str(chunk_id) for (chunk_id,) in found]
