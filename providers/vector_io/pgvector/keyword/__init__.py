"""The two ways of keyword search, `bm25` and `fulltext`: what both offer, and how one is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from psycopg import sql

from corral.api.chunks import Chunk
from corral.providers.ranking.fields import ChunkTerms
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.records import Tables

REINDEX_BATCH = 1000

_DROP_KEYWORDS = """
DROP INDEX IF EXISTS {schema}.{hnsw};
DROP TABLE IF EXISTS {postings}, {terms};
ALTER TABLE {chunks} DROP COLUMN IF EXISTS text_search;
"""


class KeywordIndex(Protocol):
    """The keyword index of one vector DB.

    Attributes:
        kind: Names what is stored; another kind makes the index anew.
        version: Of the analyzer; another version makes the index anew.
    """

    kind: str
    version: int

    async def create(self, connection: Connection) -> None:
        """Make the tables or columns, empty."""

    def analyze(self, chunk: Chunk) -> ChunkTerms:
        """Return what of a chunk is indexed. Needs no connection."""

    async def add(
        self, connection: Connection, rows: Sequence[int], entries: Sequence[ChunkTerms]
    ) -> list[list[int]]:
        """Index new rows; return each one's term numbers."""

    async def remove(self, connection: Connection, rows: Sequence[tuple[int, list[int]]]) -> None:
        """Remove rows, given with their term numbers."""

    def search(
        self, query: str, where: sql.Composable | None
    ) -> tuple[sql.Composed, dict[str, Any]] | None:
        """Return the statement that gives (row, score, terms, greatest) of the `k` best.

        `greatest` is as `KeywordLeg` says, or null in every row.

        Args:
            query: Any text; its words are joined by OR.
            where: The filter, on a table `c` of chunks.

        Returns:
            The statement and its parameters beside `k`; None where the query has no term.
        """


async def update_keywords(connection: Connection, tables: Tables, keyword: KeywordIndex) -> None:
    """Make the keyword index anew if another kind or version is there, in a transaction."""
    cursor = await connection.execute(tables.sql("SELECT keyword, analyzer FROM {state}"))
    [(kind, analyzer)] = await cursor.fetchall()
    if (kind, analyzer) == (keyword.kind, keyword.version):
        return
    await connection.take_time()
    await connection.execute(tables.sql("SELECT FROM {state} FOR UPDATE"))  # writers wait
    # Without the index on embeddings, which would grow by every row that is written anew.
    await connection.execute(tables.sql(_DROP_KEYWORDS))
    await keyword.create(connection)
    length = await _reindex(connection, tables, keyword)
    await connection.execute(
        tables.sql("UPDATE {state} SET keyword = %s, analyzer = %s, length = %s"),
        (keyword.kind, keyword.version, length),
    )


async def _reindex(connection: Connection, tables: Tables, keyword: KeywordIndex) -> int:
    """Index the stored texts; return their length in terms."""
    query = tables.sql(
        "SELECT row, content, metadata FROM {chunks} WHERE row > %s ORDER BY row LIMIT %s"
    )
    update = tables.sql("UPDATE {chunks} SET terms = %s::int[], length = %s WHERE row = %s")
    last, length = -1, 0
    while batch := await (await connection.execute(query, (last, REINDEX_BATCH))).fetchall():
        rows = [row for row, _, _ in batch]
        chunks = [Chunk.model_construct(content=text, metadata=meta) for _, text, meta in batch]
        entries = await asyncio.to_thread(list, map(keyword.analyze, chunks))
        terms = await keyword.add(connection, rows, entries)
        async with connection.cursor() as cursor:
            lengths = [entry.length for entry in entries]
            await cursor.executemany(update, list(zip(terms, lengths, rows, strict=True)))
        last, length = rows[-1], length + sum(lengths)
    return length
