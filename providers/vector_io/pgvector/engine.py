"""The engine of one vector DB in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount, DocumentPage, DocumentQuery
from corral.api.engine import Engine
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.pgvector import filters as conditions
from corral.providers.vector_io.pgvector.client import (
    Connection,
    Database,
    Row,
    Statement,
    check_database,
)
from corral.providers.vector_io.pgvector.keyword import KeywordIndex, update_keywords
from corral.providers.vector_io.pgvector.keyword.bm25 import Bm25
from corral.providers.vector_io.pgvector.keyword.fulltext import FullText
from corral.providers.vector_io.pgvector.keyword.maxscore import Bm25Search
from corral.providers.vector_io.pgvector.records import (
    COLUMNS,
    TEXTS,
    Tables,
    Tuning,
    chunk_of,
    drop_tables,
    make_policy,
    make_schema,
    require_tables,
    rows_of,
)
from corral.providers.vector_io.pgvector.search.hnsw import LOAD
from corral.providers.vector_io.pgvector.search.legs import Legs
from corral.providers.vector_io.pgvector.search.reads import Reads
from corral.providers.vector_io.pgvector.search.vectors import MARGIN, VectorSearch


class PgvectorEngine(Engine):
    """Stores the chunks of one vector DB in PostgreSQL; see `Engine` for the public methods.

    A write is one transaction. Its first statement locks the vector DB's state row, so writers of
    one vector DB run one at a time across processes; readers never wait.

    Args:
        vector_db: The registration.
        database: The provider's connections.
        tuning: The tuning of its tables.
    """

    def __init__(self, vector_db: VectorDB, database: Database, tuning: Tuning) -> None:
        super().__init__(vector_db)
        self.database = database
        self.tables = Tables(vector_db, database.config.schema_name, tuning)
        self._vectors = VectorSearch(self.tables, database)
        chunks = self.tables.sql("{chunks} c")
        self._reads = Reads(database, chunks, database.config.scope_role)
        self._keyword: KeywordIndex = (
            Bm25(self.tables)
            if database.config.keyword == "bm25"
            else FullText(self.tables, database.config.text_search_configuration)
        )
        self.has_term_statistics = isinstance(self._keyword, Bm25)
        self.hnsw = self._vectors.hnsw
        self._closed = False
        database.client.enter()

    async def prepare(self, *, create: bool) -> None:
        """Create or check the tables, and update the keyword index."""

        async def work(connection: Connection) -> None:
            await check_database(connection)
            if create:
                await make_schema(connection, self.tables)
            async with connection.transaction():
                await require_tables(connection, self.tables, create=create)
                await update_keywords(connection, self.tables, self._keyword)
                if self.database.config.scope_role is not None:
                    await make_policy(connection, self.tables, self.database.config.scope_role)

        await self.database.run(work)
        await self.hnsw.settle(*await self._state("count, loaded, hnsw_below"))

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        async def work(connection: Connection) -> Row:
            async with connection.transaction():
                return await self._write(
                    connection, chunks, embeddings, entries, sorted(replace_documents)
                )

        with self.hnsw.renewal.hold():
            entries = await asyncio.to_thread(list, map(self._keyword.analyze, chunks))
            written = await self.database.run(work)
        await self.hnsw.settle(*written)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        near, _ = await self._find(k, filters, embedding, None, whole=True)
        return near

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        _, matching = await self._find(k, filters, None, query_string, whole=by is None, by=by)
        return matching

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        search = self._keyword.search(query_string, None)
        if isinstance(search, Bm25Search):
            return await self.database.run(search.statistics)
        return TermStatistics(*await self._state("count, length"))

    @override
    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        """Return both legs from one snapshot of the data, without texts."""
        return await self._find(k, filters, embedding, query_string, whole=False)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        embedding = "c.embedding" if include_embeddings else "NULL"
        statement = self.tables.kept(
            f"chunks with {embedding}",
            lambda: self.tables.sql(
                "SELECT c.chunk_id, {texts}, {embedding} FROM {chunks} c"
                " WHERE c.chunk_id = ANY (%(ids)s::text[])",
                texts=sql.SQL(TEXTS),
                embedding=sql.SQL(embedding),
            ),
        )
        found = await self._reads.run(statement, {"ids": list(chunk_ids)})
        return [chunk_of(row) for row in found]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await self._lock(connection, 0)
                await self._remove(connection, chunk_ids, [])

        await self.database.run(work)

    @override
    async def count(self) -> int:
        [count] = await self._state("count")
        return int(count)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._reads.chunk_ids(after, limit, None)

    @override
    async def count_passing(self, filters: Filter) -> int:
        return await self._reads.count(filters)

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self._reads.chunk_ids(after, limit, filters)

    @override
    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        found = await self._reads.rows(
            "SELECT c.document_id, count(*) FROM {chunks}"
            ' WHERE c.document_id COLLATE "C" > %(after)s::text AND {where}'
            ' GROUP BY c.document_id ORDER BY c.document_id COLLATE "C" LIMIT %(limit)s',
            filters,
            {"after": after, "limit": limit},
        )
        return [DocumentCount(str(document_id), count) for document_id, count in found]

    @override
    async def document_page(self, query: DocumentQuery, filters: Filter | None) -> DocumentPage:
        return await self._reads.document_page(query, filters)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        found = await self._reads.rows(
            "SELECT c.chunk_id FROM {chunks} WHERE c.document_id = %(document)s::text",
            parameters={"document": document_id},
        )
        return [str(chunk_id) for (chunk_id,) in found]

    @override
    async def drop(self) -> None:
        await self.hnsw.renewal.cancel()
        tables = self.tables
        await self.database.run(partial(drop_tables, schema=tables.schema, name=tables.name))
        await self.close()

    @override
    async def settle(self) -> None:
        await self.hnsw.renewal.flush()

    @override
    async def close(self) -> None:
        """Finish the pending work of a bulk load, and release the connections."""
        if not self._closed:
            self._closed = True
            await self.hnsw.renewal.flush()
            await self.database.client.leave()

    # --- reading -----------------------------------------------------------------------------

    async def _find(
        self,
        k: int,
        filters: Filter | None,
        embedding: NDArray[np.float32] | None,
        query_string: str | None,
        *,
        whole: bool,
        by: TermStatistics | None = None,
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        """Return the hits of the vector leg and of the keyword leg, best first.

        Args:
            whole: True to return the chunks too.
            by: The statistics to rank by; None for the vector DB's own.
        """
        parameters: dict[str, Any] = {"k": k, "candidates": k + MARGIN, "embedding": embedding}
        where = None if filters is None else conditions.condition(filters, parameters)
        legs = Legs(self.tables, self._vectors, self.database.config.scope_role, whole)

        async def work(connection: Connection) -> tuple[list[Candidate], Sequence[Candidate]]:
            searches: Iterable[Statement | None] = [None]
            if embedding is not None:
                searches = self._vectors.searches(where, parameters["candidates"])
            for vector in searches:
                search = None
                if query_string is not None:
                    search = self._keyword.search(query_string, where, by)
                found = await legs.find(connection, vector, search, parameters)
                if found is not None:
                    break
            return found or ([], [])

        return await self.database.run(work)

    async def _state(self, columns: LiteralString) -> Row:
        """Return columns of the state row."""
        query = self.tables.sql("SELECT {columns} FROM {state}", columns=sql.SQL(columns))
        [row] = await self._reads.run(Statement(query.as_bytes(None)), {})
        return row

    # --- writing -----------------------------------------------------------------------------

    async def _write(
        self,
        connection: Connection,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        entries: Sequence[ChunkTerms],
        replace_documents: Sequence[str],
    ) -> Row:
        """Write chunks in the running transaction; return the arguments of `HnswIndex.settle`."""
        first = await self._lock(connection, len(chunks))
        await self._remove(connection, [chunk.chunk_id for chunk in chunks], replace_documents)
        if chunks:
            rows = range(first, first + len(chunks))
            await self._keyword.add(connection, rows, entries)
            copy = self.tables.sql(
                "COPY {chunks} ({columns}) FROM STDIN (FORMAT binary)",
                columns=sql.SQL(", ").join(map(sql.Identifier, COLUMNS)),
            )
            alone = len(chunks) < LOAD
            made = rows_of(first, chunks, embeddings, indexed=alone)
            await connection.copy_rows(copy, made)
        length = sum(entry.length for entry in entries)
        return await self._count_up(connection, len(chunks), length)

    async def _lock(self, connection: Connection, rows: int) -> int:
        """Lock out other writers until this transaction ends; return the first new row number.

        A large write starts a new block of postings, so that no existing block is rewritten.
        """
        [first] = await connection.row(
            self.tables.sql(
                "UPDATE {state} SET next_row = %(n)s + CASE WHEN %(n)s * 4 < {block} THEN next_row"
                " ELSE (next_row + {block} - 1) / {block} * {block} END RETURNING next_row - %(n)s"
            ),
            {"n": rows},
        )
        return int(first)

    async def _remove(
        self, connection: Connection, chunk_ids: Sequence[str], documents: Sequence[str]
    ) -> None:
        cursor = await connection.execute(
            self.tables.sql(
                "DELETE FROM {chunks} WHERE chunk_id = ANY (%s::text[])"
                " OR document_id = ANY (%s::text[]) RETURNING row"
            ),
            (list(chunk_ids), list(documents)),
        )
        gone = [row for (row,) in await cursor.fetchall()]
        if gone:
            length = await self._keyword.remove(connection, gone)
            await self._count_up(connection, -len(gone), -length)

    async def _count_up(self, connection: Connection, chunks: int, length: int) -> Row:
        """Add to the number of chunks.

        Return the number of all chunks and of those in the HNSW index.
        """
        return await connection.row(
            self.tables.sql(
                "UPDATE {state} SET count = count + %s, length = length + %s, loaded = loaded + %s"
                " RETURNING count, loaded, hnsw_below"
            ),
            (chunks, length, chunks if chunks >= LOAD else 0),
        )
