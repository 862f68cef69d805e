"""The chunk store: one SQLite database per vector DB, with an interchangeable vector searcher."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount, DocumentPage, DocumentQuery
from corral.api.engine import Engine
from corral.api.errors import NotFound
from corral.api.filters import Filter
from corral.api.hits import (
    Candidate,
    KeywordLeg,
    SearcherState,
    TermStatistics,
    VectorLeg,
)
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import MicroBatcher
from corral.providers.vector_io.kit.candidates import best_of
from corral.providers.vector_io.kit.exact import EXACT, Nearest
from corral.providers.vector_io.kit.refusals import data_is_gone
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.changes import StaleRead
from corral.providers.vector_io.store.config import ChunkFileConfig
from corral.providers.vector_io.store.connections import (
    IN_MEMORY,
    Connections,
    MemoryConnection,
    connect,
    delete_files,
    state,
)
from corral.providers.vector_io.store.directory import document_page
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.postings import KeywordIndex
from corral.providers.vector_io.store.rows import (
    chunk_ids_after,
    chunk_ids_in,
    chunk_ids_of,
    chunk_ids_of_documents,
    count_in,
    count_up,
    documents_after,
    documents_in,
    insert_rows,
    read_chunks,
    record_of,
    remove_rows,
    rows_of_chunks,
    rows_of_documents,
)
from corral.providers.vector_io.store.schema import newest_version, prepare, prepare_in_memory

T = TypeVar("T")
Leg = TypeVar("Leg", bound=Sequence[Candidate])

Lend: TypeAlias = Callable[[], AbstractContextManager[apsw.Connection]]
_VectorQuery: TypeAlias = tuple[NDArray[np.float32], int, Filter | None]
_WordQuery: TypeAlias = tuple[str, int, Filter | None, bool, TermStatistics | None]

ROWS_AT_ONCE = 1024

ONE_THREAD_ROWS = 20_000
"""Up to this number, one thread searches both legs faster than two threads."""

CHUNKS_WITH_LEG = 32
"""Legs of at most this size fetch their chunks in the same transaction: the answer needs nearly all
of them, and a later fetch takes another thread and another transaction."""


class VectorSearcher(ABC):
    """Searches the embeddings of a chunk file. Safe to use from many threads.

    The file is the truth. A searcher may keep an index beside it, which can be deleted and rebuilt
    at any time; rows newer than the index are compared exactly.
    """

    def prepare(self) -> None:
        """Load the index, or start building it; called once, before any other call."""

    def written(self) -> None:
        """Start rebuilding the index if it is due; called after each write of chunks."""

    def settle(self) -> None:
        """Wait until a running build has ended."""

    def close(self) -> None:
        """Stop a running build."""

    def discard(self) -> None:
        """Delete the files of the index."""

    @property
    def state(self) -> SearcherState:
        """The state of the searcher for a search without filters."""
        return EXACT

    @abstractmethod
    def begin(
        self,
        connection: apsw.Connection,
        query: NDArray[np.float32],
        k: int,
        allowed: RowSet | None,
    ) -> Callable[[], Nearest]:
        """Return a function that returns the k nearest rows and those tied with the last, best
        first.

        Searches that begin before one of the functions is called may share the work.

        Args:
            connection: In a read transaction.
            query: Shape (dimension,); of length 1 if the embeddings are normalized.
            k: Number of rows, >= 1.
            allowed: The rows that may be returned; None for all.

        Returns:
            A function that returns raw scores as defined in `api.scoring`: cosine, inner product or
            minus the distance. The transaction sees all of the rows.

        Raises:
            StaleRead: The index in memory is newer than the transaction.
        """


class ChunkFileEngine(Engine):
    """Stores chunks in one SQLite database, and searches their embeddings with a searcher.

    The work runs in threads, each with its own connection from a pool. Reads see one snapshot of
    the file; writes run one at a time, also across processes.

    Args:
        path: An existing file; IN_MEMORY for a database that exists until `drop`.
        searcher: Creates the searcher of the embeddings from a function that lends a connection
            outside a transaction.
        extension: A library of SQLite functions that the searcher needs.
        fuzzy: If True, every keyword search also finds words that differ by a typo.
        on_drop: Called before the data is deleted.

    Attributes:
        one_thread_rows: Up to this number of rows, one thread searches both legs.
        chunks_with_leg: Legs of at most this size fetch their chunks in the same transaction.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        path: Path,
        config: ChunkFileConfig,
        searcher: Callable[[Lend], VectorSearcher],
        extension: str | None = None,
        *,
        fuzzy: bool = False,
        on_drop: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(vector_db)
        self.has_term_statistics = not fuzzy  # Its terms differ from those of other vector DBs.
        self._path = path
        self._fuzzy = fuzzy
        self._on_drop = on_drop
        in_memory = path == IN_MEMORY  # Two threads would only alternate.
        self.one_thread_rows = sys.maxsize if in_memory else ONE_THREAD_ROWS
        self.chunks_with_leg = CHUNKS_WITH_LEG
        pool = MemoryConnection if in_memory else Connections
        self._connections = pool(vector_db.provider_id, partial(self._connect, config, extension))
        self._keyword = KeywordIndex(
            vector_db.field_weights, vector_db.language, memory_mib=config.keyword_memory_mib
        )
        self._filters = FilterCache()
        self.searcher = searcher(self._connections.lend)
        self._vector_leg = MicroBatcher(self._search_vectors)
        self._keyword_leg = MicroBatcher(self._search_words)
        self._statistics = MicroBatcher(self._count_terms)
        self._both_legs = MicroBatcher(self._search_both)
        self._rows = 0  # Number of rows at the last count.
        self._reads = MicroBatcher(self._read_all)

    def prepare(self) -> None:
        """Create or migrate the tables, and load the searcher's index.

        Raises:
            ConfigError: A newer Corral wrote the file.
        """
        with self._connections.lend() as connection:
            make = prepare_in_memory if self._path == IN_MEMORY else prepare
            make(connection, self._keyword)
        self.searcher.prepare()

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await asyncio.to_thread(self._write, chunks, embeddings, replace_documents)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self._vector_leg.submit((embedding, k, filters))

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self._keyword_leg.submit((query_string, k, filters, self._fuzzy, by))

    @override
    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self._keyword_leg.submit((query_string, k, filters, True, by))

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self._statistics.submit((query_string, fuzzy or self._fuzzy))

    @override
    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        if self._rows > self.one_thread_rows:
            return await super().search_hybrid(embedding, query_string, k, filters)
        return await self._both_legs.submit((embedding, query_string, k, filters))

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self._reads.submit((chunk_ids, include_embeddings))

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete_stored, chunk_ids)

    @override
    async def count(self) -> int:
        return await self._read(state, "count")

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._read(chunk_ids_after, after, limit)

    @override
    async def documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        return await self._read(documents_after, after, limit)

    @override
    async def document_page(self, query: DocumentQuery, filters: Filter | None) -> DocumentPage:
        return await self._read(self._passing_rows, document_page, filters, query)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await self._read(chunk_ids_of_documents, [document_id])

    @override
    async def count_passing(self, filters: Filter) -> int:
        return await self._read(self._passing_rows, count_in, filters)

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self._read(self._passing_rows, chunk_ids_in, filters, after, limit)

    @override
    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await self._read(self._passing_rows, documents_in, filters, after, limit)

    def _passing_rows(
        self,
        connection: apsw.Connection,
        read: Callable[..., T],
        filters: Filter | None,
        *arguments: Any,
    ) -> T:
        passing = self._filters.passing(connection, filters)
        everything = RowSet(np.empty(0, dtype=np.int64), negated=True)
        return read(connection, everything if passing is None else passing, *arguments)

    @override
    async def drop(self) -> None:
        await self.close()
        await asyncio.to_thread(self._delete_data)

    @override
    async def close(self) -> None:
        await asyncio.to_thread(self.searcher.close)
        self._connections.close()

    @override
    async def settle(self) -> None:
        await asyncio.to_thread(self.searcher.settle)

    @override
    async def searcher_state(self) -> SearcherState:
        return self.searcher.state

    async def _read(self, read: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await asyncio.to_thread(self._connections.read, read, *arguments, **options)

    # --- reading -----------------------------------------------------------------------------

    def _search_vectors(self, asked: Sequence[_VectorQuery]) -> list[VectorLeg]:
        return self._in_one_state(
            lambda file: self._with_chunks(file, self._vectors_in(file, asked))
        )

    def _search_words(self, asked: Sequence[_WordQuery]) -> list[KeywordLeg]:
        return self._in_one_state(lambda file: self._with_chunks(file, self._words_in(file, asked)))

    def _search_both(
        self, asked: Sequence[tuple[NDArray[np.float32], str, int, Filter | None]]
    ) -> list[tuple[VectorLeg, KeywordLeg]]:
        def search(connection: apsw.Connection) -> list[tuple[VectorLeg, KeywordLeg]]:
            self._rows = state(connection, "count")
            vectors = self._vectors_in(
                connection, [(row, k, passes) for row, _, k, passes in asked]
            )
            texts = [(text, k, passes, self._fuzzy, None) for _, text, k, passes in asked]
            return list(zip(vectors, self._words_in(connection, texts), strict=True))

        return self._in_one_state(search)

    def _vectors_in(
        self, connection: apsw.Connection, asked: Sequence[_VectorQuery]
    ) -> list[VectorLeg]:
        begun = [
            self.searcher.begin(
                connection, embedding, k, self._filters.passing(connection, filters)
            )
            for embedding, k, filters in asked
        ]
        found = [finish() for finish in begun]
        return [
            self._candidates(connection, each, k)
            for each, (_, k, _) in zip(found, asked, strict=True)
        ]

    def _candidates(self, connection: apsw.Connection, found: Nearest, k: int) -> VectorLeg:
        rows = found.rows.tolist()
        ids = chunk_ids_of(connection, rows)
        pairs = zip(rows, found.scores.tolist(), strict=True)
        best = best_of((Candidate(ids[row], score) for row, score in pairs), k)
        return VectorLeg(best, found.searcher)

    def _words_in(
        self, connection: apsw.Connection, asked: Sequence[_WordQuery]
    ) -> list[KeywordLeg]:
        return [
            self._keyword.candidates(
                connection, text, k, self._filters.passing(connection, filters), by, fuzzy=fuzzy
            )
            for text, k, filters, fuzzy, by in asked
        ]

    def _count_terms(self, asked: Sequence[tuple[str, bool]]) -> list[TermStatistics]:
        return self._in_one_state(
            lambda file: [
                self._keyword.statistics(file, text, fuzzy=fuzzy) for text, fuzzy in asked
            ]
        )

    def _read_all(self, asked: Sequence[tuple[Sequence[str], bool]]) -> list[list[Chunk]]:
        with self._connections.reading() as connection:
            return [
                read_chunks(connection, ids, include_embeddings=embeddings)
                for ids, embeddings in asked
            ]

    def _with_chunks(self, connection: apsw.Connection, legs: list[Leg]) -> list[Leg]:
        """Return the legs, small ones with their chunks."""
        for leg in legs:
            if len(leg) <= self.chunks_with_leg:
                ids = [one.chunk_id for one in leg]
                chunks = read_chunks(connection, ids, include_embeddings=False)
                held = {chunk.chunk_id: chunk for chunk in chunks}
                for one in leg:
                    one.chunk = held.get(one.chunk_id)
        return legs

    def _in_one_state(self, search: Callable[[apsw.Connection], T]) -> T:
        """Search in one read transaction."""
        while True:
            try:
                with self._connections.reading() as connection:
                    return search(connection)
            # A faster query has seen a newer write, so a new transaction sees it too.
            except StaleRead:
                continue

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        """Write chunks in one transaction, after the slow work that does not need the file."""
        terms = [self._keyword.analyze(chunk) for chunk in chunks]
        # converted during the write, because all at once take much memory
        records = map(record_of, chunks)
        parts = range(0, len(embeddings), ROWS_AT_ONCE)  # in double precision they take much memory
        wide = (embeddings[at : at + ROWS_AT_ONCE].astype(np.float64) for at in parts)
        norms = [norm for rows in wide for norm in (rows**2).sum(axis=1).tolist()]
        with self._connections.writing() as connection:
            gone = rows_of_chunks(connection, [chunk.chunk_id for chunk in chunks])
            gone |= rows_of_documents(connection, replace_documents)
            self._remove(connection, gone)
            rows = insert_rows(connection, chunks, records, embeddings, norms)
            self._keyword.add(connection, zip(rows, terms, strict=True))
            count_up(connection, len(rows) - len(gone))
        self.searcher.written()

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._connections.writing() as connection:
            gone = rows_of_chunks(connection, chunk_ids)
            self._remove(connection, gone)
            count_up(connection, -len(gone))

    def _remove(self, connection: apsw.Connection, rows: set[int]) -> None:
        ordered = sorted(rows)
        remove_rows(connection, ordered)
        self._keyword.delete(connection, ordered)

    def _delete_data(self) -> None:
        if self._on_drop:
            self._on_drop()
        if self._path == IN_MEMORY:
            self._connections.refuse(self._gone)
        else:
            delete_files(self._path)
        self.searcher.discard()

    def _connect(self, config: ChunkFileConfig, extension: str | None) -> apsw.Connection:
        try:
            newest = newest_version()
            return connect(self._path, config.busy_timeout_seconds, extension, newest=newest)
        except apsw.CantOpenError:
            if self._path.exists():
                raise
            raise self._gone() from None

    def _gone(self) -> NotFound:
        data = "database" if self._path == IN_MEMORY else "file"
        return data_is_gone(f"The {data} of vector DB {self.vector_db.identifier!r} is gone.")
