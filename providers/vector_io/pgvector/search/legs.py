"""The vector leg and the keyword leg of a query, read from one state of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import AsyncCursor, sql

from corral.api.hits import Candidate, KeywordLeg
from corral.providers.vector_io.pgvector import filters as conditions
from corral.providers.vector_io.pgvector.client import Connection, Row
from corral.providers.vector_io.pgvector.keyword import KeywordSearch
from corral.providers.vector_io.pgvector.records import TEXTS, Tables, chunk_of
from corral.providers.vector_io.pgvector.search.vectors import VectorSearch

_BROUGHT = """
SELECT found.row, found.number, {told}, c.chunk_id{texts}
FROM ({statement}) AS found(row, number, terms) JOIN {chunks} c USING (row)
"""
_BELOW = "(SELECT hnsw_below FROM {state})"
_TERMS = "found.terms"


@dataclass(frozen=True, slots=True)
class Legs:
    """Runs the statements of one query and tells what they find.

    Attributes:
        tables: The tables of the vector DB.
        vectors: Its vector search.
        role: As whom restricted principals read.
        whole: Whether to bring the chunks, too.
    """

    tables: Tables
    vectors: VectorSearch
    role: str | None
    whole: bool

    async def find(
        self,
        connection: Connection,
        vector: sql.Composable | None,
        search: KeywordSearch | None,
        parameters: Mapping[str, Any],
    ) -> tuple[list[Candidate], Sequence[Candidate]]:
        """Return what the vector leg and the keyword leg find, best first; none of a leg not asked.

        The server looks for the nearest while this process adds up postings.

        Args:
            connection: Idle.
            vector: The statement of `VectorSearch.search`.
            search: Of the keyword index.
            parameters: `k`, `candidates`, `embedding`, and those of the filter.
        """
        near, words = connection.cursor(binary=True), connection.cursor(binary=True)
        matching: list[Row] | None = None
        async with conditions.one_state(connection, self.role):
            if search is not None:
                await search.begin(connection, parameters)
            if vector is not None:
                await near.execute(self._brought(vector, _BELOW), parameters)
            if search is not None:
                matching = await self._ranked(connection, words, search, parameters)
        nearest = [] if vector is None else self._nearest(await near.fetchall())
        if search is None:
            return nearest[: parameters["k"]], KeywordLeg([], 0.0)
        found = await words.fetchall() if matching is None else matching
        return nearest[: parameters["k"]], self._matching(search, found)

    async def _ranked(
        self,
        connection: Connection,
        words: AsyncCursor[Row],
        search: KeywordSearch,
        parameters: Mapping[str, Any],
    ) -> list[Row] | None:
        """Send statements until one finds the best; return its rows.

        None where it does so whatever it finds: then nobody waits for it before COMMIT is sent.
        """
        while True:
            statement, more = await search.statement(connection, parameters)
            await words.execute(self._brought(statement, _TERMS), {**parameters, **more})
            if search.complete((), parameters["k"]):
                return None
            found = await words.fetchall()
            if search.complete([score for _, score, *_ in found], parameters["k"]):
                return found

    def _brought(self, statement: sql.Composable, told: LiteralString) -> sql.Composed:
        """Return a statement that brings (row, number, `told`, chunk_id, texts) of what one finds.

        Args:
            statement: It gives (row, number, terms).
            told: A further column.
        """
        texts = sql.SQL(f", {TEXTS}" if self.whole else "")
        return self.tables.sql(
            _BROUGHT, told=self.tables.sql(told), texts=texts, statement=statement
        )

    def _nearest(self, found: Iterable[Row]) -> list[Candidate]:
        """Return the vector leg; notice where the HNSW index ends, which other processes change."""
        near = []
        for _, distance, below, *chunk in found:
            self.vectors.hnsw.below = below
            near.append(self._candidate(self.vectors.raw_score(distance), chunk, ()))
        return _best_first(near)

    def _matching(self, search: KeywordSearch, found: Sequence[Row]) -> Sequence[Candidate]:
        """Return the keyword leg."""
        terms = search.terms([row for row, *_ in found], [told for _, _, told, *_ in found])
        words = _best_first(
            self._candidate(score, chunk, held)
            for (_, score, _, *chunk), held in zip(found, terms, strict=True)
        )
        return words if search.greatest is None else KeywordLeg(words, search.greatest)

    def _candidate(self, score: float, row: Sequence[Any], terms: tuple[str, ...]) -> Candidate:
        return Candidate(row[0], score, chunk_of((*row, None)) if self.whole else None, terms)


def _best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: (-c.raw_score, c.chunk_id))
