"""The two kinds of keyword search, `bm25` and `fulltext`: their interface and factory."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql

from corral.api.chunks import Chunk
from corral.api.hits import TermStatistics
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.pgvector.client import Connection, Statement
from corral.providers.vector_io.pgvector.records import Tables, chunk_of

_DROP_KEYWORDS = """
DROP TABLE IF EXISTS {postings}, {terms};
ALTER TABLE {chunks} DROP COLUMN IF EXISTS text_search;
"""


class KeywordSearch(ABC):
    """A search of the keyword index, in one statement unless a subclass needs more.

    Attributes:
        greatest: As in `KeywordLeg`; set when the search begins, None if unknown.
        kept: True if all its statements are prepared and their generic plans suit any values.
    """

    greatest: float | None = None
    kept: bool = False

    async def begin(self, connection: Connection, parameters: Mapping[str, Any]) -> None:
        """Read the values for the first statement; arguments as for `statement`."""

    @abstractmethod
    async def statement(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> tuple[Statement, dict[str, Any]]:
        """Return a statement that selects (row, score, terms, chunk_id) of the `k` best rows.

        If the last answer was incomplete, the next call returns a wider search.

        Args:
            connection: In the transaction that will run the statement.
            parameters: `k`, and the filter's parameters.
        """

    def terms(
        self, rows: Sequence[int], told: Sequence[Sequence[str] | None]
    ) -> list[tuple[str, ...]]:
        """Return the terms that each row contains.

        Args:
            rows: The rows of the last statement.
            told: The statement's `terms` column.
        """
        return [tuple(one or ()) for one in told]

    def complete(self, scores: Sequence[float], k: int) -> bool:
        """Return True if no row can be better than those of the last statement.

        Without scores, return True if no search can find another row.
        """
        return True


class KeywordIndex(ABC):
    """The keyword index of one vector DB. By default, PostgreSQL fills it from the chunks.

    Attributes:
        kind: The name of the stored form; an index of another kind is rebuilt.
        version: The analyzer's version; an index of another version is rebuilt.
    """

    kind: str
    version: int

    @abstractmethod
    async def create(self, connection: Connection) -> None:
        """Create the tables or columns, empty."""

    def analyze(self, chunk: Chunk) -> ChunkTerms:
        """Return the indexed form of a chunk. Needs no connection."""
        return ChunkTerms({}, 0)

    async def add(
        self, connection: Connection, rows: Sequence[int], entries: Sequence[ChunkTerms]
    ) -> None:
        """Index new rows, ascending and beyond those that are indexed."""

    async def remove(self, connection: Connection, rows: Sequence[int]) -> int:
        """Remove rows; return their length in terms."""
        return 0

    @abstractmethod
    def search(
        self, query: str, where: sql.Composable | None, by: TermStatistics | None = None
    ) -> KeywordSearch | None:
        """Return a search for the words of a text, joined by OR; None if the text has no term.

        Args:
            query: Any text.
            where: The filter, on a table `c` of chunks.
            by: The statistics to rank by; None for the vector DB's own.
        """


async def update_keywords(connection: Connection, tables: Tables, keyword: KeywordIndex) -> None:
    """Rebuild the keyword index if it has another kind or version, in a transaction."""
    stored = await connection.row(tables.sql("SELECT keyword, analyzer FROM {state}"))
    if stored == (keyword.kind, keyword.version):
        return
    await connection.take_time()
    # other writers wait for the lock
    await connection.execute(tables.sql("SELECT FROM {state} FOR UPDATE"))
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
        "SELECT row, content, metadata, chunk_metadata FROM {chunks} WHERE row > %s"
        " ORDER BY row LIMIT %s"
    )
    last, length = -1, 0
    limit = tables.tuning.reindex_rows
    while batch := await (await connection.execute(query, (last, limit))).fetchall():
        rows = [row for row, *_ in batch]
        chunks = [chunk_of(("", *texts, None)) for _, *texts in batch]
        entries = await asyncio.to_thread(list, map(keyword.analyze, chunks))
        await keyword.add(connection, rows, entries)
        last, length = rows[-1], length + sum(entry.length for entry in entries)
    return length
