"""The only implementation of `EmbeddingIndex`: it wraps an engine.

Every public method is written once, here: it checks its arguments, applies the scope of the
principal, calls the engine, and checks the engine's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from corral.api.calls import InFlight, SharedLock
from corral.api.checks import (
    MAX_IDS,
    AnyRanker,
    check_after,
    check_document_ids,
    check_k,
    check_matrix,
    check_offset,
    check_query_embedding,
    check_query_text,
    check_ranker,
    check_threshold,
)
from corral.api.chunks import Chunk, last_of_each
from corral.api.documents import READ_CHUNKS, DocumentCount, DocumentPage, DocumentQuery
from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine import Engine
from corral.api.errors import ContractViolation, Forbidden, NotFound
from corral.api.filters import Filter, parse_filter
from corral.api.hits import (
    Candidate,
    Leg,
    QueryChunksResponse,
    SearcherState,
    TermStatistics,
)
from corral.api.legs import IndexQuery, answer, keyword_leg, vector_leg
from corral.api.principal import UNRESTRICTED, Principal
from corral.api.rankers import LegName
from corral.api.scope import Scope
from corral.api.scoped_engine import ScopedEngine
from corral.api.spans import span
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.api.writes import Write, WriteObserver

T = TypeVar("T")

CHECKED_IN_THREAD = 50_000
"""Embeddings of this many numbers or more are checked in a thread (about 1 ms)."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """State that all views of one engine share.

    Attributes:
        in_flight: Counts running calls.
        write_lock: Held shared by unrestricted writes, exclusively by writes that read first.
    """

    in_flight: InFlight
    write_lock: SharedLock


@final
class EngineIndex(EmbeddingIndex):
    """An index that wraps an engine.

    Args:
        engine: Stores and searches the chunks.
        principal: The principal that the index reads and writes for; default: unrestricted.
        observer: Called after each write, before it is acknowledged.
        shared: The state of the index that this one is a view of; None for a new index.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        principal: Principal = UNRESTRICTED,
        observer: WriteObserver | None = None,
        shared: _Shared | None = None,
    ) -> None:
        self.engine = engine
        self._principal, self._observer = principal, observer
        self._shared = shared or _Shared(InFlight(engine.vector_db.identifier), SharedLock())

    @property
    @override
    def vector_db(self) -> VectorDB:
        """The registration that the index serves."""
        return self.engine.vector_db

    @property
    @override
    def principal(self) -> Principal:
        """The principal that it reads and writes for."""
        return self._principal

    @property
    @override
    def has_term_statistics(self) -> bool:
        """True if the engine ranks words by the statistics that it is given."""
        return self.engine.has_term_statistics

    @property
    def _view(self) -> ScopedEngine:
        return ScopedEngine(self.engine, Scope(self._principal, self.vector_db.default_acl))

    @property
    def _calls(self) -> InFlight:
        return self._shared.in_flight

    @override
    def scoped_to(self, principal: Principal) -> EngineIndex:
        """Return a view for a principal; it shares engine, running calls and write lock."""
        if not self._principal.reads_all:
            raise Forbidden("An index that is scoped to one principal is not shown to another.")
        if principal.reads_all:
            return self
        return EngineIndex(
            self.engine, principal=principal, observer=self._observer, shared=self._shared
        )

    @override
    def observed_by(self, observer: WriteObserver | None) -> EngineIndex:
        """Return a view that tells an observer of its writes."""
        return EngineIndex(
            self.engine, principal=self._principal, observer=observer, shared=self._shared
        )

    @override
    def reconfigure(self, vector_db: VectorDB) -> None:
        """Hand a changed registration to the engine."""
        self.engine.reconfigure(vector_db)

    # --- writing -----------------------------------------------------------------------------

    @override
    async def add_chunks(
        self,
        chunks: Sequence[Chunk],
        embeddings: ArrayLike | None = None,
        *,
        replace_documents: Collection[str] = (),
    ) -> None:
        """Check chunks and embeddings, then store them within the scope; see `EmbeddingIndex`."""
        view = self._view
        view.scope.check_writer()
        replaced = check_document_ids(replace_documents)
        if not chunks and not replaced:
            return
        if len(chunks) * self.vector_db.embedding_dimension < CHECKED_IN_THREAD:
            latest, matrix = _checked(view, chunks, embeddings)
        else:
            latest, matrix = await asyncio.to_thread(_checked, view, chunks, embeddings)
        del embeddings  # so that the engine can free the array if the caller kept no reference
        write = Write(self.vector_db, self._principal, latest, matrix, replaced)
        add = partial(view.add, latest, matrix, replaced)
        await self._write(write, add, exclusive=not view.scope.is_whole)

    @override
    async def set_acl(self, chunk_ids: Sequence[str], acl: Sequence[str] | None) -> int:
        """Store the visible chunks of these ids with another acl; see `EmbeddingIndex`."""
        view = self._view
        view.scope.check_writer()
        given = view.scope.check_acl(acl, field="acl")
        if not chunk_ids:
            return 0
        write = Write(self.vector_db, self._principal, opened=chunk_ids, acl=given)
        # Exclusively; otherwise a chunk deleted at the same time would come back.
        change = partial(view.set_acl, chunk_ids, given)
        return await self._write(write, change, exclusive=True) or 0

    @override
    async def change_document(self, document_id: str, change: Callable[[Chunk], Chunk]) -> int:
        """Change the visible chunks of a document under the lock; see `EmbeddingIndex`."""
        view, replaced = self._view, frozenset({document_id})
        view.scope.check_writer()
        async with self._writing(exclusive=True):
            ids = list(await self.engine.document_chunk_ids(document_id))
            chunks: list[Chunk] = []
            for start in range(0, len(ids), READ_CHUNKS):
                stored = await self.engine.get(ids[start : start + READ_CHUNKS], True)
                chunks += map(change, await view.visible(stored))
            if not chunks:
                return 0
            latest, matrix = await asyncio.to_thread(_checked, view, chunks, None)
            await view.add(latest, matrix, replaced)
        if self._observer is not None:
            write = Write(self.vector_db, self._principal, latest, matrix, replaced)
            await self._observer.wrote(write, None)
        return len(chunks)

    @override
    async def delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        """Delete the visible chunks of these ids; see `EmbeddingIndex`."""
        view = self._view
        view.scope.check_writer()
        if not chunk_ids:
            return
        chunk_ids = list(dict.fromkeys(chunk_ids))  # engines differ on duplicates
        write = Write(self.vector_db, self._principal, deleted=chunk_ids)
        delete = partial(view.delete, chunk_ids)
        await self._write(write, delete, exclusive=not view.scope.is_whole)

    async def _write(
        self, write: Write, work: Callable[[], Awaitable[T]], *, exclusive: bool
    ) -> T | None:
        """Carry out a write, call the observer, and return the result.

        If the index was deleted, the observer decides: it raises the error, or has repeated the
        write in the index that replaced this one, and the result is None.
        """
        result, lost = None, None
        try:
            async with self._writing(exclusive=exclusive):
                result = await work()
        except NotFound as error:
            if self._observer is None:
                raise
            lost = error
        if self._observer is not None:
            await self._observer.wrote(write, lost)
        return result

    @asynccontextmanager
    async def _writing(self, *, exclusive: bool) -> AsyncIterator[None]:
        """Count a call and hold the write lock, exclusively for a write that reads first."""
        lock = self._shared.write_lock
        with self._calls:
            async with lock.exclusive() if exclusive else lock.shared():
                yield

    # --- searching ---------------------------------------------------------------------------

    @override
    async def query(
        self,
        embedding: ArrayLike | None = None,
        query_string: str = "",
        k: int = 5,
        score_threshold: float | None = 0.0,
        mode: SearchMode | str | None = None,
        *,
        filters: Filter | dict[str, Any] | None = None,
        ranker: AnyRanker | dict[str, Any] | None = None,
        include_embeddings: bool = False,
        fuzzy: bool = False,
    ) -> QueryChunksResponse:
        """Check the arguments, narrow the filter to the scope, and search; see `EmbeddingIndex`."""
        view = self._view
        search = SearchMode.parse(self.vector_db.search_mode if mode is None else mode)
        query = IndexQuery(
            mode=search,
            k=check_k(k),
            threshold=check_threshold(score_threshold),
            text=check_query_text(query_string),
            ranker=check_ranker(ranker) or self.vector_db.ranker,
            filters=view.scope.narrowed(parse_filter(filters)),
            vector=None
            if search is SearchMode.KEYWORD
            else check_query_embedding(self.vector_db, embedding),
            fuzzy=fuzzy,
            include_embeddings=include_embeddings,
        )
        traced = span("index", provider=self.vector_db.provider_id, mode=search, k=query.k)
        with self._calls, traced, view.scope.reading():
            return await answer(view, query)

    @override
    async def leg(
        self, name: LegName, query: IndexQuery, size: int, statistics: TermStatistics | None = None
    ) -> Leg:
        """Return one leg, searched within the scope; see `EmbeddingIndex`."""
        view = self._view
        narrowed = replace(query, filters=view.scope.narrowed(query.filters))
        with self._calls, view.scope.reading():
            if name == "vector":
                return await vector_leg(view, narrowed, size)
            return await keyword_leg(view, narrowed, size, statistics)

    @override
    async def chunks_of(
        self, candidates: Sequence[Candidate], *, include_embeddings: bool = False
    ) -> dict[str, Chunk]:
        """Return the visible chunks of candidates; see `EmbeddingIndex`."""
        view = self._view
        with self._calls, view.scope.reading():
            return await view.chunks_of(candidates, include_embeddings)

    @override
    async def term_statistics(self, query: IndexQuery) -> TermStatistics:
        """Return the engine's statistics, or zeros if nothing is visible; see `EmbeddingIndex`."""
        scope = self._view.scope
        with self._calls, scope.reading():
            visible = scope.visible()
            if visible is not None and not await self.engine.count_passing(visible):
                return TermStatistics(0, 0)
            return await self.engine.term_statistics(query.text, query.fuzzy)

    # --- reading -----------------------------------------------------------------------------

    @override
    async def get_chunks(
        self, chunk_ids: Sequence[str], *, include_embeddings: bool = False
    ) -> list[Chunk]:
        """Return the visible chunks of these ids; see `EmbeddingIndex`."""
        view = self._view
        with self._calls, view.scope.reading():
            stored = await self.engine.get(chunk_ids, include_embeddings)
            chunks = {c.chunk_id: c for c in await view.visible(stored)}
        return [chunks[chunk_id] for chunk_id in dict.fromkeys(chunk_ids) if chunk_id in chunks]

    @override
    async def count(self) -> int:
        """Return the number of visible chunks."""
        scope = self._view.scope
        with self._calls, scope.reading():
            visible = scope.visible()
            if visible is None:
                return await self.engine.count()
            return await self.engine.count_passing(visible)

    @override
    async def chunk_ids(
        self,
        after: str = "",
        limit: int = 1000,
        *,
        filters: Filter | dict[str, Any] | None = None,
    ) -> list[str]:
        """Return a page of the ids of visible chunks, checked; see `EmbeddingIndex`."""
        start, size = check_after(after), check_k(limit, field="limit", most=MAX_IDS)
        scope = self._view.scope
        passing = scope.narrowed(parse_filter(filters))
        with self._calls, scope.reading():
            if passing is None:
                ids = await self.engine.chunk_ids(start, size)
            else:
                ids = await self.engine.chunk_ids_passing(start, size, passing)
        self._check_page("chunk ids", ids, start, size)
        return list(ids)

    @override
    async def documents(self, after: str = "", limit: int = 1000) -> list[DocumentCount]:
        """Return a page of the documents with visible chunks; see `EmbeddingIndex`."""
        start, size = check_after(after), check_k(limit, field="limit", most=MAX_IDS)
        scope = self._view.scope
        with self._calls, scope.reading():
            visible = scope.visible()
            if visible is None:
                documents = await self.engine.documents(start, size)
            else:
                documents = await self.engine.documents_passing(start, size, visible)
        self._check_page("documents", [one.document_id for one in documents], start, size)
        return list(documents)

    @override
    async def document_page(self, query: DocumentQuery) -> DocumentPage:
        """Return a page of the documents with visible chunks; see `EmbeddingIndex`."""
        check_k(query.limit, field="limit", most=MAX_IDS)
        check_offset(query.offset)
        scope = self._view.scope
        with self._calls, scope.reading():
            page = await self.engine.document_page(query, scope.visible())
        if len(page.items) > min(query.limit, max(0, page.total - query.offset)):
            raise ContractViolation(
                f"{self.vector_db.provider_id}: a page of documents is too long."
            )
        return page

    @override
    async def document_chunk_ids(self, document_id: str) -> list[str]:
        """Return the ids of the visible chunks of a document; see `EmbeddingIndex`."""
        view = self._view
        with self._calls, view.scope.reading():
            ids = await self.engine.document_chunk_ids(document_id)
            return sorted(ids if view.scope.is_whole else await view.visible_ids(list(ids)))

    @override
    async def searcher_state(self) -> SearcherState | None:
        """Return the engine's state, without counts of hidden chunks; see `EmbeddingIndex`."""
        with self._calls:
            state = await self.engine.searcher_state()
        if state is None or self._view.scope.is_whole:
            return state
        return replace(state, indexed=None, note=None)

    def _check_page(self, what: str, ids: Sequence[str], after: str, limit: int) -> None:
        """Raise ContractViolation unless these are at most `limit` ids, ascending from `after`."""
        if len(ids) > limit or any(one >= other for one, other in pairwise([after, *ids])):
            raise ContractViolation(
                f"{self.vector_db.provider_id}: {what} are too many or not in ascending order."
            )

    # --- ending ------------------------------------------------------------------------------

    @override
    async def settle(self) -> None:
        """Wait until the background builds of the engine have ended."""
        with self._calls:
            await self.engine.settle()

    @override
    async def delete(self) -> None:
        """Drop the data after running calls have ended; see `EmbeddingIndex`."""
        if not self._principal.reads_all:
            raise Forbidden("Dropping a vector DB needs the role admin.")
        async with self._calls.closing():
            await self.engine.drop()

    @override
    async def close(self) -> None:
        """Close the engine after running calls have ended, unless this is a scoped view."""
        if self._principal.reads_all:
            await self._calls.wait_idle()
            await self.engine.close()

    @override
    def reopen(self) -> None:
        """Accept calls again, unless this is a scoped view."""
        if self._principal.reads_all:
            self._calls.accept()


def _checked(
    view: ScopedEngine, chunks: Sequence[Chunk], embeddings: ArrayLike | None
) -> tuple[Sequence[Chunk], NDArray[np.float32]]:
    """Return the last chunk of each id in its stored form, and their embeddings."""
    matrix = check_matrix(view.engine.vector_db, chunks, embeddings)
    stored = view.scope.all_stored(chunks)
    latest = last_of_each(chunks)
    if len(latest) == len(chunks):
        return stored, matrix
    rows = list(latest.values())
    return [stored[row] for row in rows], matrix[rows]
