"""The index of one vector DB in one SQLite file."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.embedding_index import Candidate, EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.filters import Filter
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.lexical import LexicalIndex
from corral.providers.vector_io.sqlite import filters
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.schema import (
    connect,
    driver_errors,
    prepare,
    state,
    transaction,
)
from corral.providers.vector_io.sqlite.vectors import VectorSearch

SUFFIXES = ("", "-wal", "-shm")
"""The files of one SQLite database."""


class SqliteIndex(EmbeddingIndex):
    """Chunks in one SQLite file; every public method is the contract's.

    The work runs in threads, each with a connection of its own from a pool. Reads see one state of
    the file; writes wait for each other, also across processes.

    Args:
        vector_db: The registration.
        path: The file, which exists.
        config: The provider's settings.
    """

    def __init__(self, vector_db: VectorDB, path: Path, config: SqliteConfig) -> None:
        super().__init__(vector_db)
        self._path = path
        self._config = config
        self._connections: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        self._lexical = LexicalIndex(
            vector_db.field_weights, vector_db.language, memory_mib=config.keyword_memory_mib
        )
        self._filters = filters.FilterMemory()
        self._vectors = VectorSearch(
            vector_db.embedding_dimension,
            vector_db.metric,
            normalized=vector_db.normalize,
            memory_mib=config.vector_memory_mib,
        )

    def prepare(self) -> None:
        """Create or migrate the tables.

        Raises:
            ConfigError: A newer Corral wrote the file.
        """
        with self._connection() as connection:
            prepare(connection, self._lexical)

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await asyncio.to_thread(self._write, chunks, embeddings, replace_documents)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_vectors, embedding, k, filters)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_words, query_string, k, filters)

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await asyncio.to_thread(self._read, chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete_written, chunk_ids)

    async def _count(self) -> int:
        return await asyncio.to_thread(self._count_rows)

    async def _drop(self) -> None:
        await self.close()
        await asyncio.to_thread(self._unlink)

    async def close(self) -> None:
        """Close the connections."""
        while True:
            try:
                self._connections.get_nowait().close()
            except queue.Empty:
                return

    # --- reading -----------------------------------------------------------------------------

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        with self._reading() as connection:
            allowed = self._filters.passing(connection, filter_)
            nearest = self._vectors.search(connection, embedding, k, allowed)
            ids = _chunk_ids(connection, nearest.rows.tolist())
        pairs = zip(nearest.rows.tolist(), nearest.scores.tolist(), strict=True)
        return _in_order((Candidate(ids[row], score) for row, score in pairs if row in ids), k)

    def _search_words(self, text: str, k: int, filter_: Filter | None) -> list[Candidate]:
        with self._reading() as connection:
            hits = self._lexical.search(
                connection,
                text,
                k,
                count=state(connection, "count"),
                version=state(connection, "version"),
                allowed=self._filters.passing(connection, filter_),
            )
            ids = _chunk_ids(connection, [hit.row for hit in hits])
        return _in_order(
            (
                Candidate(ids[hit.row], hit.score, matched_terms=hit.terms)
                for hit in hits
                if hit.row in ids
            ),
            k,
        )

    def _read(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        query = (
            "SELECT chunk_id, content, metadata, chunk_metadata, embedding"
            " FROM chunks JOIN embeddings USING (row) WHERE chunk_id = ?"
            if include_embeddings
            else "SELECT chunk_id, content, metadata, chunk_metadata, NULL FROM chunks"
            " WHERE chunk_id = ?"
        )
        with self._reading() as connection:
            rows = connection.executemany(query, ((chunk_id,) for chunk_id in chunk_ids))
            return [_chunk(row) for row in rows]

    def _count_rows(self) -> int:
        with self._reading() as connection:
            return state(connection, "count")

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        """Write chunks in one transaction. What takes long and needs no file is done before it."""
        terms = [self._lexical.analyze(chunk) for chunk in chunks]
        records = [_record(chunk) for chunk in chunks]
        norms = (embeddings.astype(np.float64) ** 2).sum(axis=1).tolist()
        with self._writing() as connection:
            gone = _rows_of_chunks(connection, [chunk.chunk_id for chunk in chunks])
            gone |= _rows_of_documents(connection, replace_documents)
            self._remove(connection, sorted(gone))
            rows = _insert_chunks(connection, records)
            connection.executemany(
                "INSERT INTO embeddings VALUES (?, ?, ?)",
                (
                    (row, embedding.astype("<f4").tobytes(), norm)
                    for row, embedding, norm in zip(rows, embeddings, norms, strict=True)
                ),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO attributes VALUES (?, ?, ?)",
                (
                    (key, value, row)
                    for row, chunk in zip(rows, chunks, strict=True)
                    for key, value in filters.attributes(chunk.metadata)
                ),
            )
            self._lexical.add(connection, zip(rows, terms, strict=True))
            _count_up(connection, len(rows) - len(gone))

    def _delete_written(self, chunk_ids: Sequence[str]) -> None:
        with self._writing() as connection:
            gone = sorted(_rows_of_chunks(connection, chunk_ids))
            self._remove(connection, gone)
            _count_up(connection, -len(gone))

    def _remove(self, connection: apsw.Connection, rows: Sequence[int]) -> None:
        if not rows:
            return
        ids = [(row,) for row in rows]
        stored = connection.executemany("SELECT row, metadata FROM chunks WHERE row = ?", ids)
        connection.executemany(
            "DELETE FROM attributes WHERE key = ? AND value = ? AND row = ?",
            [
                (key, value, row)
                for row, metadata in stored
                for key, value in filters.attributes(json.loads(str(metadata)))
            ],
        )
        connection.executemany("DELETE FROM chunks WHERE row = ?", ids)
        connection.executemany("DELETE FROM embeddings WHERE row = ?", ids)
        connection.executemany("INSERT INTO deletions(row) VALUES (?)", ids)
        self._lexical.delete(connection, rows)

    def _unlink(self) -> None:
        for suffix in reversed(SUFFIXES):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    # --- connections -------------------------------------------------------------------------

    @contextmanager
    def _connection(self) -> Iterator[apsw.Connection]:
        """Lend a connection; after an error it is closed, since its state is unknown."""
        with driver_errors(self.vector_db.provider_id):
            try:
                connection = self._connections.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                yield connection
            except BaseException:
                connection.close(force=True)
                raise
            self._connections.put(connection)

    def _connect(self) -> apsw.Connection:
        try:
            return connect(self._path, self._config.busy_timeout_seconds)
        except apsw.CantOpenError:
            if self._path.exists():
                raise
            raise NotFound(
                f"The file of vector DB {self.vector_db.identifier!r} is gone.",
                hint="Delete the vector DB and register it anew.",
                field="vector_db_id",
            ) from None

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._connection() as connection, transaction(connection, "DEFERRED"):
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._connection() as connection, transaction(connection):
            yield connection


def _record(chunk: Chunk) -> tuple[str, str | None, str, str, str | None]:
    recorded = chunk.chunk_metadata
    return (
        chunk.chunk_id,
        chunk.document_id,
        chunk.content,
        json.dumps(chunk.metadata, ensure_ascii=False),
        recorded.model_dump_json(exclude_none=True) if recorded else None,
    )


def _chunk(row: tuple[Any, ...]) -> Chunk:
    chunk_id, content, metadata, recorded, embedding = row
    return Chunk.model_construct(
        chunk_id=chunk_id,
        content=content,
        metadata=json.loads(metadata),
        chunk_metadata=ChunkMetadata.model_validate_json(recorded) if recorded else None,
        embedding=np.frombuffer(embedding, dtype="<f4").tolist() if embedding else None,
    )


def _insert_chunks(connection: apsw.Connection, records: Iterable[tuple[Any, ...]]) -> list[int]:
    inserted: Any = connection.executemany(
        "INSERT INTO chunks(chunk_id, document_id, content, metadata, chunk_metadata)"
        " VALUES (?, ?, ?, ?, ?) RETURNING row",
        records,
    )
    return [int(row) for (row,) in inserted]


def _rows_of_chunks(connection: apsw.Connection, chunk_ids: Iterable[str]) -> set[int]:
    query = "SELECT row FROM chunks WHERE chunk_id = ?"
    found: Any = connection.executemany(query, ((i,) for i in chunk_ids))
    return {row for (row,) in found}


def _rows_of_documents(connection: apsw.Connection, documents: Iterable[str]) -> set[int]:
    query = "SELECT row FROM chunks WHERE document_id = ?"
    found: Any = connection.executemany(query, ((d,) for d in sorted(documents)))
    return {row for (row,) in found}


def _chunk_ids(connection: apsw.Connection, rows: Sequence[int]) -> dict[int, str]:
    query = "SELECT row, chunk_id FROM chunks WHERE row = ?"
    found: Any = connection.executemany(query, ((row,) for row in rows))
    return dict(found)


def _count_up(connection: apsw.Connection, by: int) -> None:
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'count'", (by,))


def _in_order(candidates: Iterable[Candidate], k: int) -> list[Candidate]:
    """Order ties, of which there may be more than k in all, by chunk_id, and take the first k."""
    return sorted(candidates, key=lambda c: (-c.raw_score, c.chunk_id))[:k]
