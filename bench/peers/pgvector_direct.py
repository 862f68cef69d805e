"""PostgreSQL with pgvector, as in tutorials: HNSW, `ts_rank_cd`, RRF in one statement.

    pip install 'psycopg[binary]' pgvector            --peers pgvector-direct=DSN

Words are joined by OR, because the usual AND finds almost nothing for a question. Other settings
are defaults, including `hnsw.ef_search` 40, except that filters use iterative scans, without which
a narrow filter finds nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import BlockingSystem, Collection, Ranked, Search

_VECTOR = """
    SELECT id, 1 - (embedding <=> %(vector)s) / 2, content FROM {table} WHERE {where}
    ORDER BY embedding <=> %(vector)s LIMIT %(k)s"""
_KEYWORD = """
    SELECT id, ts_rank_cd(words, query) AS score, content
    FROM {table}, to_tsquery(%(language)s, %(text)s) query
    WHERE words @@ query AND {where} ORDER BY score DESC, id LIMIT %(k)s"""
_HYBRID = """
    WITH near AS (
        SELECT id, row_number() OVER (ORDER BY embedding <=> %(vector)s) AS rank
        FROM {table} WHERE {where} ORDER BY embedding <=> %(vector)s LIMIT %(leg)s
    ), worded AS (
        SELECT id, row_number() OVER (ORDER BY ts_rank_cd(words, query) DESC, id) AS rank
        FROM {table}, to_tsquery(%(language)s, %(text)s) query
        WHERE words @@ query AND {where} ORDER BY rank LIMIT %(leg)s
    )
    SELECT id, coalesce(1.0 / (60 + near.rank), 0) + coalesce(1.0 / (60 + worded.rank), 0) AS score,
        content
    FROM near FULL JOIN worded USING (id) JOIN {table} USING (id)
    ORDER BY score DESC, id LIMIT %(k)s"""
_STATEMENTS = {
    SearchMode.VECTOR: _VECTOR,
    SearchMode.KEYWORD: _KEYWORD,
    SearchMode.HYBRID: _HYBRID,
}


class PgvectorDirect(BlockingSystem):
    """A separate table, dropped at the end; one connection per thread."""

    filters = True
    requires = ("psycopg", "pgvector")
    engine_of = ("remote::pgvector",)
    service = True

    async def prepare(self, collection: Collection) -> None:
        """Create an empty table."""
        self._table = f"bench_{uuid4().hex[:12]}"
        self._language = collection.language
        self._mine = threading.local()
        self._open: list[Any] = []
        self._run(
            f"CREATE TABLE {self._table} (id text PRIMARY KEY, share bigint, content text,"
            f" embedding vector({collection.dimension}),"
            " words tsvector GENERATED ALWAYS AS"
            f" (to_tsvector('{self._language}', content)) STORED)"
        )

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Copy rows in one transaction."""
        with self._connection().cursor() as cursor:
            copied = f"COPY {self._table} (id, share, content, embedding) FROM STDIN BINARY"
            with cursor.copy(copied) as copy:
                copy.set_types(["text", "int8", "text", "vector"])
                for chunk, row in zip(chunks, embeddings, strict=True):
                    share = chunk.metadata.get("share", 0)
                    copy.write_row((chunk.chunk_id, share, chunk.content, row))

    async def build(self) -> None:
        """Build the indexes and gather statistics."""
        self._run(f"CREATE INDEX ON {self._table} USING hnsw (embedding vector_cosine_ops)")
        self._run(f"CREATE INDEX ON {self._table} USING gin (words)")
        self._run(f"ANALYZE {self._table}")

    def find(self, asked: Search) -> Ranked:
        """Run the statement of the mode."""
        where = "true" if asked.below is None else "share < %(below)s"
        parameters = {
            "vector": asked.embedding,
            "text": " | ".join(re.findall(r"\w+", asked.text)),
            "language": self._language,
            "k": asked.k,
            "leg": max(2 * asked.k, 40),
            "below": asked.below,
        }
        statement = _STATEMENTS[asked.mode].format(table=self._table, where=where)
        found = self._connection().execute(statement, parameters)
        return [(one, float(score)) for one, score, _ in found]

    async def close(self) -> None:
        """Drop the table and close all connections."""
        if hasattr(self, "_mine"):
            self._run(f"DROP TABLE IF EXISTS {self._table}")
            for connection in self._open:
                connection.close()

    def _run(self, statement: str) -> None:
        self._connection().execute(statement)

    def _connection(self) -> Any:
        """Return this thread's connection."""
        if not hasattr(self._mine, "connection"):
            import psycopg
            from pgvector.psycopg import register_vector

            connection = psycopg.connect(self.address or "", autocommit=True)
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("SET hnsw.iterative_scan = relaxed_order")
            register_vector(connection)
            self._mine.connection = connection
            self._open.append(connection)
        return self._mine.connection


PEER = PgvectorDirect
