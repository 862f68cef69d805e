"""The road of a document: read, split, embed. The RAG tool's insert takes it, and so do jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, embedded_text
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.library import Library
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import VectorDB
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.cache import EmbeddingCache
from corral.providers.ingestion.document_state import unchanged
from corral.providers.ingestion.read.fetching import Fetcher
from corral.providers.ingestion.read.mime_types import chosen_type, served_type
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.read.reading import Reader
from corral.providers.ingestion.split.budget import Window
from corral.providers.ingestion.split.chunking import Sizes, each_chunk, unread, window_of
from corral.providers.ingestion.storing import all_cleaned, embed

CHUNKS_AT_ONCE = 64
"""Chunks that are embedded together: about half a second on a laptop, so that progress is seen."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """How documents of a vector DB are split.

    Attributes:
        vector_db: Where they go.
        embedder: Of the vector DB.
        sizes: What a chunk may take.
        window: What the embedding model reads; None where that is not known.
    """

    vector_db: VectorDB
    embedder: Embedder
    sizes: Sizes
    window: Window | None

    @property
    def bound(self) -> Window | None:
        """What a chunk has to fit into beside its size."""
        return None if self.sizes.chosen else self.window


@dataclass(frozen=True, slots=True)
class Embedded:
    """Chunks with their embeddings.

    Attributes:
        embeddings: Shape (len(chunks), dimension).
        fresh: Whether some of these were made now, and not found in the cache.
        is_last: Whether these are known to be the last of their document.
    """

    chunks: Sequence[Chunk]
    embeddings: NDArray[np.float32]
    fresh: bool
    is_last: bool


class Pipeline:
    """Makes chunks with embeddings of documents; stores nothing.

    Args:
        settings: Which URLs may be fetched, and what reading a document may take.
        metadata_cost: Returns the tokens of a document's metadata in a context.
        cache: Where embeddings that were made before are; None makes all of them.
        fetcher: Fetches URLs; made from the settings where absent.
    """

    def __init__(
        self,
        settings: RagSettings,
        metadata_cost: Callable[[Mapping[str, Any]], int],
        cache: EmbeddingCache | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.cache = cache
        self._metadata_cost = metadata_cost
        self._fetcher = fetcher or Fetcher(settings)
        self.reader = Reader(settings)

    async def splitting(
        self,
        library: Library,
        vector_db: VectorDB,
        size: int | None = None,
        overlap: int | None = None,
    ) -> Splitting:
        """Return how documents are split: as the request says, else as the registration does.

        Raises:
            InvalidRequest: A size is out of range.
            Conflict: The model is not the one that made the embeddings that are stored.
        """
        taken = Sizes.of(vector_db, size, overlap)
        embedder = await library.embedder_of(vector_db)
        return Splitting(vector_db, embedder, taken, window_of(embedder))

    async def unchanged(
        self,
        index: EmbeddingIndex,
        documents: Sequence[RAGDocument],
        sizes: Sizes,
        *,
        same_origin_only: bool,
    ) -> set[str]:
        """Return the ids of documents that are stored as they would be stored now.

        Raises:
            Conflict: `same_origin_only`, and one is stored from another origin.
        """
        hashes = await self.reader.run(lambda: {d.document_id: sizes.hash(d) for d in documents})
        origins = {d.document_id: d.origin for d in documents} if same_origin_only else {}
        return await unchanged(index, hashes, origins)

    async def read(self, document: RAGDocument) -> ParsedDocument:
        """Return the text of a document that was handed in, fetched first if it is an address.

        Raises:
            InvalidRequest: It is unreadable, of an unsupported type, or its address is not allowed.
            MissingDependency: The package that reads it is not installed.
        """
        if not isinstance(document.content, URL):
            return await self.reader.read(document.content, document.mime_type)
        uri = document.content.uri
        if uri[:5].lower() == "data:":
            return await self.reader.read_data_uri(uri, document.mime_type)
        fetched = await self._fetcher.fetch(uri)
        found = served_type(fetched.url, fetched.content_type)
        return await self.reader.read(fetched.data, chosen_type(document.mime_type, found))

    async def split(
        self,
        document: RAGDocument,
        parsed: ParsedDocument,
        how: Splitting,
        most: int | None = None,
    ) -> list[Chunk]:
        """Return the chunks of a document, without embeddings; see `each_chunk`."""
        return await self.reader.run(list, self.chunks(document, parsed, how, most))

    def chunks(
        self,
        document: RAGDocument,
        parsed: ParsedDocument,
        how: Splitting,
        most: int | None = None,
    ) -> Iterator[Chunk]:
        """Yield the chunks of a document as they are made; see `each_chunk`. Blocks."""
        chosen = how.sizes.chunking, how.vector_db, self._metadata_cost, how.bound, most
        yield from each_chunk(document, parsed, *chosen, how.sizes.hash(document))

    async def embed(
        self, chunks: Iterator[Chunk], how: Splitting
    ) -> AsyncGenerator[Embedded, None]:
        """Yield chunks with their embeddings, some at a time; the next are made meanwhile.

        Raises:
            InvalidRequest: A text has nothing visible in it.
            ProviderError: The embedder failed.
        """
        dimension = how.vector_db.embedding_dimension

        def following() -> list[Chunk]:
            return all_cleaned(list(islice(chunks, CHUNKS_AT_ONCE)), dimension)

        def begun() -> asyncio.Future[list[Chunk]]:
            return asyncio.ensure_future(self.reader.run(following))

        coming: asyncio.Future[list[Chunk]] | None = begun()
        try:
            while coming and (some := await coming):
                coming = begun() if len(some) == CHUNKS_AT_ONCE else None
                made = self.cache.made if self.cache else -1
                texts = [embedded_text(chunk) for chunk in some]
                rows = await embed(how.embedder, how.vector_db.tenant, texts, self.cache)
                fresh = self.cache is None or self.cache.made > made
                yield Embedded(some, rows, fresh, coming is None)
        finally:
            if coming:
                coming.cancel()

    async def notes(self, chunks: Sequence[Chunk], how: Splitting) -> list[str]:
        """Return what the sender has to know, such as that the model does not read all."""
        if not how.sizes.chosen or how.window is None:
            return []
        model = how.vector_db.embedding_model
        return await self.reader.run(unread, chunks, how.window, model)
