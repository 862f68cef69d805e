"""BM25 without an extension: an inverted index in two tables, exact after every write.

`postings` has the postings of each term (`postings.py`), `terms` has the terms of each row, for
removing it and for looking up its score. A term is stored as its key, a hash (`term_key`).
`maxscore.py` searches both tables. RFC 0010 has the alternatives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.hits import TermStatistics
from corral.providers.text.analyzer import ANALYZER_VERSION, analyzer
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.copy_format import array
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.keyword import KeywordIndex
from corral.providers.vector_io.pgvector.keyword.maxscore import Bm25Search
from corral.providers.vector_io.pgvector.keyword.postings import Inverted, entries_of, read_pieces
from corral.providers.vector_io.pgvector.keyword.scores import keep_memory
from corral.providers.vector_io.pgvector.records import Tables

# A page fits the postings of a term in a whole block; they are not compressed.
_CREATE = """
CREATE TABLE {terms} (
    row bigint PRIMARY KEY,
    length int NOT NULL,
    keys bigint[] NOT NULL,
    frequencies real[] NOT NULL
);
CREATE TABLE {postings} (
    block bigint,
    key bigint,
    data bytea NOT NULL,
    PRIMARY KEY (block, key)
) WITH (toast_tuple_target = 8160);
ALTER TABLE {postings} ALTER COLUMN data SET STORAGE EXTERNAL;
UPDATE {state} SET segments = '{{}}', fresh = 0;
"""

_APPEND = """
INSERT INTO {postings} AS p (block, key, data)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])
ON CONFLICT (block, key) DO UPDATE SET data = p.data || excluded.data
"""

_MERGE = """
WITH gone AS (DELETE FROM {postings} WHERE block >= %(first)s AND block < %(end)s RETURNING *)
INSERT INTO {postings} SELECT %(first)s, key, string_agg(data, '' ORDER BY block)
FROM gone GROUP BY key ORDER BY key
"""

_FORGET = """
DELETE FROM {terms} WHERE row = ANY (%s::bigint[]) RETURNING row, length, keys
"""

_HOLDING = """
SELECT p.block, p.key, p.data FROM unnest(%s::bigint[], %s::bigint[]) asked(block, key)
CROSS JOIN LATERAL (
    SELECT * FROM {postings} p WHERE p.block = asked.block AND p.key = asked.key OFFSET 0) p
"""

_REPLACE = """
UPDATE {postings} p SET data = n.data
FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) n(block, key, data)
WHERE p.block = n.block AND p.key = n.key
"""

_CLEAR = """
DELETE FROM {postings} p USING unnest(%s::bigint[], %s::bigint[]) n(block, key)
WHERE p.block = n.block AND p.key = n.key AND p.data = ''
"""


class Bm25(KeywordIndex):
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
        keep_memory()

    @override
    async def create(self, connection: Connection) -> None:
        await connection.execute(self._tables.sql(_CREATE))

    @override
    def analyze(self, chunk: Chunk) -> ChunkTerms:
        return chunk_terms(chunk, self._weights, self._analyzer)

    @override
    async def add(
        self, connection: Connection, rows: Sequence[int], entries: Sequence[ChunkTerms]
    ) -> None:
        held = entries_of(entries)
        copy = self._tables.sql("COPY {terms} FROM STDIN (FORMAT binary)")
        await connection.copy_rows(copy, held.forward(rows))
        segments, fresh = await self._segments(connection)
        block_rows = self._tables.tuning.block_rows
        blocks = sorted({row // block_rows for row in rows})
        inverted = held.inverted(rows, block_rows)
        if blocks[0] not in segments[-1:]:  # these blocks are new
            copy = self._tables.sql("COPY {postings} FROM STDIN (FORMAT binary)")
            await connection.copy_rows(copy, [inverted.copied()])
        else:
            await self._append(connection, inverted)
            blocks = blocks[1:]
        if blocks:
            await self._extend(connection, [*segments, *blocks], fresh + len(blocks))

    @override
    async def remove(self, connection: Connection, rows: Sequence[int]) -> int:
        cursor = await connection.execute(self._tables.sql(_FORGET), (array(rows),))
        gone = await cursor.fetchall()
        segments, _ = await self._segments(connection)
        held: dict[int, set[int]] = {}
        for row, _, keys in gone:
            block = row // self._tables.tuning.block_rows
            first = segments[bisect_right(segments, block) - 1] if keys else 0
            held.setdefault(first, set()).update(keys)
        pieces = [(block, key) for block, keys in sorted(held.items()) for key in sorted(keys)]
        numbers = np.array([row for row, *_ in gone], np.int64)
        size = self._tables.tuning.statement_pieces
        for start in range(0, len(pieces), size):
            await self._take_out(connection, pieces[start : start + size], numbers)
        return sum(length for _, length, _ in gone)

    @override
    def search(
        self, query: str, where: sql.Composable | None, by: TermStatistics | None = None
    ) -> Bm25Search | None:
        terms = self._analyzer.query(query)
        return Bm25Search(self._tables, terms, where, by) if terms.times else None

    async def _append(self, connection: Connection, inverted: Inverted) -> None:
        """Append postings to the existing pieces."""
        pieces = iter(inverted.pieces())
        while some := list(islice(pieces, self._tables.tuning.statement_pieces)):
            blocks, keys, data = zip(*some, strict=True)
            await connection.execute(
                self._tables.sql(_APPEND), (array(blocks), array(keys), list(data))
            )

    async def _segments(self, connection: Connection) -> tuple[list[int], int]:
        """Return the first blocks of the segments, and the number of final single-block ones."""
        segments, fresh = await connection.row(
            self._tables.sql("SELECT segments, fresh FROM {state}")
        )
        return segments, fresh

    async def _extend(self, connection: Connection, segments: list[int], fresh: int) -> None:
        """Record new segments; merge single-block segments, except the last, if there are many."""
        if fresh > self._tables.tuning.max_blocks:
            segments = await self._merge(connection, segments, len(segments) - fresh)
            fresh = 1
            if len(segments) > self._tables.tuning.max_merged + 1:
                segments = await self._merge(connection, segments, 0)
        await connection.execute(
            self._tables.sql("UPDATE {state} SET segments = %s::bigint[], fresh = %s"),
            (array(segments), fresh),
        )

    async def _merge(self, connection: Connection, segments: list[int], start: int) -> list[int]:
        """Merge the segments from an index on, except the last; return the new segments."""
        ends = {"first": segments[start], "end": segments[-1]}
        await connection.execute("SET LOCAL work_mem = '64MB'")
        await connection.execute(self._tables.sql(_MERGE), ends)
        return [*segments[: start + 1], segments[-1]]

    async def _take_out(
        self,
        connection: Connection,
        pieces: Sequence[tuple[int, int]],
        rows: NDArray[np.int64],
    ) -> None:
        """Rewrite pieces (block, key) without the postings of the removed rows."""
        blocks, keys = zip(*pieces, strict=True)
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._tables.sql(_HOLDING), (array(blocks), array(keys)))
            found = await cursor.fetchall()
        read = read_pieces(
            [block for block, *_ in found],
            [data for *_, data in found],
            self._tables.tuning.block_rows,
        )
        places = array(block for block, *_ in found), array(key for _, key, _ in found)
        await connection.execute(self._tables.sql(_REPLACE), (*places, read.without(rows)))
        await connection.execute(self._tables.sql(_CLEAR), places)
