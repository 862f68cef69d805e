"""BM25 in plain SQL: an inverted index in two tables, and the statement that scores with it.

`terms` has each term's number and the number of chunks that hold it; `postings` has, for a term and
`BLOCK` consecutive rows, three arrays: which of these rows hold the term, how often, and how long
they are. Scores are computed from these when a query comes, by the one definition of BM25
(`providers/ranking/bm25.py`), so they are exact after every write. RFC 0009 has the alternatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from psycopg import sql

from corral.api.chunks import Chunk
from corral.providers.ranking.bm25 import K1, B
from corral.providers.ranking.fields import ChunkTerms, chunk_terms
from corral.providers.ranking.text import ANALYZER_VERSION, analyzer
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.records import Tables

UNIT = 2.0**32
"""Each term's share of a score is a whole number of 1 / UNIT. Sums of whole numbers do not depend
on their order, so equal texts have equal scores under every plan of the server; 1e-10 is lost."""

FEW_ROWS = 1000
"""Where a filter lets no more rows pass, only these are scored."""

POSTINGS_AT_ONCE = 200_000
"""Postings in one statement; about 4 MB."""

_CREATE = """
CREATE TABLE {terms} (
    term text COLLATE "C" PRIMARY KEY,
    id int GENERATED ALWAYS AS IDENTITY,
    chunks bigint NOT NULL
);
CREATE TABLE {postings} (
    term int,
    block bigint,
    offsets smallint[] NOT NULL,
    frequencies real[] NOT NULL,
    lengths int[] NOT NULL,
    PRIMARY KEY (term, block)
);
"""

_SEARCH = """
WITH {passing} asked AS MATERIALIZED (
    SELECT t.id, t.term, {unit}::float8 * a.times * {k1}::float8
            * ln(1 + (({count}) - n.chunks + 0.5::float8) / (n.chunks + 0.5::float8)) AS weight
    FROM unnest(%(terms)s::text[], %(times)s::int[]) a(term, times)
    LEFT JOIN {terms} t USING (term)
    CROSS JOIN LATERAL (SELECT coalesce(t.chunks, 0) AS chunks) n  -- of a term that no chunk holds
), posted AS (
    SELECT weight, p.block * {block} + unnest(p.offsets) AS row,
        unnest(p.frequencies)::float8 AS f, unnest(p.lengths)::float8 AS length
    -- OFFSET 0: one look into the index a term, whatever the planner thinks of new tables.
    FROM asked CROSS JOIN LATERAL (SELECT * FROM {postings} WHERE term = asked.id OFFSET 0) p
), scored AS MATERIALIZED (
    SELECT row, sum(greatest(1, round(
        weight * f / (f + {flat}::float8 + {slope}::float8 * length / ({average}))))) AS score
    FROM posted WHERE {among} GROUP BY row
)
-- From the best on, look whether a row passes, until k do; OFFSET 0 keeps this order of things.
SELECT s.row, s.score / {unit}::float8 AS score,
    ARRAY(SELECT a.term FROM unnest(c.terms) t(id) JOIN asked a USING (id) ORDER BY 1) AS terms,
    (SELECT sum(weight) FROM asked) / {unit}::float8 AS greatest
FROM (SELECT * FROM scored ORDER BY score DESC) s CROSS JOIN LATERAL (
    SELECT c.chunk_id, c.terms FROM {chunks} c WHERE c.row = s.row AND {where} OFFSET 0) c
ORDER BY s.score DESC, c.chunk_id LIMIT %(k)s
"""

_FILTER = """
passing AS MATERIALIZED (SELECT c.row FROM {chunks} c WHERE {where} LIMIT {few} + 1),
few AS MATERIALIZED (SELECT count(*) <= {few} AS yes FROM passing),
"""


class Bm25:
    """The keyword index of one vector DB by Corral's analyzer and BM25.

    Args:
        tables: Its tables.
    """

    kind = "bm25"
    version = ANALYZER_VERSION

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        vector_db = tables.vector_db
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)

    async def create(self, connection: Connection) -> None:
        """Make the tables, empty."""
        await connection.execute(self._tables.sql(_CREATE))

    def analyze(self, chunk: Chunk) -> ChunkTerms:
        """Return what of a chunk is indexed. Needs no connection."""
        return chunk_terms(chunk, self._weights, self._analyzer)

    async def add(
        self, connection: Connection, rows: Sequence[int], entries: Sequence[ChunkTerms]
    ) -> list[list[int]]:
        """Index new rows; return each one's term numbers."""
        held = Counter(chain.from_iterable(entry.frequencies for entry in entries))
        ids = await self._count_terms(connection, held)
        postings = [
            (ids[term], row, frequency, entry.length)
            for row, entry in zip(rows, entries, strict=True)
            for term, frequency in entry.frequencies.items()
        ]
        for start in range(0, len(postings), POSTINGS_AT_ONCE):
            await self._post(connection, postings[start : start + POSTINGS_AT_ONCE])
        return [sorted(ids[term] for term in entry.frequencies) for entry in entries]

    async def remove(self, connection: Connection, rows: Sequence[tuple[int, list[int]]]) -> None:
        """Remove rows, given with their term numbers."""
        gone = Counter(chain.from_iterable(terms for _, terms in rows))
        if not gone:
            return
        await connection.execute(
            self._tables.sql(
                "UPDATE {terms} t SET chunks = t.chunks - g.n"
                " FROM unnest(%s::int[], %s::bigint[]) g(id, n) WHERE t.id = g.id"
            ),
            (list(gone), list(gone.values())),
        )
        await connection.execute(
            self._tables.sql("DELETE FROM {terms} WHERE chunks = 0 AND id = ANY (%s::int[])"),
            (list(gone),),
        )
        pairs = [(term, row) for row, terms in rows for term in terms]
        await connection.execute(
            self._tables.sql(
                "UPDATE {postings} p SET (offsets, frequencies, lengths) = ("
                "   SELECT coalesce(array_agg(u.o), '{{}}'), coalesce(array_agg(u.f), '{{}}'),"
                "     coalesce(array_agg(u.l), '{{}}')"
                "   FROM unnest(p.offsets, p.frequencies, p.lengths) u(o, f, l)"
                "   WHERE u.o <> ALL (g.offsets))"
                " FROM (SELECT term, row / {block} AS block,"
                "     array_agg((row %% {block})::smallint) AS offsets"
                "   FROM unnest(%s::int[], %s::bigint[]) g(term, row) GROUP BY 1, 2) g"
                " WHERE p.term = g.term AND p.block = g.block"
            ),
            (_array(term for term, _ in pairs), _array(row for _, row in pairs)),
        )
        await connection.execute(
            self._tables.sql(
                "DELETE FROM {postings} WHERE term = ANY (%s::int[]) AND offsets = '{{}}'"
            ),
            (list(gone),),
        )

    def search(
        self, query: str, where: sql.Composable | None
    ) -> tuple[sql.Composed, dict[str, Any]] | None:
        """Return the statement that searches; a term that is repeated counts as often."""
        wanted = Counter(self._analyzer.terms(query))
        if not wanted:
            return None
        passing: sql.Composable = sql.SQL("")
        among: sql.Composable = sql.SQL("true")
        if where is not None:
            few = sql.Literal(FEW_ROWS)
            passing = self._tables.sql(_FILTER, where=where, few=few)
            among = sql.SQL("(NOT (SELECT yes FROM few) OR row IN (SELECT row FROM passing))")
        statement = self._tables.sql(
            _SEARCH,
            passing=passing,
            among=among,
            where=where or sql.SQL("true"),
            unit=sql.Literal(UNIT),
            k1=sql.Literal(K1 + 1.0),
            flat=sql.Literal(K1 * (1.0 - B)),
            slope=sql.Literal(K1 * B),
            count=self._tables.sql("SELECT count FROM {state}"),
            average=self._tables.sql("SELECT length::float8 / count FROM {state}"),
        )
        return statement, {"terms": list(wanted), "times": list(wanted.values())}

    async def _count_terms(self, connection: Connection, held: Counter[str]) -> dict[str, int]:
        """Count new chunks to their terms; return the terms' numbers. New terms get new ones."""
        if not held:
            return {}
        found = await connection.execute(
            self._tables.sql(
                "UPDATE {terms} t SET chunks = t.chunks + a.n"
                " FROM unnest(string_to_array(%s, ' '), %s::bigint[]) a(term, n)"
                " WHERE t.term = a.term RETURNING t.term, t.id"
            ),
            (" ".join(held), _array(held.values())),
        )
        ids: dict[str, int] = dict(_pairs(await found.fetchall()))
        new = [term for term in held if term not in ids]
        if not new:
            return ids
        made = await connection.execute(
            self._tables.sql(
                "INSERT INTO {terms} (term, chunks)"
                " SELECT * FROM unnest(string_to_array(%s, ' '), %s::bigint[]) RETURNING term, id"
            ),
            (" ".join(new), _array(held[term] for term in new)),
        )
        return {**ids, **dict(_pairs(await made.fetchall()))}

    async def _post(
        self, connection: Connection, postings: Sequence[tuple[int, int, float, int]]
    ) -> None:
        """Append postings (term, row, frequency, length) to the arrays of their blocks."""
        await connection.execute(
            self._tables.sql(
                "INSERT INTO {postings} AS p (term, block, offsets, frequencies, lengths)"
                " SELECT term, row / {block}, array_agg((row %% {block})::smallint),"
                "   array_agg(f::real), array_agg(length)"
                " FROM unnest(%s::int[], %s::bigint[], %s::float8[], %s::int[])"
                "   n(term, row, f, length) GROUP BY 1, 2"
                " ON CONFLICT (term, block) DO UPDATE SET offsets = p.offsets || excluded.offsets,"
                "   frequencies = p.frequencies || excluded.frequencies,"
                "   lengths = p.lengths || excluded.lengths"
            ),
            [_array(column) for column in zip(*postings, strict=True)],
        )


def _pairs(rows: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, int]]:
    return ((str(term), int(number)) for term, number in rows)


def _array(numbers: Iterable[float]) -> str:
    """Return PostgreSQL's notation of an array, ten times faster than the driver does."""
    return f"{{{','.join(map(repr, numbers))}}}"
