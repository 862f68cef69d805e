"""The vector leg and the keyword leg of a query, read from one snapshot of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import AsyncCursor, sql

from corral.api.hits import Candidate, KeywordLeg
from corral.providers.vector_io.kit.candidates import best_of
from corral.providers.vector_io.pgvector import filters as conditions
from corral.providers.vector_io.pgvector.client import (
    BY_INDEX,
    KEPT_PLANS,
    Connection,
    Row,
    Statement,
)
from corral.providers.vector_io.pgvector.keyword import KeywordSearch
from corral.providers.vector_io.pgvector.records import TEXTS, Tables, chunk_of
from corral.providers.vector_io.pgvector.search.vectors import VectorSearch

_BROUGHT = """
SELECT found.*, {texts}
FROM {statement} AS found(row, number, told, chunk_id) JOIN {chunks} c USING (row)
"""
_STATEMENT = "(statement)"


@dataclass(frozen=True, slots=True)
class Legs:
    """Runs the statements of one query.

    Attributes:
        tables: The tables of the vector DB.
        vectors: The vector search of the vector DB.
        role: The database role that restricted principals read as.
        whole: True to return the chunks too.
    """

    tables: Tables
    vectors: VectorSearch
    role: str | None
    whole: bool

    async def find(
        self,
        connection: Connection,
        vector: Statement | None,
        search: KeywordSearch | None,
        parameters: Mapping[str, Any],
    ) -> tuple[list[Candidate], Sequence[Candidate]] | None:
        """Return the hits of the vector leg and of the keyword leg, best first.

        The server searches vectors while this process adds up postings.

        Args:
            connection: Idle.
            vector: A search from `VectorSearch.searches`; the leg is None if it does not suffice.
            search: A search of the keyword index, not yet begun.
            parameters: `k`, `candidates`, `embedding`, and the filter's parameters.
        """
        near: AsyncCursor[Row] | None = None
        words: AsyncCursor[Row] | Sequence[Row] = ()
        settings = _settings(vector, search)
        async with conditions.one_state(connection, self.role, settings):
            if search is not None:
                await search.begin(connection, parameters)
            if vector is not None:
                near = await connection.ask(self._brought(vector), parameters)
            if search is not None:
                words = await self._ranked(connection, search, parameters)
        nearest: list[Candidate] = []
        if near is not None and vector is not None:
            rows = await near.fetchall()
            if not self.vectors.suffices(vector, rows, parameters["candidates"]):
                return None
            pairs = [(self.vectors.raw_score(row[1]), row[3:]) for row in rows]
            candidates = [self._candidate(score, chunk, ()) for score, chunk in pairs]
            nearest = best_of(candidates, parameters["k"])
        if search is None:
            return nearest, KeywordLeg([], 0.0)
        found = await words.fetchall() if isinstance(words, AsyncCursor) else words
        return nearest, self._matching(search, found)

    async def _ranked(
        self, connection: Connection, search: KeywordSearch, parameters: Mapping[str, Any]
    ) -> AsyncCursor[Row] | Sequence[Row]:
        """Send statements until one finds the best rows; return these.

        Return the cursor instead if any result is final, so that COMMIT is sent without waiting.
        """
        while True:
            statement, more = await search.statement(connection, parameters)
            words = await connection.ask(self._brought(statement), {**parameters, **more})
            if search.complete((), parameters["k"]):
                return words
            found = await words.fetchall()
            if search.complete([score for _, score, *_ in found], parameters["k"]):
                return found

    def _brought(self, statement: Statement) -> Statement:
        """Extend a statement to select the texts too, if `whole` is set.

        Args:
            statement: Selects (row, number, told, chunk_id).
        """
        if not self.whole:
            return statement
        parts = {"texts": sql.SQL(TEXTS), "statement": sql.SQL(_STATEMENT)}
        brought = self.tables.kept("brought", lambda: self.tables.sql(_BROUGHT, **parts)).text
        return Statement(
            brought.replace(_STATEMENT.encode(), b"(" + statement.text + b")"), statement.kept
        )

    def _matching(self, search: KeywordSearch, found: Sequence[Row]) -> Sequence[Candidate]:
        """Return the keyword leg."""
        terms = search.terms([row for row, *_ in found], [told for _, _, told, *_ in found])
        pairs = zip(found, terms, strict=True)
        candidates = [self._candidate(row[1], row[3:], held) for row, held in pairs]
        words = best_of(candidates, len(candidates))
        return words if search.greatest is None else KeywordLeg(words, search.greatest)

    def _candidate(self, score: float, row: Sequence[Any], terms: tuple[str, ...]) -> Candidate:
        return Candidate(row[0], score, chunk_of((*row, None)) if self.whole else None, terms)


def _settings(vector: Statement | None, search: KeywordSearch | None) -> Iterator[LiteralString]:
    """Yield the settings of the transaction for these statements."""
    if (vector is None or vector.kept) and (search is None or search.kept):
        yield KEPT_PLANS
    if vector is not None and vector.kept:
        yield BY_INDEX
