"""What a provider writes: the hooks of an index, behind the public methods of `EmbeddingIndex`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.documents import READ_AT_ONCE, DocumentCount
from corral.api.errors import ContractViolation, InvalidRequest
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB


class IndexHooks(ABC):
    """The engine's side of an index. Arguments are checked, and are what the caller may ask for.

    Attributes:
        vector_db: The registration that the index serves.
        has_term_statistics: True if the provider implements `_term_statistics`, and ranks words by
            the statistics that it is given: its scores then compare with those of others.
    """

    vector_db: VectorDB
    has_term_statistics: bool = False

    @abstractmethod
    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        """Upsert chunks with unique ids, and drop other chunks of those documents, all or none."""

    @abstractmethod
    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        """Return the k nearest chunks that pass, best first."""

    @abstractmethod
    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        """Return the k best chunks that hold a word of the query and pass, best first.

        Args:
            by: The statistics to rank by, of several vector DBs, this one included; None for the
                index's own. Passed only to an index that `has_term_statistics`.
        """

    @abstractmethod
    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        """Return the existing chunks of these ids, in any order."""

    @abstractmethod
    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        """Delete these chunks, all or none."""

    @abstractmethod
    async def _count(self) -> int:
        """Return the number of chunks."""

    @abstractmethod
    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        """Return the first `limit` ids above `after`, ascending by code point (as UTF-8 bytes)."""

    @abstractmethod
    async def _drop(self) -> None:
        """Delete the index itself and release what it holds. No other hook runs meanwhile."""

    async def _close(self) -> None:  # noqa: B027 - optional: many engines hold nothing
        """Release connections and memory; the stored data stays."""

    async def _settle(self) -> None:  # noqa: B027 - optional: most engines build nothing later
        """Wait until what the engine builds in the background is built."""

    async def _query_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        """Return the vector leg and the keyword leg, k candidates each; both run at once.

        A provider overrides this only where one round trip can bring both legs.
        """
        vector, keyword = await asyncio.gather(
            self._query_vector(embedding, k, filters),
            self._query_keyword(query_string, k, filters),
        )
        return vector, keyword

    async def _query_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        """Return what `_query_keyword` does, words spelled nearly like the query's included.

        A provider overrides this where its capabilities say `fuzzy`.
        """
        raise InvalidRequest(
            f"Provider {self.vector_db.provider_id!r} has no fuzzy keyword search.",
            hint="Leave fuzzy out, or use a provider with this capability (`corral providers`).",
            field="fuzzy",
        )

    async def _term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        """Return the numbers by which BM25 ranks the chunks for this query.

        A provider overrides this if it sets `has_term_statistics`: then several vector DBs are
        ranked as one, whatever their providers.
        """
        raise ContractViolation(
            f"{self.vector_db.provider_id}: has_term_statistics is set without _term_statistics."
        )

    async def _documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        """Return the first `limit` documents above `after`, ascending by code point.

        A provider overrides this where its engine can group chunks by document.
        """
        return await self._documents_passing(after, limit, None)

    async def _document_chunk_ids(self, document_id: str) -> Sequence[str]:
        """Return the ids of a document's chunks in any order.

        A provider overrides this where its engine finds them without reading the others.
        """
        every = self._passing("", None)
        return [chunk.chunk_id async for chunk in every if chunk.document_id == document_id]

    async def _count_passing(self, filters: Filter) -> int:
        """Return the number of chunks that pass a filter.

        A provider overrides this, and the two hooks that follow, where its engine can tell without
        reading the chunks.
        """
        count = 0
        async for _ in self._passing("", filters):
            count += 1
        return count

    async def _chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        """Return what `_chunk_ids` does, of the chunks that pass a filter."""
        found: list[str] = []
        async for chunk in self._passing(after, filters):
            found.append(chunk.chunk_id)
            if len(found) == limit:
                break
        return found

    async def _documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        """Return what `_documents` does, counting the chunks that pass a filter."""
        counts = Counter[str]()
        async for chunk in self._passing("", filters):
            counts[chunk.document_id or ""] += 1
        ids = sorted(document_id for document_id in counts if document_id > after)[:limit]
        return [DocumentCount(document_id, counts[document_id]) for document_id in ids]

    async def _passing(self, after: str, filters: Filter | None) -> AsyncIterator[Chunk]:
        """Yield the chunks that pass a filter, ascending by id, having read all that follow."""
        while ids := list(await self._chunk_ids(after, MAX_IDS)):
            for start in range(0, len(ids), READ_AT_ONCE):
                found = await self._get(ids[start : start + READ_AT_ONCE], False)
                for chunk in sorted(found, key=lambda chunk: chunk.chunk_id):
                    if matches(filters, chunk.metadata):
                        yield chunk
            if len(ids) < MAX_IDS:
                return
            after = ids[-1]
