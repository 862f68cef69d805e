"""The index of one vector DB: what every provider implements and every query goes through.

The public methods are written once, here: they check what comes in, apply the scope of the
principal, call the provider's hook and check what comes out. The hooks (`index_hooks.py`), whose
names begin with an underscore, are all that a provider writes, and may rely on checked arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.calls import Calls, SharedLock
from corral.api.checks import (
    MAX_IDS,
    AnyRanker,
    check_after,
    check_document_ids,
    check_k,
    check_matrix,
    check_query_embedding,
    check_query_text,
    check_ranker,
    check_threshold,
)
from corral.api.chunks import Chunk, last_of_each
from corral.api.documents import READ_AT_ONCE, DocumentCount
from corral.api.errors import Forbidden
from corral.api.filters import Filter, parse_filter
from corral.api.hits import Candidate, Leg, QueryChunksResponse, TermStatistics
from corral.api.leg_search import IndexQuery, LegSearch
from corral.api.principal import UNRESTRICTED, Principal
from corral.api.rankers import LegName
from corral.api.spans import span
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.api.writes import Keeper, Write, kept

NUMBERS_AT_ONCE = 50_000
"""Numbers of embeddings from which on they are checked in a thread (about 1 ms)."""


class EmbeddingIndex(LegSearch):
    """The chunks of one vector DB, searchable by vector, keyword and both.

    Safe to call from many tasks at once. A write that has returned is seen by every later query.
    `delete` and `close` wait for the calls at work, up to `DRAIN_SECONDS`, so that no hook runs in
    an index that is gone. A call that comes later raises NotFound.

    An index reads and writes for a principal: unrestricted, or as `seen_by` says. What the
    principal may not see does not exist for it. The public methods apply that, so hooks and their
    callers need not know of it.

    Args:
        vector_db: The registration that the index serves.

    Attributes:
        keeper: Who is told of each write before it is acknowledged; None: nobody.
    """

    keeper: Keeper | None = None

    def __init__(self, vector_db: VectorDB) -> None:
        self.vector_db = vector_db
        self._calls = Calls(vector_db.identifier)
        self._writes = SharedLock()
        self._principal = UNRESTRICTED

    def seen_by(self, principal: Principal) -> EmbeddingIndex:
        """Return this index as a principal sees it: the same data, and nothing that is hidden."""
        if principal.reads_all:
            return self
        return ScopedIndex(self, principal)

    async def add_chunks(
        self,
        chunks: Sequence[Chunk],
        embeddings: ArrayLike | None = None,
        *,
        replace_documents: Collection[str] = (),
    ) -> None:
        """Store chunks, all or none; a chunk whose id exists already replaces it.

        Args:
            chunks: At most one of each id counts: the last. Not mutated.
            embeddings: Shape (len(chunks), dimension), row i belonging to chunks[i]; None takes
                each chunk's own `embedding`.
            replace_documents: Document ids whose other chunks are removed in the same step, so
                that a new version of a document takes the place of the old one.

        Raises:
            InvalidEmbedding: As `check_embeddings` says; nothing was stored.
            InvalidRequest: A chunk has no embedding, their numbers differ, `replace_documents` is
                a string or holds what can be no id, or metadata has a reserved key.
            Forbidden: The principal may not write, or gives an acl that it does not hold.
            Conflict: A chunk or document has an id that a hidden one has.
        """
        scope = self._scope
        scope.check_writer()
        replaced = check_document_ids(replace_documents)
        if not chunks and not replaced:
            return
        if len(chunks) * self.vector_db.embedding_dimension < NUMBERS_AT_ONCE:
            latest, matrix = self._checked(chunks, embeddings)
        else:
            latest, matrix = await asyncio.to_thread(self._checked, chunks, embeddings)
        del embeddings  # where the caller kept none, the engine has the only ones
        write = Write(self.vector_db, self._principal, latest, matrix, replaced)
        async with kept(self.keeper, write), self._turn(exclusive=not scope.is_whole):
            await self._add_in_scope(scope, latest, matrix, replaced)

    @asynccontextmanager
    async def _turn(self, *, exclusive: bool) -> AsyncIterator[None]:
        """Write in this context, beside other writes or exclusively, while the index is there."""
        with self._calls:
            async with self._writes.exclusive() if exclusive else self._writes.shared():
                yield

    def _checked(
        self, chunks: Sequence[Chunk], embeddings: ArrayLike | None
    ) -> tuple[Sequence[Chunk], NDArray[np.float32]]:
        """Return the last chunk of each id as it is to be stored, and their embeddings."""
        matrix = check_matrix(self.vector_db, chunks, embeddings)
        stored = self._scope.all_stored(chunks)
        latest = last_of_each(chunks)
        if len(latest) == len(chunks):
            return stored, matrix
        rows = list(latest.values())
        return [stored[row] for row in rows], matrix[rows]

    async def set_acl(self, chunk_ids: Sequence[str], acl: Sequence[str] | None) -> int:
        """Give chunks another acl, all or none; nothing is embedded again.

        Args:
            chunk_ids: Which; unknown ids are ignored.
            acl: Tokens; None for the vector DB's default.

        Returns:
            How many chunks there were.

        Raises:
            InvalidRequest: A malformed token.
            Forbidden: The principal may not write, or does not hold a token.
        """
        scope = self._scope
        scope.check_writer()
        given = scope.check_acl(acl, field="acl")
        if not chunk_ids:
            return 0
        count = 0
        # Alone, or a chunk that is deleted meanwhile would come back.
        write = Write(self.vector_db, self._principal, opened=chunk_ids, acl=given)
        async with kept(self.keeper, write), self._turn(exclusive=True):
            count = await self._set_acl(scope, chunk_ids, given)
        return count  # noqa: RET504 - `kept` may leave the block early: a rebuild then writes instead

    async def change_document(self, document_id: str, change: Callable[[Chunk], Chunk]) -> int:
        """Change the chunks of a document in one write; nothing is embedded again.

        No other write comes between reading the chunks and storing them, so none is undone.

        Args:
            document_id: Which.
            change: Returns a chunk as it is to be, with the same id, text and document.

        Returns:
            How many chunks there were.

        Raises:
            Forbidden, Conflict: As `add_chunks`; nothing was changed.
        """
        scope, replaced = self._scope, frozenset({document_id})
        scope.check_writer()
        async with self._turn(exclusive=True):
            ids = list(await self._document_chunk_ids(document_id))
            chunks: list[Chunk] = []
            for start in range(0, len(ids), READ_AT_ONCE):
                stored = await self._get(ids[start : start + READ_AT_ONCE], True)
                chunks += map(change, await self._told(scope, stored))
            if not chunks:
                return 0
            latest, matrix = await asyncio.to_thread(self._checked, chunks, None)
            await self._add_in_scope(scope, latest, matrix, replaced)
        if self.keeper is not None:
            write = Write(self.vector_db, self._principal, latest, matrix, replaced)
            await self.keeper.wrote(write, None)
        return len(chunks)

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
        """Return the k best chunks, best first, ties by chunk_id; equal input, equal output.

        Args:
            embedding: Shape (dimension,); needed in vector and hybrid mode, otherwise ignored.
            query_string: The words to find in keyword and hybrid mode, joined by OR. It is data,
                never syntax. Without a word in it the keyword leg is empty.
            k: Most hits wanted, 1 to 1000.
            score_threshold: Keep hits with score >= this, in [0, 1], after fusion. None or 0
                keeps all.
            mode: vector, keyword or hybrid; None takes the registration's.
            filters: Only chunks whose metadata passes; applied before the top k is taken.
            ranker: How to fuse in hybrid mode; None takes the registration's.
            include_embeddings: Whether the chunks carry their stored embeddings.
            fuzzy: Whether the keyword leg also finds words spelled nearly like those of the query.

        Returns:
            The hits, and in `confidence` how likely an answer is among what the query could see,
            whatever the threshold is.

        Raises:
            UnsupportedMode, InvalidEmbedding, InvalidFilter, InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """
        scope = self._scope
        search = SearchMode.parse(self.vector_db.search_mode if mode is None else mode)
        query = IndexQuery(
            mode=search,
            k=check_k(k),
            threshold=check_threshold(score_threshold),
            text=check_query_text(query_string),
            ranker=check_ranker(ranker) or self.vector_db.ranker,
            filters=scope.narrowed(parse_filter(filters)),
            vector=None
            if search is SearchMode.KEYWORD
            else check_query_embedding(self.vector_db, embedding),
            fuzzy=fuzzy,
            include_embeddings=include_embeddings,
        )
        traced = span("index", provider=self.vector_db.provider_id, mode=search, k=query.k)
        with self._calls, traced, scope.reading():
            return await self._answer(query)

    # --- the legs of a query over several vector DBs -------------------------------------------

    async def leg(
        self, name: LegName, query: IndexQuery, size: int, statistics: TermStatistics | None = None
    ) -> Leg:
        """Return the candidates of one leg of a checked query; `chunks_of` reads their chunks.

        Args:
            query: Its `filters` are the caller's; the scope of the principal is applied here.
            size: Most candidates wanted, >= 1.
            statistics: For the keyword leg the sum of `term_statistics` of several vector DBs, this
                one included: raw scores then compare with theirs. None ranks by the index's own.

        Raises:
            InvalidFilter, InvalidRequest, ProviderError, ContractViolation: As for `query`.
        """
        scope = self._scope
        narrowed = replace(query, filters=scope.narrowed(query.filters))
        with self._calls, scope.reading():
            if name == "vector":
                return await self._leg_by_vector(narrowed, size)
            return await self._leg_by_words(narrowed, size, statistics)

    async def chunks_of(
        self, candidates: Sequence[Candidate], *, include_embeddings: bool = False
    ) -> dict[str, Chunk]:
        """Return the chunks of candidates by chunk id. Skip a chunk that was deleted."""
        with self._calls, self._scope.reading():
            return await self._chunks_of(candidates, include_embeddings)

    async def term_statistics(self, query: IndexQuery) -> TermStatistics:
        """Return the numbers by which BM25 ranks the chunks for a checked query.

        Hidden chunks count, as in every BM25 score: rank by these numbers, but do not show them.
        All are 0 if the principal sees no chunk of the vector DB, so that hidden words do not
        affect scores elsewhere. Call it only on an index that `has_term_statistics`.

        Raises:
            ProviderError: The backend failed.
        """
        scope = self._scope
        with self._calls, scope.reading():
            seen = scope.visible()
            if seen is not None and not await self._count_passing(seen):
                return TermStatistics(0, 0)
            return await self._term_statistics(query.text, query.fuzzy)

    async def get_chunks(
        self, chunk_ids: Sequence[str], *, include_embeddings: bool = False
    ) -> list[Chunk]:
        """Return the chunks with these ids, in the order of the ids; unknown ids are skipped."""
        scope = self._scope
        with self._calls, scope.reading():
            stored = await self._get(chunk_ids, include_embeddings)
            found = {c.chunk_id: c for c in await self._told(scope, stored)}
        return [found[chunk_id] for chunk_id in dict.fromkeys(chunk_ids) if chunk_id in found]

    async def delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        """Delete the chunks of these ids, all or none; unknown ids are ignored.

        Raises:
            Forbidden: The principal may not write.
        """
        scope = self._scope
        scope.check_writer()
        if not chunk_ids:
            return
        whole, chunk_ids = scope.is_whole, list(dict.fromkeys(chunk_ids))  # engines differ on twins
        write = Write(self.vector_db, self._principal, deleted=chunk_ids)
        async with kept(self.keeper, write), self._turn(exclusive=not whole):
            seen = chunk_ids if whole else await self._seen_ids(scope, chunk_ids)
            await self._delete_chunks(seen)

    async def count(self) -> int:
        """Return the number of chunks stored."""
        scope = self._scope
        with self._calls, scope.reading():
            seen = scope.visible()
            return await (self._count() if seen is None else self._count_passing(seen))

    async def chunk_ids(
        self,
        after: str = "",
        limit: int = 1000,
        *,
        filters: Filter | dict[str, Any] | None = None,
    ) -> list[str]:
        """Return the first ids of stored chunks that follow an id, in ascending order.

        The order is that of code points, on every backend. Called again with the last id of each
        answer, until one is shorter than `limit`, it gives every chunk that is there all the while
        exactly once, whatever others write meanwhile: an id says where to go on even after a
        restart, and when its own chunk is gone. An engine that cannot order by id reads all ids for
        every answer: ask such a one for many at once.

        Args:
            after: Any text; "" begins at the beginning.
            limit: Most ids wanted, 1 to 100,000.
            filters: Only chunks whose metadata passes. Fewer than `limit` ids still mean that no
                more follow. An engine that cannot filter ids reads chunks until there are enough.

        Raises:
            InvalidFilter, InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """
        start, size = check_after(after), check_k(limit, field="limit", most=MAX_IDS)
        scope = self._scope
        passing = scope.narrowed(parse_filter(filters))
        with self._calls, scope.reading():
            if passing is None:
                ids = await self._chunk_ids(start, size)
            else:
                ids = await self._chunk_ids_passing(start, size, passing)
        self._check_page("chunk ids", ids, start, size)
        return list(ids)

    async def documents(self, after: str = "", limit: int = 1000) -> list[DocumentCount]:
        """Return the first documents whose ids follow an id, ascending by code point, with counts.

        They are read like `chunk_ids`. Chunks whose metadata has no `document_id`, or an empty
        one, are in no document. An engine that cannot group reads every chunk for each answer.

        Args:
            after: Any text; "" begins at the beginning.
            limit: Most documents wanted, 1 to 100,000.

        Raises:
            InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """
        start, size = check_after(after), check_k(limit, field="limit", most=MAX_IDS)
        scope = self._scope
        with self._calls, scope.reading():
            seen = scope.visible()
            if seen is None:
                found = await self._documents(start, size)
            else:
                found = await self._documents_passing(start, size, seen)
        self._check_page("documents", [one.document_id for one in found], start, size)
        return list(found)

    async def document_chunk_ids(self, document_id: str) -> list[str]:
        """Return the ids of a document's chunks, ascending; none where there is no such document.

        `add_chunks([], replace_documents=[document_id])` removes the document.
        """
        scope = self._scope
        with self._calls, scope.reading():
            ids = await self._document_chunk_ids(document_id)
            return sorted(ids if scope.is_whole else await self._seen_ids(scope, list(ids)))

    async def settle(self) -> None:
        """Wait until what the engine builds in the background, such as a graph, is built.

        Searches need not wait: until then they compare every embedding. Measurements do.
        """
        with self._calls:
            await self._settle()

    async def delete(self) -> None:
        """Drop the whole index with everything in it, once the calls at work have ended.

        Raises:
            Unavailable: Some still run after `DRAIN_SECONDS`; nothing was dropped.
            ProviderError: The backend failed; the index can still be used.
        """
        async with self._calls.ended():
            await self._drop()

    async def close(self) -> None:
        """Release connections and memory, once the calls at work have ended; the data stays."""
        await self._calls.drained()
        await self._close()

    def reopen(self) -> None:
        """Accept calls again after `close`, for a provider that keeps an index and returns it."""
        self._calls.accept()


def _shared(hook: str) -> Callable[..., Any]:
    """Return a hook of a view: that of the whole index."""

    async def call(self: ScopedIndex, *arguments: Any) -> Any:
        """Call the hook of the whole index."""
        return await getattr(self._whole, hook)(*arguments)

    return call


class ScopedIndex(EmbeddingIndex):
    """An index as one principal sees it: a view of the shared one that costs nothing to make.

    It shares the calls and writes of that index, which is deleted and closed by its owner only.

    Args:
        whole: The index itself.
        principal: Who asks, with a role below admin.
    """

    _whole: EmbeddingIndex

    def __init__(self, whole: EmbeddingIndex, principal: Principal) -> None:
        self._whole = whole
        self.keeper = whole.keeper
        self.vector_db = whole.vector_db
        self._calls = whole._calls
        self._writes = whole._writes
        self.has_term_statistics = whole.has_term_statistics
        self._principal = principal

    def seen_by(self, principal: Principal) -> EmbeddingIndex:
        """Raise Forbidden: a view is not widened."""
        raise Forbidden("An index that is seen by one principal is not shown to another.")

    async def delete(self) -> None:
        """Raise Forbidden: a vector DB with chunks that are hidden is dropped by an admin."""
        raise Forbidden("Dropping a vector DB needs the role admin.")

    async def close(self) -> None:
        """Do nothing: others use the index."""

    def reopen(self) -> None:
        """Do nothing: its owner reopens the index."""

    _add = _shared("_add")
    _query_vector = _shared("_query_vector")
    _query_keyword = _shared("_query_keyword")
    _query_fuzzy = _shared("_query_fuzzy")
    _query_hybrid = _shared("_query_hybrid")
    _term_statistics = _shared("_term_statistics")
    _get = _shared("_get")
    _count = _shared("_count")
    _count_passing = _shared("_count_passing")
    _chunk_ids = _shared("_chunk_ids")
    _chunk_ids_passing = _shared("_chunk_ids_passing")
    _documents = _shared("_documents")
    _documents_passing = _shared("_documents_passing")
    _document_chunk_ids = _shared("_document_chunk_ids")
    _settle = _shared("_settle")

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        if chunk_ids:
            await self._whole._delete_chunks(chunk_ids)

    async def _drop(self) -> None:
        """Drop nothing: others use the index."""
