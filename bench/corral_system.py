"""One of Corral's own backends under measurement, through `Stack` and `Retrieval` as served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker
from corral.api.chunks import Chunk
from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter
from corral.api.reranker import Reranker
from corral.api.vector_dbs import SearchMode, VectorDB, VectorDBRegistration
from corral.bench.backends import Collection, Ranked, System
from corral.providers.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.rag.retrieval import Retrieval
from corral.providers.stack import Stack

MODEL = "hashing"
"""Registered in the scratch stack, for its dimension; it never embeds anything."""

_given: ContextVar[Iterator[NDArray[np.float32]]] = ContextVar("given")


class CorralSystem(System):
    """A vector_io provider behind `Retrieval`, the code that the server's routes call."""

    own_fusion: ClassVar[bool] = False
    filters: ClassVar[bool] = True

    def __init__(self, name: str, entry: ProviderEntry, folder: Path) -> None:
        super().__init__(name, folder)
        self._entry = entry
        # Random: on a shared service two runs must not meet, nor a run its killed predecessor.
        self.vector_db_id = f"bench-{uuid4().hex[:12]}"
        self._stack: Stack | None = None

    @property
    def stack(self) -> Stack:
        """The scratch stack that holds the vector DB; there is one after `prepare`."""
        if self._stack is None:
            raise RuntimeError(f"{self.name} is not prepared")
        return self._stack

    async def prepare(self, collection: Collection) -> None:
        """Register a vector DB in a scratch stack of this one provider."""
        embedding = ProviderEntry(
            provider_id=MODEL,
            provider_type=f"inline::{MODEL}",
            config={"dimension": collection.dimension},
        )
        providers = Providers(vector_io=[self._entry], embedding=[embedding])
        self._stack = Stack(RunConfig(providers=providers), self.folder)
        self._retrieval = Retrieval(_Library(self._stack, collection.dimension))
        registration = VectorDBRegistration(
            vector_db_id=self.vector_db_id,
            provider_id=self._entry.provider_id,
            embedding_model=MODEL,
            language=collection.language,
        )
        await self._stack.register(registration)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Store chunks in one call of `store`, as the server's routes do."""
        _given.set(iter(embeddings))
        await store(self._retrieval.library, self.vector_db_id, chunks)

    async def search(
        self,
        mode: SearchMode,
        text: str,
        embedding: NDArray[np.float32],
        k: int,
        *,
        ranker: AnyRanker | None = None,
        filters: Filter | dict[str, Any] | None = None,
    ) -> Ranked:
        """Return the hits of `Retrieval.search`."""
        _given.set(iter(embedding[None]))
        answer = await self._retrieval.search(
            self.vector_db_id, text, k=k, mode=mode, ranker=ranker, filters=filters
        )
        return [(hit.chunk.chunk_id, hit.score) for hit in answer.hits]

    async def index(self) -> EmbeddingIndex:
        """Return the bare index, for comparisons with and without the code around it."""
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
    """The stack, with an embedder that answers what the measurement has at hand."""

    def __init__(self, stack: Stack, dimension: int) -> None:
        self._stack = stack
        self._embedder = _Given(dimension)

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        return await self._stack.vector_db(vector_db_id)

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        return await self._stack.index(vector_db_id)

    async def embedder(self, model: str) -> Embedder:
        return self._embedder

    async def reranker(self, model: str) -> Reranker:
        return await self._stack.reranker(model)


class _Given(Embedder):
    """Answers with the embeddings that were given in the same call, in their order.

    Each call has a context of its own (its tasks get copies), so calls under way at once do not mix
    their rows.
    """

    def __init__(self, dimension: int) -> None:
        self.info = ModelInfo(model=MODEL, dimension=dimension)

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack(list(islice(_given.get(), len(texts))))

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        return next(_given.get())
