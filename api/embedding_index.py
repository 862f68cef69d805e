"""The contract of an index: the chunks of one vector DB, whatever engine stores them.

`EngineIndex` implements it for every engine. A provider implements `Engine` and returns
`EngineIndex(engine)`; implement this class directly only to replace all of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from numpy.typing import ArrayLike

from corral.api.checks import AnyRanker
from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount, DocumentPage, DocumentQuery
from corral.api.filters import Filter
from corral.api.hits import Candidate, Leg, QueryChunksResponse, SearcherState, TermStatistics
from corral.api.legs import IndexQuery
from corral.api.principal import Principal
from corral.api.rankers import LegName
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.api.writes import WriteObserver


class EmbeddingIndex(ABC):
    """The chunks of one vector DB, searchable by vector, keyword and both.

    Safe to call from many tasks at once. A write that has returned is seen by every later query.
    `delete` and `close` wait for running calls, up to `DRAIN_SECONDS`; a call that comes later
    raises NotFound.

    An index reads and writes for one principal: unrestricted, or scoped by `scoped_to`. Hidden
    chunks do not exist for the principal.
    """

    @property
    @abstractmethod
    def vector_db(self) -> VectorDB:
        """The registration that the index serves."""

    @property
    @abstractmethod
    def principal(self) -> Principal:
        """The principal that it reads and writes for."""

    @property
    @abstractmethod
    def has_term_statistics(self) -> bool:
        """True if keyword scores can be compared across vector DBs; see `term_statistics`."""

    @abstractmethod
    def scoped_to(self, principal: Principal) -> EmbeddingIndex:
        """Return this index for a principal: the same data, without what is hidden from it.

        Raises:
            Forbidden: The index is scoped already.
        """

    @abstractmethod
    def observed_by(self, observer: WriteObserver | None) -> EmbeddingIndex:
        """Return this index with an observer, which is called after each write."""

    @abstractmethod
    def reconfigure(self, vector_db: VectorDB) -> None:
        """Apply a changed registration: the chunks stay, new searches use its settings."""

    @abstractmethod
    async def add_chunks(
        self,
        chunks: Sequence[Chunk],
        embeddings: ArrayLike | None = None,
        *,
        replace_documents: Collection[str] = (),
    ) -> None:
        """Store chunks, all or none; a chunk replaces the stored chunk with the same id.

        Args:
            chunks: If several have one id, the last is stored. Not mutated.
            embeddings: Shape (len(chunks), dimension); row i belongs to chunks[i]. None takes
                each chunk's own `embedding`.
            replace_documents: Ids of documents; their other chunks are deleted in the same step,
                so that a new version of a document replaces the old one.

        Raises:
            InvalidEmbedding: See `check_embeddings`; nothing was stored.
            InvalidRequest: A chunk has no embedding, the numbers of chunks and embeddings differ,
                `replace_documents` is a string or holds an impossible id, or metadata has a
                reserved key.
            Forbidden: The principal may not write, or gives an acl with tokens it does not hold.
            Conflict: A hidden chunk or document has the same id.
        """

    @abstractmethod
    async def set_acl(self, chunk_ids: Sequence[str], acl: Sequence[str] | None) -> int:
        """Give chunks another acl, all or none; nothing is embedded again.

        Args:
            chunk_ids: Unknown ids are ignored.
            acl: Tokens; None for the vector DB's default.

        Returns:
            The number of chunks changed.

        Raises:
            InvalidRequest: A malformed token.
            Forbidden: The principal may not write, or does not hold a token.
        """

    @abstractmethod
    async def change_document(self, document_id: str, change: Callable[[Chunk], Chunk]) -> int:
        """Change the chunks of a document in one write; nothing is embedded again.

        Other writes wait from the reading of the chunks until they are stored, so none is undone.

        Args:
            change: Returns the changed chunk, with the same id, text and document.

        Returns:
            The number of chunks changed.

        Raises:
            Forbidden, Conflict: See `add_chunks`; nothing was changed.
        """

    @abstractmethod
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
            k: Maximum number of hits, 1 to 1000.
            score_threshold: Minimum score, in [0, 1], applied after fusion. None or 0 keeps all.
            mode: vector, keyword or hybrid; None takes the registration's.
            filters: Conditions on metadata, applied before the top k is taken.
            ranker: Fuses the legs in hybrid mode; None takes the registration's.
            include_embeddings: Return the chunks with their stored embeddings.
            fuzzy: Let the keyword leg find words with similar spelling too.

        Returns:
            The hits, and in `confidence` the probability that the visible chunks contain an
            answer, whatever the threshold is.

        Raises:
            UnsupportedMode, InvalidEmbedding, InvalidFilter, InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """

    @abstractmethod
    async def leg(
        self, name: LegName, query: IndexQuery, size: int, statistics: TermStatistics | None = None
    ) -> Leg:
        """Return the candidates of one leg of a checked query; `chunks_of` reads their chunks.

        Args:
            query: Its `filters` are the caller's; the scope of the principal is applied here.
            size: Maximum number of candidates, >= 1.
            statistics: For the keyword leg: the sum of `term_statistics` of several vector DBs,
                including this one, so that raw scores are comparable. None: the index's own
                statistics.

        Raises:
            InvalidFilter, InvalidRequest, ProviderError, ContractViolation: As for `query`.
        """

    @abstractmethod
    async def chunks_of(
        self, candidates: Sequence[Candidate], *, include_embeddings: bool = False
    ) -> dict[str, Chunk]:
        """Return the chunks of candidates by chunk id. Skip a chunk that was deleted."""

    @abstractmethod
    async def term_statistics(self, query: IndexQuery) -> TermStatistics:
        """Return the BM25 statistics of the chunks for a checked query.

        Hidden chunks count, as in every BM25 score: rank by these numbers, but do not show them.
        All are 0 if the principal sees no chunk of the vector DB, so that hidden words do not
        affect scores elsewhere. Call it only on an index that `has_term_statistics`.

        Raises:
            ProviderError: The backend failed.
        """

    @abstractmethod
    async def get_chunks(
        self, chunk_ids: Sequence[str], *, include_embeddings: bool = False
    ) -> list[Chunk]:
        """Return the chunks with these ids, in the order of the ids; unknown ids are skipped."""

    @abstractmethod
    async def delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        """Delete the chunks of these ids, all or none; unknown ids are ignored.

        Raises:
            Forbidden: The principal may not write.
        """

    @abstractmethod
    async def count(self) -> int:
        """Return the number of chunks stored."""

    @abstractmethod
    async def chunk_ids(
        self,
        after: str = "",
        limit: int = 1000,
        *,
        filters: Filter | dict[str, Any] | None = None,
    ) -> list[str]:
        """Return the first ids of stored chunks that follow an id, in ascending order.

        Ids are ordered by code point, on every backend. To list all ids, call it again with the
        last id of each answer until one is shorter than `limit`. A chunk that exists throughout is
        listed exactly once, despite concurrent writes; an id remains a valid place to continue
        after a restart, and after its own chunk was deleted. An engine that cannot order by id
        reads all ids for every answer, so use a large limit there.

        Args:
            after: Any text; "" starts at the first id.
            limit: Maximum number of ids, 1 to 100,000.
            filters: Conditions on metadata. Fewer than `limit` ids still mean that no more follow.
                An engine that cannot filter ids reads chunks until there are enough.

        Raises:
            InvalidFilter, InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """

    @abstractmethod
    async def documents(self, after: str = "", limit: int = 1000) -> list[DocumentCount]:
        """Return the documents that follow an id, ascending by code point, with chunk counts.

        List all as with `chunk_ids`. Chunks without a `document_id` in their metadata, or with an
        empty one, belong to no document. An engine that cannot group reads every chunk for each
        answer.

        Args:
            after: Any text; "" starts at the first document.
            limit: Maximum number of documents, 1 to 100,000.

        Raises:
            InvalidRequest: A bad argument.
            ProviderError: The backend failed.
            ContractViolation: The provider's answer breaks the contract.
        """

    @abstractmethod
    async def document_page(self, query: DocumentQuery) -> DocumentPage:
        """Return a page of documents in any order, and the number of documents.

        The page is of the moment: a document that is added or deleted moves the others. An engine
        that keeps no list of documents reads every chunk for each page.

        Raises:
            InvalidRequest: `offset` or `limit` is out of range.
            ProviderError: The backend failed.
        """

    @abstractmethod
    async def document_chunk_ids(self, document_id: str) -> list[str]:
        """Return the ids of a document's chunks, ascending; none if it does not exist.

        `add_chunks([], replace_documents=[document_id])` deletes the document.
        """

    @abstractmethod
    async def settle(self) -> None:
        """Wait until the engine's background builds, such as of a graph, have ended.

        Searches need not wait, because they compare every embedding until then. Measurements must.
        """

    @abstractmethod
    async def searcher_state(self) -> SearcherState | None:
        """Return the state of the searcher of embeddings; None if the engine does not report it."""

    @abstractmethod
    async def delete(self) -> None:
        """Drop the whole index with all its data, after running calls have ended.

        Raises:
            Forbidden: The principal is not an admin.
            Unavailable: Calls still run after `DRAIN_SECONDS`; nothing was dropped.
            ProviderError: The backend failed; the index can still be used.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release connections and memory, after running calls have ended; the data stays.

        It does nothing on an index that is scoped to a principal: other views share the engine.
        """

    @abstractmethod
    def reopen(self) -> None:
        """Accept calls again after `close`, for a provider that caches its indexes."""
