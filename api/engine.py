"""The interface that a provider implements: an engine, which `EngineIndex` calls."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.documents import (
    READ_CHUNKS,
    DocumentCount,
    DocumentPage,
    DocumentQuery,
    DocumentSummary,
    count_chunk,
    page_of,
)
from corral.api.errors import ContractViolation, InvalidRequest
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, SearcherState, TermStatistics
from corral.api.vector_dbs import VectorDB


class Engine(ABC):
    """Stores and searches the chunks of one vector DB.

    Eight calls are abstract; the others have a default that reads the chunks. `EngineIndex` checks
    every argument and applies the caller's permissions as a filter, so an engine does neither.
    Calls run concurrently. `drop` and `close` run alone, after every other call has ended.

    Attributes:
        vector_db: The registration of the vector DB.
        has_term_statistics: True if the engine implements `term_statistics`, and ranks words by
            the statistics that it is given. Its keyword scores are then comparable across vector
            DBs.
    """

    has_term_statistics: bool = False

    def __init__(self, vector_db: VectorDB) -> None:
        self.vector_db = vector_db

    def reconfigure(self, vector_db: VectorDB) -> None:
        """Apply a changed registration: the chunks stay, new searches use its settings."""
        self.vector_db = vector_db

    # --- to implement ------------------------------------------------------------------------

    @abstractmethod
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        """Upsert chunks, and delete the other chunks of the replaced documents, all or none.

        Args:
            chunks: Chunks with distinct ids.
            embeddings: Shape (len(chunks), dimension); row i belongs to chunks[i].
            replace_documents: Ids of documents; their chunks that are not in `chunks` are deleted.
        """

    @abstractmethod
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        """Return the k nearest chunks that pass the filters, best first."""

    @abstractmethod
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        """Return the k best chunks that contain a word of the query and pass, best first.

        Args:
            by: Statistics of several vector DBs to rank by, this one included; None for the
                vector DB's own. Passed only to an engine that `has_term_statistics`.
        """

    @abstractmethod
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        """Return the stored chunks of these ids, in any order."""

    @abstractmethod
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        """Delete the chunks of these ids, all or none."""

    @abstractmethod
    async def count(self) -> int:
        """Return the number of chunks."""

    @abstractmethod
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        """Return the first `limit` ids above `after`, ascending by code point (as UTF-8 bytes)."""

    @abstractmethod
    async def drop(self) -> None:
        """Delete all data of the vector DB and release the engine's resources."""

    # --- optional ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Release connections and memory; the stored data stays."""

    async def settle(self) -> None:
        """Wait until background builds, such as of a graph, and unfinished writes have ended."""

    async def searcher_state(self) -> SearcherState | None:
        """Return the state of the searcher of embeddings; None if there is nothing to report.

        Override it if the engine chooses between an exact and an approximate search.
        """
        return None

    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        """Return the vector leg and the keyword leg, k candidates each.

        Override it if one round trip can return both.
        """
        vector, keyword = await asyncio.gather(
            self.search_vector(embedding, k, filters),
            self.search_keyword(query_string, k, filters),
        )
        return vector, keyword

    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        """Search as `search_keyword` does, and find similarly spelled words too.

        Override it if the capabilities include `fuzzy`.
        """
        raise InvalidRequest(
            f"Provider {self.vector_db.provider_id!r} has no fuzzy keyword search.",
            hint="Leave fuzzy out, or use a provider with this capability (`corral providers`).",
            field="fuzzy",
        )

    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        """Return the BM25 statistics of the chunks for this query.

        Override it if `has_term_statistics` is True.
        """
        raise ContractViolation(
            f"{self.vector_db.provider_id}: has_term_statistics is set without term_statistics."
        )

    async def documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        """Return the first `limit` documents above `after`, ascending by code point.

        Override it if the engine can group chunks by document.
        """
        return await self.documents_passing(after, limit, None)

    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        """Return the ids of a document's chunks in any order.

        Override it if the engine need not read other documents' chunks.
        """
        every = self._passing("", None)
        return [chunk.chunk_id async for chunk in every if chunk.document_id == document_id]

    async def count_passing(self, filters: Filter) -> int:
        """Return the number of chunks that pass the filters.

        Override it, and the two calls that follow, if the engine need not read the chunks.
        """
        count = 0
        async for _ in self._passing("", filters):
            count += 1
        return count

    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        """Return ids as `chunk_ids` does, but only of chunks that pass the filters."""
        ids: list[str] = []
        async for chunk in self._passing(after, filters):
            ids.append(chunk.chunk_id)
            if len(ids) == limit:
                break
        return ids

    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        """Return the documents as `documents` does, counting the chunks that pass the filters."""
        counts = Counter[str]()
        async for chunk in self._passing("", filters):
            counts[chunk.document_id or ""] += 1
        ids = sorted(document_id for document_id in counts if document_id > after)[:limit]
        return [DocumentCount(document_id, counts[document_id]) for document_id in ids]

    async def document_page(self, query: DocumentQuery, filters: Filter | None) -> DocumentPage:
        """Return a page of the documents with chunks that pass the filters, in any order.

        Counts, sizes, times and names are of these chunks only. Override it if the engine need not
        read every chunk.
        """
        documents: dict[str, DocumentSummary] = {}
        async for chunk in self._passing("", filters):
            count_chunk(documents, chunk)
        return page_of(documents.values(), query)

    async def _passing(self, after: str, filters: Filter | None) -> AsyncIterator[Chunk]:
        """Yield the chunks above an id that pass the filters, ascending by id."""
        while ids := list(await self.chunk_ids(after, MAX_IDS)):
            for start in range(0, len(ids), READ_CHUNKS):
                chunks = await self.get(ids[start : start + READ_CHUNKS], False)
                for chunk in sorted(chunks, key=lambda chunk: chunk.chunk_id):
                    if matches(filters, chunk.metadata):
                        yield chunk
            if len(ids) < MAX_IDS:
                return
            after = ids[-1]
