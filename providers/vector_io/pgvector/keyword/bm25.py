"""BM25 without an extension: an inverted index in two tables, exact after every write.

`postings` has the postings of each term (`postings.py`), `terms` has each row's terms, with which a
row is removed, and looked up by a search. A term is stored as its key, a hash (`term_key`).
`maxscore.py` searches them. RFCs 0009 and 0021 have the alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from psycopg import sql

from corral.api.chunks import Chunk
from corral.providers.ranking.fields import ChunkTerms, chunk_terms
from corral.providers.ranking.text import ANALYZER_VERSION, analyzer
from corral.providers.vector_io.pgvector import records
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.copying import array, copy_rows
from corral.providers.vector_io.pgvector.keyword.maxscore import Bm25Search
from corral.providers.vector_io.pgvector.keyword.postings import POSTING, Inverted, entries_of
from corral.providers.vector_io.pgvector.records import Tables

POSTINGS_AT_ONCE = 20_000
"""Pieces of postings in one statement that appends them."""

# A page holds the postings of a term in a whole block; none are compressed.
_CREATE = """
CREATE TABLE {terms} (
    row bigint PRIMARY KEY,
    length int NOT NULL,
    keys bigint[] NOT NULL,
    frequencies real[] NOT NULL
);
CREATE TABLE {postings} (
    key bigint,
    block bigint,
    data bytea NOT NULL,
    PRIMARY KEY (key, block)
) WITH (toast_tuple_target = 8160);
ALTER TABLE {postings} ALTER COLUMN data SET STORAGE EXTERNAL;
"""

_APPEND = """
INSERT INTO {postings} AS p (key, block, data)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])
ON CONFLICT (key, block) DO UPDATE SET data = p.data || excluded.data
"""

_FORGET = """
DELETE FROM {terms} WHERE row = ANY (%s::bigint[]) RETURNING row, length, keys
"""

_TAKE_OUT = """
UPDATE {postings} p SET data = (
    SELECT coalesce(string_agg(substr(p.data, at + 1, {size}), '' ORDER BY at), '')
    FROM generate_series(0, octet_length(p.data) - 1, {size}) at
    WHERE get_byte(p.data, at) + 256 * get_byte(p.data, at + 1) <> ALL (g.offsets))
FROM (SELECT key, row / {block} AS block, array_agg((row %% {block})::int) AS offsets
    FROM unnest(%s::bigint[], %s::bigint[]) g(key, row) GROUP BY 1, 2) g
WHERE p.key = g.key AND p.block = g.block
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
    ) -> None:
        """Index new rows, ascending and beyond those that are indexed."""
        held = entries_of(entries)
        copy = self._tables.sql("COPY {terms} FROM STDIN (FORMAT binary)")
        await copy_rows(connection, copy, held.forward(rows))
        inverted = held.inverted(rows)
        if rows[0] % records.BLOCK == 0:  # nobody has written to their blocks before
            copy = self._tables.sql("COPY {postings} FROM STDIN (FORMAT binary)")
            await copy_rows(connection, copy, [inverted.copied()])
        else:
            await self._append(connection, inverted)

    async def remove(self, connection: Connection, rows: Sequence[int]) -> int:
        """Remove rows; return their length in terms."""
        cursor = await connection.execute(self._tables.sql(_FORGET), (list(rows),))
        gone = await cursor.fetchall()
        pairs = [(key, row) for row, _, keys in gone for key in keys]
        if pairs:
            size = sql.Literal(POSTING.itemsize)
            keys, held = [key for key, _ in pairs], [row for _, row in pairs]
            await connection.execute(
                self._tables.sql(_TAKE_OUT, size=size), (array(keys), array(held))
            )
            await connection.execute(
                self._tables.sql(
                    "DELETE FROM {postings} WHERE key = ANY (%s::bigint[]) AND data = ''"
                ),
                (array(set(keys)),),
            )
        return sum(length for _, length, _ in gone)

    def search(self, query: str, where: sql.Composable | None) -> Bm25Search | None:
        """Return the search; a term that is repeated counts as often."""
        wanted = self._analyzer.terms(query)
        return Bm25Search(self._tables, wanted, where) if wanted else None

    async def _append(self, connection: Connection, inverted: Inverted) -> None:
        """Append postings to the pieces that are there."""
        pieces = iter(inverted.pieces())
        while some := list(islice(pieces, POSTINGS_AT_ONCE)):
            keys, blocks, data = zip(*some, strict=True)
            await connection.execute(
                self._tables.sql(_APPEND), (array(keys), array(blocks), list(data))
            )
