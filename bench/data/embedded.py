"""A judged set with its embeddings, cached or new."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.invisible import clean_text
from corral.bench.data.judged import JudgedSet
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.cache import EmbeddingCache
from corral.providers.stack.stack import Stack

EMPTY = "-"
"""The stored text of a document without visible text, which Corral would refuse; the document must
exist, because judgements may name it."""
FOLDER = Path("bench", "cache")
CACHE_MIB = 16 * 1024
BATCH = 64
"""Texts embedded between writes to the cache, the maximum lost by an interruption."""


@dataclass(frozen=True, slots=True)
class EmbeddedSet:
    """A judged set with embeddings, ready for a run.

    Attributes:
        contents: The stored text of each document, in order.
        documents: Embeddings of the documents, shape (n, dimension), float32, length 1.
        queries: Embeddings of the queries, likewise.
    """

    judged: JudgedSet
    contents: list[str]
    documents: NDArray[np.float32]
    queries: NDArray[np.float32]


class Embedding:
    """An embedding model with a cache of earlier embeddings."""

    def __init__(self, embedder: Embedder, cache: EmbeddingCache) -> None:
        self.info: ModelInfo = embedder.info
        self.fingerprint = embedder.fingerprint
        self.tokenizer = embedder.tokenizer
        self._embedder = embedder
        self._cache = cache

    @classmethod
    @asynccontextmanager
    async def opened(cls, config: RunConfig, home: Path, model: str) -> AsyncIterator[Embedding]:
        """Open a configured model, with the benchmark's cache in the data folder.

        Raises:
            NotFound: No provider serves the model.
            MissingDependency: Its packages or weights are not installed.
        """
        providers = Providers(embedding=with_hashing(config.providers.embedding))
        stack = Stack(RunConfig(providers=providers), home)
        cache = EmbeddingCache(home / FOLDER, CACHE_MIB)
        try:
            yield cls(await stack.embedder(model), cache)
        finally:
            await cache.close()
            await stack.close()

    async def embed(
        self, judged: JudgedSet, advance: Callable[[int], None] = lambda texts: None
    ) -> EmbeddedSet:
        """Return a set with its embeddings, cached or new.

        Args:
            judged: The set.
            advance: Called after each batch with its number of texts.

        Raises:
            ProviderError: The model failed; finished batches stay cached.
        """
        contents = contents_of(judged)
        documents = await self._embed(self._embedder, "document", contents, advance)
        asked = _Questions(self._embedder)
        queries = await self._embed(asked, "query", queries_of(judged), advance)
        return EmbeddedSet(judged, contents, documents, queries)

    async def _embed(
        self, embedder: Embedder, kind: str, texts: Sequence[str], advance: Callable[[int], None]
    ) -> NDArray[np.float32]:
        """Return embeddings of length 1; documents and questions have separate caches."""
        rows = np.empty((len(texts), embedder.info.dimension), np.float32)
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            rows[start : start + BATCH] = await self._cache.embed(embedder, kind, part)
            advance(len(part))
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, np.where(lengths > 0, lengths, 1), dtype=np.float32)


class _Questions(Embedder):
    """Embeds texts as questions, which some models embed differently from documents."""

    def __init__(self, embedder: Embedder) -> None:
        self.info = embedder.info
        self.traits = embedder.traits
        self._embedder = embedder

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([await self.embed_query(text) for text in texts])

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        return await self._embedder.embed_query(text)


def with_hashing(entries: Sequence[ProviderEntry]) -> list[ProviderEntry]:
    """Add the model that needs no weights, so that a run works everywhere."""
    if any(entry.provider_type == "inline::hashing" for entry in entries):
        return list(entries)
    hashing = ProviderEntry(provider_id="bench-hashing", provider_type="inline::hashing")
    return [*entries, hashing]


def contents_of(judged: JudgedSet) -> list[str]:
    """Return the stored text of each document, cleaned as in `Retrieval.store`."""
    cleaned = map(clean_text, judged.documents.values())
    return [text if text.strip() else EMPTY for text in cleaned]


def queries_of(judged: JudgedSet) -> list[str]:
    """Return the embedded text of each query, cleaned as in `Retrieval.search`."""
    return [clean_text(text) for text in judged.queries.values()]
