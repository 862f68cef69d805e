"""A vector DB over an existing table, which is only read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import ConfigError, InvalidRequest
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.candidates import best_of
from corral.providers.vector_io.pgvector.client import Connection, Database, Row, check_database
from corral.providers.vector_io.pgvector.config import Attachment
from corral.providers.vector_io.pgvector.keyword.fulltext import (
    MOST_CHARACTERS,
    asked,
    configuration,
    words_of,
)
from corral.providers.vector_io.pgvector.records import TEXTS, chunk_of
from corral.providers.vector_io.pgvector.search.reads import Reads
from corral.providers.vector_io.pgvector.search.vectors import MARGIN, METRICS, ties

# The table in the form of Corral's own tables: filters need every metadata value as a list. Arrays
# and scalars are not valid metadata; neither is json with U+0000, which jsonb cannot store.
_CHUNKS = """
(SELECT {id}::text COLLATE "C" AS chunk_id, {content}::text AS content, {embedding} AS embedding,
    coalesce({object}, '{{}}')::json AS metadata, NULL::json AS chunk_metadata, {words} AS words, (
        SELECT coalesce(jsonb_object_agg(key, CASE jsonb_typeof(value) WHEN 'array' THEN value
            ELSE jsonb_build_array(value) END), '{{}}')
        FROM jsonb_each(({object})::jsonb)) AS attributes
FROM {table} WHERE {content} IS NOT NULL) c
"""
_OBJECT = sql.SQL(
    "CASE WHEN json_typeof({metadata}::json) = 'object'"
    " AND strpos({metadata}::text, '\\u0000') = 0 THEN {metadata} END"
)

_NEAREST = """
SELECT * FROM (
    SELECT c.embedding {operator} {query} AS distance, NULL::text[],
        c.chunk_id, {texts}
    FROM {chunks} WHERE c.embedding IS NOT NULL AND {where}
    ORDER BY (c.embedding {operator} {query}) {more} LIMIT %(candidates)s) near
WHERE distance <> 'NaN'
"""

# No index can order by a sum, so all rows are compared.
_BY_ID = sql.SQL("+ 0, c.chunk_id")

_MATCHING = """
WITH {asked}
SELECT ts_rank_cd(c.words, a.wanted)::float8 AS score, ARRAY(SELECT t.lexeme FROM unnest(c.words) t
    WHERE t.lexeme = ANY (a.lexemes)), c.chunk_id, {texts}
FROM asked a JOIN {chunks} ON c.words @@ a.query WHERE {where}
ORDER BY score DESC, c.chunk_id LIMIT %(k)s
"""

_TYPES = """
SELECT attname::text, typname::text, atttypmod FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


class AttachedEngine(Engine):
    """Searches the rows of an existing table. Keyword search is PostgreSQL's full text search.

    Vector search is exact unless the table has an index on its embeddings.

    Args:
        vector_db: The registration; its dimension and metric must match the table.
        database: The provider's connections.
        attachment: The table and its columns.
    """

    def __init__(self, vector_db: VectorDB, database: Database, attachment: Attachment) -> None:
        super().__init__(vector_db)
        self._database = database
        self._attachment = attachment
        self._table = sql.Identifier(attachment.schema_name, attachment.table)
        # Unit vectors are not guaranteed here, so the cosine must be computed.
        metric = Metric.COSINE if vector_db.normalize else vector_db.metric
        self._operator = METRICS[metric]
        self._embedding_type: LiteralString = "vector"
        self._language = "simple"
        self._reads = Reads(database, sql.SQL(""))  # until `prepare` has inspected the table
        self._closed = False
        database.client.enter()

    async def prepare(self, *, create: bool) -> None:
        """Inspect the table.

        Raises:
            ConfigError: The table, a column or the text search configuration is missing.
            InvalidRequest: The table's embeddings have another dimension.
        """

        async def work(connection: Connection) -> list[Row]:
            await check_database(connection)
            named = self._database.config.text_search_configuration
            self._language = await configuration(connection, named, self.vector_db.language)
            return await (
                await connection.execute(_TYPES, (self._table.as_string(connection),))
            ).fetchall()

        columns = {name: (kind, size) for name, kind, size in await self._database.run(work)}
        name = f"{self._attachment.schema_name}.{self._attachment.table}"
        for column in self._attachment.roles.values():
            if column not in columns:
                found = ", ".join(columns) or "no table of this name, or none that may be seen"
                raise ConfigError(f"{name} has no column {column!r}.", hint=f"Found: {found}.")
        kind, size = columns[self._attachment.embedding_column]
        if kind not in ("vector", "halfvec"):
            raise ConfigError(f"The embeddings of {name} are of type {kind}, not vector.")
        self._embedding_type = "halfvec" if kind == "halfvec" else "vector"
        if size not in (-1, self.vector_db.embedding_dimension):
            raise InvalidRequest(
                f"The embeddings of {name} have {size} dimensions.",
                hint="Register the vector DB with the model that made them.",
                field="embedding_dimension",
            )
        self._reads = Reads(self._database, self._chunks())

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        parts = {
            "operator": sql.SQL(self._operator),
            "texts": sql.SQL(TEXTS),
            "query": sql.SQL("%(embedding)s::vector::") + sql.SQL(self._embedding_type),
        }
        parameters = {"embedding": embedding, "candidates": k + MARGIN}
        find = partial(self._reads.rows, _NEAREST, filters, parameters, **parts)
        found = await find(more=sql.SQL(""))
        if len(found) == k + MARGIN and ties(sorted(row[0] for row in found)):
            parameters["candidates"] = k
            found = await find(more=_BY_ID)
        base = 1.0 if self._operator == "<=>" else 0.0
        return best_of((_candidate(row, base - row[0]) for row in found), k)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        parameters = {"k": k, **words_of(query_string)}
        words = asked(self._language)
        found = await self._reads.rows(
            _MATCHING, filters, parameters, asked=words, texts=sql.SQL(TEXTS)
        )
        return [_candidate(row, row[0]) for row in found if row[0] > 0]

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        found = await self._reads.rows(
            "SELECT c.chunk_id, {texts}, {embedding} FROM {chunks}"
            " WHERE c.chunk_id = ANY (%(ids)s::text[]) AND {where}",
            parameters={"ids": list(chunk_ids)},
            texts=sql.SQL(TEXTS),
            embedding=sql.SQL("c.embedding::vector" if include_embeddings else "NULL"),
        )
        return [chunk_of(row) for row in found]

    @override
    async def count(self) -> int:
        return await self._reads.count(None)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._reads.chunk_ids(after, limit, None)

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        raise self._only_read()

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        raise self._only_read()

    @override
    async def drop(self) -> None:
        """Do nothing: the table belongs to the operator."""
        await self.close()

    @override
    async def close(self) -> None:
        """Release the connections."""
        if not self._closed:
            self._closed = True
            await self._database.client.leave()

    # --- the table ---------------------------------------------------------------------------

    def _chunks(self) -> sql.Composed:
        columns = {role: sql.Identifier(column) for role, column in self._attachment.roles.items()}
        words: sql.Composable = sql.SQL("to_tsvector({}::regconfig, left({}::text, {}))").format(
            sql.Literal(self._language), columns["content"], sql.Literal(MOST_CHARACTERS)
        )
        metadata = columns.get("metadata", sql.SQL("NULL"))
        return sql.SQL(_CHUNKS).format(
            **{"words": words, **columns},
            object=_OBJECT.format(metadata=metadata),
            table=self._table,
        )

    def _only_read(self) -> InvalidRequest:
        return InvalidRequest(
            f"Vector DB {self.vector_db.identifier!r} is attached to a table, which Corral only "
            "reads.",
            hint="Write to the table itself.",
            field="vector_db_id",
        )


def _candidate(row: Row, score: float) -> Candidate:
    _, terms, *chunk = row
    return Candidate(chunk[0], score, chunk_of((*chunk, None)), tuple(terms or ()))
