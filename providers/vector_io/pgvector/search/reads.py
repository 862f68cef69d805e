"""Reads of chunks without a search: by id, or by a filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import sql

from corral.api.document_names import title_of
from corral.api.documents import (
    DocumentOrder,
    DocumentPage,
    DocumentQuery,
    DocumentSummary,
    page_of,
)
from corral.api.filters import Filter
from corral.providers.vector_io.pgvector import filters as conditions
from corral.providers.vector_io.pgvector.client import Connection, Database, Row, Statement
from corral.providers.vector_io.pgvector.records import chunk_of

_ORDERS: dict[DocumentOrder, LiteralString] = {
    DocumentOrder.SIZE: "size",
    DocumentOrder.CHUNKS: "chunks",
    DocumentOrder.UPDATED: "updated_at",
}
# A long text is measured without being read; a document has the name of its first chunk.
_DOCUMENTS = """
SELECT c.document_id, count(*) AS chunks, sum(octet_length(c.content))::bigint AS size,
    max((c.chunk_metadata ->> 'updated_timestamp')::bigint) AS updated_at, min(c.chunk_id),
    (array_agg(c.metadata ORDER BY c.chunk_id))[1],
    (array_agg(c.chunk_metadata ORDER BY c.chunk_id))[1], count(*) OVER ()
FROM {chunks} WHERE c.document_id > '' AND {where} GROUP BY c.document_id
"""
_COUNT = """
SELECT count(DISTINCT c.document_id) FROM {chunks} WHERE c.document_id > '' AND {where}
"""


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

    async def document_page(self, query: DocumentQuery, filters: Filter | None) -> DocumentPage:
        """Return a page of the documents with chunks that pass.

        PostgreSQL groups all rows for each page. Names follow rules of Corral, so that all groups
        are read to sort or to find by name.
        """
        by_name = query.order_by is DocumentOrder.NAME or bool(query.contains)
        column, way = _ORDERS.get(query.order_by, "document_id"), ""
        nulls = "NULLS FIRST"
        if query.descending:
            way, nulls = "DESC", "NULLS LAST"
        rows = await self.rows(
            _DOCUMENTS
            if by_name
            else f"{_DOCUMENTS} ORDER BY {column} {way} {nulls},"
            f' document_id COLLATE "C" {way} LIMIT %(limit)s OFFSET %(offset)s',
            filters,
            {"limit": query.limit, "offset": query.offset},
        )
        documents = [_document(row) for row in rows]
        if by_name:
            return page_of(documents, query)
        total = rows[0][-1] if rows else 0
        if not rows and query.offset:  # past the end
            [(total,)] = await self.rows(_COUNT, filters)
        return DocumentPage(documents, total)


def _document(row: Row) -> DocumentSummary:
    document_id, chunks, size, updated_at, chunk_id, metadata, recorded, _ = row
    first = chunk_of((chunk_id, "", metadata, recorded, None))
    return DocumentSummary(document_id, title_of(first), chunks, size, updated_at)
