"""What the two ways of keyword search have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from psycopg import sql

from corral.api.chunks import Chunk
from corral.providers.ranking.fields import ChunkTerms
from corral.providers.vector_io.pgvector.pool import Connection


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
        """Return the statement that gives (row, score, terms) of the `k` best, best first.

        Args:
            query: Any text; its words are joined by OR.
            where: The filter, on a table `c` of chunks.

        Returns:
            The statement and its parameters beside `k`; None where the query has no term.
        """
