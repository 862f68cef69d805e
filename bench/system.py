"""The interface of measured systems: a retrieval system in a scratch folder. Corral is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker
from corral.api.chunks import Chunk
from corral.api.embedder import Embedder, ModelInfo, TextTokenizer
from corral.api.embedding_index import EmbeddingIndex
from corral.api.reranker import Reranker
from corral.api.vector_dbs import SearchMode, VectorDB, VectorDBRegistration
from corral.bench.scratch import HASHING, hashing
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.stack.stack import Stack

_given: ContextVar[Iterator[NDArray[np.float32]]] = ContextVar("given")

SHARE_KEY = "share"
"""Metadata key of every chunk, by which filters select a share of the chunks."""
Ranked = list[tuple[str, float]]
"""(chunk_id, score), best first; scores finite, higher better, never increasing."""


@dataclass(frozen=True, slots=True)
class Collection:
    """The properties of the data that a system may need before storing it.

    Attributes:
        name: Name of the data set; letters, digits and dashes.
        dimension: Dimension of the embeddings, which have length 1; the metric is cosine.
        language: English name, as in a registration.
        tokenizer: Tokenizer of the embedding model, by which Corral weights the legs; None:
            unknown.
    """

    name: str
    dimension: int
    language: str = "english"
    tokenizer: TextTokenizer | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A question.

    Attributes:
        mode: A mode of the system.
        text: Never blank.
        embedding: Embedding of the text, shape (dimension,), length 1; ignored in keyword mode.
        k: Maximum number of hits, 1 to 1000.
        below: Upper bound of `SHARE_KEY`; None: no filter. Only if the system's `filters` is True.
        ranker: The fusion in hybrid mode; None: the system's default.
    """

    mode: SearchMode
    text: str
    embedding: NDArray[np.float32]
    k: int
    below: int | None = None
    ranker: AnyRanker | None = None

    @property
    def filters(self) -> dict[str, Any] | None:
        """`below` as a filter of Corral."""
        if self.below is None:
            return None
        return {"type": "lt", "key": SHARE_KEY, "value": self.below}


class System(ABC):
    """A retrieval system under measurement; extended by adapters of foreign systems.

    Order of calls: prepare, add (repeatedly), build, search (repeatedly and concurrently), close.
    The benchmark computes all embeddings, so that no system gains or loses by its model. A class
    overrides the defaults of:

    Attributes:
        modes: The supported modes. A missing mode is not a failure; it has no row.
        own_fusion: True if hybrid mode fuses by itself, so that `ranker` has no effect.
        filters: True if `search` honors `Search.below`.
        requires: Distributions that it needs.
        service: True if it is reached at an address (`--backends NAME=ADDRESS`).
        engine_of: Types of the providers that use the same engine; this is the engine without
            Corral.

    Args:
        name: The name on the command line, used in its rows.
        folder: An empty scratch folder, removed after closing.
        address: The address after `=`; None for a system in this process.
    """

    modes: ClassVar[tuple[SearchMode, ...]] = tuple(SearchMode)
    own_fusion: ClassVar[bool] = True
    filters: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ()
    service: ClassVar[bool] = False
    engine_of: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, folder: Path, address: str | None = None) -> None:
        self.name = name
        self.folder = folder
        self.address = address

    @abstractmethod
    async def prepare(self, collection: Collection) -> None:
        """Import the engine, connect, and create an empty collection.

        Raises:
            CorralError, OSError, RuntimeError: The system cannot start; its row gets the message.
        """

    @abstractmethod
    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Store chunks, embeddings of shape (len(chunks), dimension) belonging to them row by row.

        Every chunk_id is new. A system with its own ids must store the mapping.
        """

    async def build(self) -> None:
        """Finish pending work, such as building an index, so that queries are fast and complete."""

    @abstractmethod
    async def search(self, asked: Search) -> Ranked:
        """Return the k best chunks by id, best first."""

    async def close(self) -> None:
        """Delete the stored data, and release connections and memory. Called exactly once."""


class BlockingSystem(System):
    """A foreign system whose calls block; an adapter writes `find` instead of `search`.

    Attributes:
        deferred: True if `add` only keeps rows that `build` then stores; the rate of inserts counts
            both.
    """

    deferred: ClassVar[bool] = False

    @abstractmethod
    def find(self, asked: Search) -> Ranked:
        """Return the k best chunks, like `search`; called concurrently from several threads."""

    async def search(self, asked: Search) -> Ranked:
        """Return the result of `find`. Blocks the event loop, which has no other work."""
        return self.find(asked)


class CorralSystem(System):
    """A vector_io provider behind `Retrieval`, the code that the server's routes call."""

    own_fusion: ClassVar[bool] = False
    filters: ClassVar[bool] = True

    def __init__(self, name: str, entry: ProviderEntry, folder: Path) -> None:
        super().__init__(name, folder)
        self._entry = entry
        # Random, so that runs on a shared service never collide, even after a kill.
        self.vector_db_id = f"bench-{uuid4().hex[:12]}"
        self._stack: Stack | None = None

    @property
    def stack(self) -> Stack:
        """The scratch stack with the vector DB; exists after `prepare`."""
        if self._stack is None:
            raise RuntimeError(f"{self.name} is not prepared")
        return self._stack

    async def prepare(self, collection: Collection) -> None:
        """Register a vector DB in a scratch stack of this one provider.

        Its model only determines the dimension and never embeds anything.
        """
        embedding = [hashing(collection.dimension)]
        providers = Providers(vector_io=[self._entry], embedding=embedding)
        self._stack = Stack(RunConfig(providers=providers), self.folder)
        self._retrieval = Retrieval(_Library(self._stack, collection))
        registration = VectorDBRegistration(
            vector_db_id=self.vector_db_id,
            provider_id=self._entry.provider_id,
            embedding_model=HASHING,
            language=collection.language,
        )
        await self._stack.register(registration)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Store chunks in one call of `store`, like the server's routes."""
        _given.set(iter(embeddings))
        await store(self._retrieval.library, self.vector_db_id, chunks)

    async def build(self) -> None:
        """Wait for the engine's background builds."""
        await (await self.index()).settle()

    async def search(self, asked: Search) -> Ranked:
        """Return the hits of `Retrieval.search`."""
        _given.set(iter(asked.embedding[None]))
        answer = await self._retrieval.search(
            self.vector_db_id,
            asked.text,
            k=asked.k,
            mode=asked.mode,
            ranker=asked.ranker,
            filters=asked.filters,
        )
        return [(hit.chunk.chunk_id, hit.score) for hit in answer.hits]

    async def index(self) -> EmbeddingIndex:
        """Return the bare index, for comparisons with and without the surrounding code."""
        return await self.stack.index(self.vector_db_id)

    async def close(self) -> None:
        """Delete the vector DB, on a service too, and close the stack."""
        if self._stack is None:
            return
        try:
            if any(v.identifier == self.vector_db_id for v in await self._stack.vector_dbs()):
                await self._stack.unregister(self.vector_db_id)
        finally:
            await self._stack.close()


class _Library:
    """The stack, with an embedder that returns precomputed embeddings.

    Created for each use, because it caches embeddings by text, and here one text may have several
    embeddings.
    """

    def __init__(self, stack: Stack, collection: Collection) -> None:
        self._stack = stack
        self._collection = collection

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        return await self._stack.vector_db(vector_db_id)

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        return await self._stack.index(vector_db_id)

    async def embedder(self, model: str) -> Embedder:
        return _Given(self._collection)

    async def embedder_of(self, vector_db: VectorDB) -> Embedder:
        return _Given(self._collection)

    async def reranker(self, model: str) -> Reranker:
        return await self._stack.reranker(model)


class _Given(Embedder):
    """Returns the embeddings given in the same call, in order.

    Each call has its own context (its tasks get copies), so concurrent calls do not mix their rows.
    """

    def __init__(self, collection: Collection) -> None:
        self.info = ModelInfo(model=HASHING, dimension=collection.dimension)
        self.tokenizer = collection.tokenizer

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack(list(islice(_given.get(), len(texts))))

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        return next(_given.get())
